/*
 * tests/kernels/attention_problem.h - causal attention of one head: random operands, poisoned
 * results, the kernels' run and the naive loop in double.
 */
#ifndef WF_TESTS_ATTENTION_PROBLEM_H
#define WF_TESTS_ATTENTION_PROBLEM_H

#include "kernels/cpu/isa_internal.h"

typedef struct shape {
    int64_t seq, dim;
    int64_t gap; /* floats between a token's row and the next */
    float dropout;
} shape;

/* Rows of dim floats, each row followed by a gap; `seq` rows. */
typedef struct rows {
    int64_t seq, dim, stride;
    float *x;
} rows;

typedef struct problem {
    rows q, k, v, dout;
    int32_t *from; /* [seq], what head.from is where a test sets it: documents and windows */
    wf_attention_head head;
} problem;

typedef struct result {
    rows out, lse, dq, dk, dv;
} result;

/* The contents of memory before a kernel writes it, and of gaps between rows after that: a
   NaN. */
static const uint32_t poison = 0x7fc0dead;

problem problem_open(shape s);
void problem_close(problem *p);
result result_open(shape s);
void result_close(result *r);

/* Forward and backward, in a poisoned workspace of just the size asked for that begins off any
   alignment but a float's. */
void attend(const wf_simd *simd, const problem *p, result *r);

/* The results of a naive loop in double, without gaps. */
typedef struct reference {
    double *out, *lse, *dq, *dk, *dv;
} reference;

reference reference_open(const problem *in);
void reference_close(reference *r);

#endif

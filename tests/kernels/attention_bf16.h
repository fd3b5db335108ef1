/*
 * tests/kernels/attention_bf16.h - attention of one head of bf16 numbers: operands, the
 * kernels' run, and what the definition of a bf16 product gives, by plain loops over numbers
 * one at a time.
 */
#ifndef WF_TESTS_ATTENTION_BF16_H
#define WF_TESTS_ATTENTION_BF16_H

#include "tests/kernels/attention_problem.h"

/* The kinds of numbers of an operand. */
typedef enum numbers16 {
    NUMBERS_ORDINARY,
    NUMBERS_TINY,   /* many products, and sums of them, are denormals; so are some numbers */
    NUMBERS_CANCEL, /* few sizes of both signs: sums are zeros, and small beside their terms */
    NUMBERS_LARGE,  /* scores of hundreds: probabilities are 1 and 0 */
    NUMBERS_INFINITE, /* some infinities and NaNs */
    NUMBERS_KINDS,
} numbers16;

/* Rows of dim numbers, each followed by a gap; `problem` has the same as floats. */
typedef struct problem16 {
    uint16_t *q, *k, *v, *dout;
    int64_t stride;
    problem floats; /* its head is that of fp32 kernels */
    wf_attention_head head;
} problem16;

typedef struct result16 {
    uint16_t *out, *dq;   /* [seq][stride] */
    float *lse, *dk, *dv; /* [seq], without gaps, [seq][dim] */
    uint16_t *dk16, *dv16;
} result16;

problem16 problem16_open(shape s, numbers16 kind);
void problem16_close(problem16 *p);
result16 result16_open(shape s);
void result16_close(result16 *r);

/* Forward and backward of an instruction set, and of the plain loops. */
void attend16(const wf_simd *simd, const problem16 *p, result16 *r);
void attend16_plain(const problem16 *p, result16 *r);

#endif

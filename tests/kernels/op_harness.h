/*
 * tests/kernels/op_harness.h - what every op must pass, over a table of cases and shapes:
 *
 *   1. its gradients, in double on the reference device, against central differences: 1e-6
 *   2. outputs and gradients of the fp32 CPU kernels against the reference: 1e-5
 *   3. the same bits for 1 and 3 threads and for every instruction set of this machine
 *   4. no row of ops.def goes without a case: what counts is that its kernels were asked for on
 *      both devices; op_harness.c says which program answers for which row
 *
 * Errors are norms over a whole tensor, relative to its norm. A case fills in its operands for
 * a shape and applies ops to them; operands hold random numbers that are exact in fp32:
 *
 *     static void apply_silu(wf_tensor *const *in, wf_tensor **out)
 *     {
 *         out[0] = wf_silu(in[0]);
 *     }
 *
 *     static void silu(op_case *c, const op_shape *s)
 *     {
 *         *c = (op_case){.n_in = 1, .n_out = 1, .apply = apply_silu};
 *         c->in[0] = op_activations(s, wf_dim_width(s->width));
 *     }
 */
#ifndef WF_TESTS_OP_HARNESS_H
#define WF_TESTS_OP_HARNESS_H

#include "core/context.h"
#include "core/tape.h"
#include "kernels/ops.h"
#include "tests/harness.h"

enum { OP_INPUTS = 11, OP_OUTPUTS = 4 };

typedef struct op_shape {
    int64_t batch, tokens, width, heads, groups, head_dim, vocabulary;
    bool large; /* work for several threads, and too much for differences */
} op_shape;

typedef struct op_operand {
    int ndim;
    wf_dim dim[WF_MAX_DIMS];
    bool wanted;      /* its gradient is checked */
    int64_t below;    /* > 0: i32 in [0, below) */
    double low, high; /* uniform in [low, high); both 0: in [-2, 2) */
} op_operand;

typedef struct op_case {
    int n_in, n_out;
    op_operand in[OP_INPUTS];
    bool constant[OP_OUTPUTS]; /* outputs that carry no gradient */
    /* fills out; results of ops in place are those operands themselves */
    void (*apply)(wf_tensor *const *in, wf_tensor **out);
} op_case;

typedef struct op_entry {
    const char *name; /* a view's is its row's */
    void (*build)(op_case *c, const op_shape *s);
} op_entry;

typedef enum op_suite {
    OP_SUITE_A,
    OP_SUITE_B,
    OP_SUITE_ATTENTION,
    OP_SUITE_PRODUCTS,
    OP_SUITE_DIMS,
    OP_SUITE_IN_PLACE,
    OP_SUITE_ELEMENTWISE,
    OP_SUITE_ROWS,
    OP_SUITE_MOE,
    OP_SUITE_PART,
    OP_SUITE_SINKS,
    OP_SUITE_NORMS,
    OP_SUITE_COMPUTED /* answers for no row */
} op_suite;

/* Returns true for a row of experts of a part of their features (kernels/experts_part.h), or of
   a part of their choices. */
static inline bool op_is_of_part(const wf_op *op)
{
    return strncmp(op->name, "experts_part", 12) == 0 || (op->flags & WF_OP_PICKED) ||
           strcmp(op->name, "route_capacity") == 0;
}

/* [batch, tokens, last], [batch, tokens] and [last], wanted. */
op_operand op_activations(const op_shape *s, wf_dim last);
op_operand op_per_token(const op_shape *s);
op_operand op_vector(wf_dim dim);
/* The width of activations. */
wf_dim op_width(const op_shape *s);
/* [batch, tokens, heads, head_dim], wanted. */
op_operand op_heads(const op_shape *s, int64_t heads);
op_operand op_matrix(wf_dim rows, wf_dim columns);
/* The same, without a gradient. */
op_operand op_unwanted(op_operand o);
/* [batch, tokens], i32 below s->vocabulary. */
op_operand op_token_ids(const op_shape *s);

/* A case whose operands are still to be said. */
op_case op_case_of(int n_in, int n_out, void (*apply)(wf_tensor *const *, wf_tensor **));

/* Attention of every token to those before it and itself. */
wf_tensor *op_causal(wf_tensor *q, wf_tensor *k, wf_tensor *v, float dropout, int site);

/* A context of the kind the cases run in; asserts that it opens. 0 threads: the reference
 * device. */
wf_context *op_context_open(int threads);

/*
 * op_main - runs the four checks over `entries` (up to one without a name) and then `more`
 * (NULL or up to one without a name); returns what main does.
 */
int op_main(op_suite suite, const op_entry *entries, const wf_test *more);

#endif

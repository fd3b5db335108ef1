/*
 * tests/kernels/op_trial.h - one case at one shape: its operands, and what a context makes of
 * them. For op_harness.c alone.
 */
#ifndef WF_TESTS_OP_TRIAL_H
#define WF_TESTS_OP_TRIAL_H

#include "tests/kernels/op_harness.h"

enum { OP_RESULTS = OP_OUTPUTS + OP_INPUTS };

/* One case at one shape: its operands, and weights that make one number of its outputs. */
typedef struct op_trial {
    const op_entry *entry;
    const op_shape *shape;
    op_case c;
    double *x[OP_INPUTS], *w[OP_OUTPUTS];
} op_trial;

/* Outputs first, then gradients; NULL where there is none. */
typedef struct op_result {
    double *value[OP_RESULTS];
    int64_t count[OP_RESULTS], first[OP_RESULTS]; /* elements; size of dim 0 */
    int ndim[OP_RESULTS];
} op_result;

/* Draws the operands; the seed decides about all that is random. */
op_trial op_trial_begin(const op_entry *entry, const op_shape *shape, uint64_t seed);
void op_trial_end(op_trial *t);

/* Applies the case and, where asked, takes the gradients of its weighed outputs. */
void op_run(wf_context *ctx, op_trial *t, bool gradients, op_result *r);
void op_forget(op_result *r);

/* One failed assertion, with the case and its shape. */
void op_fail(const op_trial *t, const char *format, ...) WF_PRINTF(2, 3);

int64_t op_elements(const op_operand *o);
/* n zeros (at least one); the caller frees them. */
double *op_numbers(int64_t n);

#endif

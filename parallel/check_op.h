/*
 * parallel/check_op.h - checks an application's op by the demands that Weft makes of its own
 * ops.
 *
 *     static void apply(void *self, wf_tensor *const *in, wf_tensor **out)
 *     {
 *         (void)self;
 *         out[0] = my_op(in[0]);
 *     }
 *
 *     wf_op_check check = {.op = &my_op_descriptor, .apply = apply, .n_in = 1, .n_out = 1,
 *                          .in = {{2, {wf_dim_batch(3), wf_dim_width(7)}}}};
 *
 *     wf_check_op(&check, NULL, &error);
 */
#ifndef WF_PARALLEL_CHECK_OP_H
#define WF_PARALLEL_CHECK_OP_H

#include "core/op.h"

WF_BEGIN_DECLS

/** wf_op_check_operand - the shape of one operand, and the range of its random numbers: i32
 * where the op takes integers (wf_op.integers), else floats. */
typedef struct wf_op_check_operand {
    int ndim;
    wf_dim dim[WF_MAX_DIMS]; /* small ones, which the mesh may cut unevenly */
    /* uniform in [low, high); both 0: in [-2, 2). Avoid corners, where finite differences are
       wrong */
    double low, high;
    bool constant; /* takes no gradient */
} wf_op_check_operand;

typedef struct wf_op_check {
    const wf_op *op;
    /* computes out[0..n_out) from in[0..n_in), by the op and the ops that an application calls
       with it */
    void (*apply)(void *self, wf_tensor *const *in, wf_tensor **out);
    void *self;
    int n_in, n_out;
    wf_op_check_operand in[WF_MAX_INPUTS];
    unsigned constant_outputs; /* bit o: output o carries no gradient */
    int mesh[2];               /* ranks along its two axes; 0: 2 */
    /* bounds of errors, as norms over a whole tensor relative to its norm; 0: 1e-6 for
       gradients against differences, 1e-5 for kernels against the reference */
    double gradient_bound, kernel_bound;
} wf_op_check;

enum { WF_CHECK_REFUSALS = 2048 };

/** wf_op_check_report - the results of the steps that were run. */
typedef struct wf_op_check_report {
    /* the reference's distance to finite differences, the largest of all operands */
    double gradient;
    double kernel;   /* outputs and gradients of the CPU's kernels, to the reference's */
    int64_t exact;   /* combinations of layouts with the bits of one rank */
    int64_t inexact; /* those that the run reports as inexact: wf_context_inexact */
    int64_t refused; /* those that are refused as layouts of the op, or of its gradient */
    /* those of them that are layouts of the op, whose outputs were compared */
    int64_t refused_gradients;
    /* a line for each of them on one axis: "[*, a], whole: " and the reason; "" where there are
       none, and a last line with the number of those without room */
    char refusals[WF_CHECK_REFUSALS];
    /* "" or warnings, a line each: an op without backward, an operand that no gradient is asked
       of */
    char notes[512];
} wf_op_check_report;

/**
 * wf_check_op - checks an op in three steps, each of which needs the one before:
 *
 *   1. its gradients against central differences of its outputs, in double by the reference
 *      loops; for each output alone, too, and for each operand alone
 *   2. outputs and gradients of the CPU's kernels against those of the reference loops; for
 *      other numbers, too, and for operands stored as bf16 where a kernel takes them so; and
 *      wf_op.backward_joined of 2 and 4 passes against the sum of each one's gradients, bit by
 *      bit
 *   3. on a small mesh, ranks as threads, each with two workers: every way to lay the operands
 *      out, split on any dim by either axis or both, and partial where the op takes that
 *      (WF_OP_LINEAR), as the sum of 2 x, -x and zeros. Outputs and gradients have the bits of
 *      one rank, or are reported as layout-inexact and right but for rounding, or the layouts
 *      are refused (WF_ELAYOUT), by the op or where its gradient is taken; outputs are compared
 *      before their gradient is. Kernels that write outside of their outputs are found in 2
 *      and 3
 *
 * Everywhere memory that was not written is NaN, and that beside a tensor huge, operands stay
 * as they were, and wf_op.recompute returns output 0 bit by bit.
 *
 * Numbers are functions of operand and index, so every check takes the same ones.
 *
 * @param report  filled in, also on errors; NULL: no report
 * Collective:    no; it launches ranks of its own
 * Errors:        WF_EINVAL with the operand or output, layouts and element that are wrong; else
 *                the error of the op or the launch
 */
WF_API wf_status wf_check_op(const wf_op_check *check, wf_op_check_report *report,
                             wf_error *error);

WF_END_DECLS

#endif

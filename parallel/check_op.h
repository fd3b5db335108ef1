/*
 * parallel/check_op.h - is an op right? What Weft demands of its own ops, for an application's.
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

/** wf_op_check_operand - one operand: its shape, and what numbers it holds: whole ones, as i32,
 * where the op takes those (wf_op.integers), else floats of the device. */
typedef struct wf_op_check_operand {
    int ndim;
    wf_dim dim[WF_MAX_DIMS]; /* small ones, which the mesh may cut unevenly */
    /* uniform in [low, high); both 0: in [-2, 2). Keep clear of corners, at which finite
       differences say nothing */
    double low, high;
    bool constant; /* takes no gradient */
} wf_op_check_operand;

typedef struct wf_op_check {
    const wf_op *op;
    /* makes out[0..n_out) of in[0..n_in), by the op and whatever else an application calls with
       it */
    void (*apply)(void *self, wf_tensor *const *in, wf_tensor **out);
    void *self;
    int n_in, n_out;
    wf_op_check_operand in[WF_MAX_INPUTS];
    unsigned constant_outputs; /* bit o: output o carries no gradient */
    int mesh[2];               /* ranks along its two axes; 0: 2 */
    /* how far numbers may be off, as norms over a whole tensor relative to its norm; 0: 1e-6
       for gradients against differences, 1e-5 for kernels against the reference */
    double gradient_bound, kernel_bound;
} wf_op_check;

enum { WF_CHECK_REFUSALS = 2048 };

/** wf_op_check_report - what was found, as far as it was looked for. */
typedef struct wf_op_check_report {
    /* the reference's distance to finite differences, the largest of all operands */
    double gradient;
    double kernel;   /* outputs and gradients of the CPU's kernels, to the reference's */
    int64_t exact;   /* combinations of layouts with the bits of one rank */
    int64_t inexact; /* those of which the run tells that they are not: wf_context_inexact */
    int64_t refused; /* those that are told to be no layouts of the op, or of its gradient */
    /* those of them that are layouts of the op, whose outputs were compared */
    int64_t refused_gradients;
    /* a line for each of them on one axis: "[*, a], whole: " and the reason; "" where there are
       none, and a last line of how many there was no room for */
    char refusals[WF_CHECK_REFUSALS];
    /* "" or what no user would want, a line each: an op without backward, an operand that no
       gradient is asked of */
    char notes[512];
} wf_op_check_report;

/**
 * wf_check_op - check an op in three steps, each of which needs the one before:
 *
 *   1. its gradients against central differences of its outputs, in double by the reference
 *      loops
 *   2. outputs and gradients of the CPU's kernels against those of the reference loops
 *   3. on a small mesh, ranks as threads, each with two workers: every way to lay the operands
 *      out, split on any dim by either axis or both, and partial where the op takes that
 *      (WF_OP_LINEAR). Outputs and gradients have the bits of one rank, or are told to be
 *      layout-inexact and right but for rounding, or the layouts are refused (WF_ELAYOUT), by
 *      the op or where its gradient is taken; outputs are compared before their gradient is.
 *      Kernels that write outside of their outputs are found in 2 and 3
 *
 * Numbers are functions of operand and index, so every call checks the same ones.
 *
 * @param report  filled in, also on errors; NULL: nobody asks
 * Collective:    no; it launches ranks of its own
 * Errors:        WF_EINVAL with what is wrong: which operand or output, on which layouts, which
 *                element; else what the op or the launch failed with
 */
WF_API wf_status wf_check_op(const wf_op_check *check, wf_op_check_report *report,
                             wf_error *error);

WF_END_DECLS

#endif

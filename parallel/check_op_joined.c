/* parallel/check_op_joined.c - gradients of several passes of an op together against those of
   each. */
#include "core/tape.h"
#include "kernels/devices.h"
#include "kernels/ops.h"
#include "mesh/array/mesh.h"
#include "parallel/check_op_internal.h"
#include <string.h>

/* The sum over passes as a node of the tree. */
static wf_tensor *sum_of(int passes, wf_tensor *const *leaf)
{
    return passes == 1
               ? leaf[0]->grad
               : wf_add(sum_of(passes / 2, leaf), sum_of(passes / 2, leaf + passes / 2));
}

/* Returns the gradient of run->operand, summed over passes that have numbers of their own;
   NULL: an error in the context, or a pass without a gradient. */
static wf_tensor *gradient_of(const wf_op_run *run, int passes, bool joined)
{
    wf_tape *tape[WF_MOST_JOINED] = {NULL};
    wf_tensor *leaf[WF_MOST_JOINED] = {NULL}, *sum = NULL;
    bool all = true;

    for (int i = 0; i < passes; i++) {
        wf_op_run pass = *run;

        pass.numbers = i;
        tape[i] = wf_op_pass(&pass, &leaf[i]);
    }
    if (joined)
        wf_backward_weights_joined(passes, tape);
    for (int i = 0; i < passes; i++)
        wf_backward_weights(tape[i]);
    for (int i = 0; i < passes && wf_context_status(run->ctx) == WF_OK; i++)
        all &= leaf[i]->grad || (i > 0 && leaf[0]->joined == passes);
    if (all && wf_context_status(run->ctx) == WF_OK)
        sum = leaf[0]->joined == passes ? leaf[0]->grad : sum_of(passes, leaf);
    for (int i = 0; i < passes; i++)
        wf_tape_close(tape[i]);
    return sum;
}

static wf_status check_passes(const wf_op_run *run, int passes)
{
    wf_tensor *want = gradient_of(run, passes, false), *sum = gradient_of(run, passes, true);

    if (wf_context_status(run->ctx) != WF_OK)
        return wf_context_status(run->ctx);
    if (want && (!sum || wf_tensor_bytes(sum) != wf_tensor_bytes(want) ||
                 memcmp(sum->data, want->data, wf_tensor_bytes(want)) != 0))
        return wf_fail(
            run->ctx, WF_EINVAL,
            "%s: its backward_joined of %d passes makes another gradient of operand "
            "%d than the sum of what its backward makes of each, bit by bit: it adds "
            "halves of the passes, and their halves (core/numerics/tree.h)",
            run->check->op->name, passes, run->operand);
    return WF_OK;
}

wf_status wf_check_op_joined(const wf_op_check *c, wf_error *error)
{
    const wf_context_options options = {.debug_handles = true};
    wf_context *ctx = wf_context_open(wf_cpu_device(1, error), &options, error);
    wf_op_run run = {.check = c, .ctx = ctx, .gradients = true, .deferred = true};
    wf_status status = ctx ? WF_OK : error->code;

    for (int i = 0; i < c->n_in && status == WF_OK; i++) {
        run.operand = i;
        for (int passes = 2; passes <= WF_MOST_JOINED && status == WF_OK; passes *= 2) {
            if (c->in[i].constant || c->op->integers >> i & 1)
                continue;
            wf_scope_open(ctx);
            status = check_passes(&run, passes);
            wf_scope_close(ctx);
        }
    }
    if (ctx && status != WF_OK)
        wf_error_set(error, status, "%s", wf_context_error(ctx)->text);
    wf_context_close(ctx);
    return status;
}

/* parallel/check_op_call.c - the op that is checked is applied: is it called, and does it
   recompute its output? */
#include "core/tape.h"
#include "core/tensor.h"
#include "parallel/check_op_internal.h"
#include <stddef.h>
#include <string.h>

/* The first call of the op in a run. */
typedef struct first_call {
    wf_call call;
    union {
        max_align_t align;
        char byte[WF_MAX_ATTRIBUTES];
    } attr;
} first_call;

static void see(void *arg, const wf_call *call)
{
    first_call *f = arg;

    if (f->call.op != call->op || f->call.n_out)
        return;
    f->call = *call;
    if (call->attr)
        memcpy(f->attr.byte, call->attr, call->attr_size);
}

/* Checks that output 0 comes once more from what the op saves, with the same bits. */
static wf_status check_recompute(const first_call *f)
{
    const wf_call *call = &f->call;
    const wf_op *op = call->op;
    wf_gradient g = {.ctx = call->ctx,
                     .attr = call->attr ? f->attr.byte : NULL,
                     .n_in = call->n_in,
                     .n_out = call->n_out};
    wf_tape *tape = wf_tape_switch(call->ctx, NULL);
    wf_tensor *y;

    for (int i = 0; i < call->n_in; i++)
        g.in[i] = op->save & WF_IN(i) ? call->in[i] : NULL;
    for (int o = 0; o < call->n_out; o++)
        g.out[o] = op->save & WF_OUT(o) ? call->out[o] : NULL;
    y = op->recompute(&g);
    wf_tape_switch(call->ctx, tape);
    if (wf_context_status(call->ctx) != WF_OK)
        return wf_context_status(call->ctx);
    if (!y || y->dtype != call->out[0]->dtype ||
        wf_tensor_bytes(y) != wf_tensor_bytes(call->out[0]) ||
        memcmp(y->data, call->out[0]->data, wf_tensor_bytes(y)) != 0)
        return wf_fail(call->ctx, WF_EINVAL,
                       "%s: what its recompute returns is not output 0, bit by bit", op->name);
    return WF_OK;
}

wf_status wf_op_apply(const wf_op_run *run, wf_tensor *const *in, wf_tensor **out)
{
    const wf_op_check *c = run->check;
    first_call first = {.call = {.op = c->op}};

    wf_context_observe(run->ctx, see, &first);
    c->apply(c->self, in, out);
    wf_context_observe(run->ctx, NULL, NULL);
    if (wf_context_status(run->ctx) != WF_OK)
        return wf_context_status(run->ctx);
    if (!first.call.n_out && !(c->op->flags & WF_OP_VIEW))
        return wf_fail(run->ctx, WF_EINVAL,
                       "%s is not called by the function that is to apply it", c->op->name);
    return c->op->recompute && first.call.n_out ? check_recompute(&first) : WF_OK;
}

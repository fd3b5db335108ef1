/* core/deferred.c - the walk for weights: gradients of leaves that wf_backward has left for later. */
#include "core/tape_internal.h"

/* Whether a leaf's elements are read for what leaves are owed. They may be there in the first walk alone. */
static bool reads_a_leaf(const node *n)
{
    wf_gradient g = {.n_in = n->n_in};
    bool any = false;

    for (int i = 0; i < n->n_in; i++)
        g.want[i] = wf_edge_owes(&n->from[i]);
    for (int i = 0; i < n->n_in; i++)
        any |=
            n->from[i].leaf && !(n->op->save_shape & WF_SAVE_IN(i)) && wf_node_reads(n, &g, i);
    return any;
}

bool wf_node_can_wait(const node *n)
{
    bool owes = false;

    for (int i = 0; i < n->n_in; i++)
        owes |= wf_edge_owes(&n->from[i]);
    return owes && n->op != &wf_source_op && !reads_a_leaf(n);
}

void wf_tape_adopt(wf_gradient *g, wf_tape *inner)
{
    if (!inner)
        return;
    if (!g->defer) {
        wf_tape_close(inner);
        return;
    }
    if (inner->ctx->tape == inner)
        inner->ctx->tape = NULL;
    inner->older = g->node->inner;
    g->node->inner = inner;
}

/* What was deferred inside of a node, newest first. */
static wf_status walk_inner(node *n)
{
    wf_status status = WF_OK;

    while (n->inner && status == WF_OK) {
        wf_tape *inner = n->inner;

        status = wf_backward_weights(inner);
        n->inner = inner->older;
        wf_tape_close(inner);
    }
    return status;
}

static wf_status visit(wf_tape *tape, node *n)
{
    wf_status status;

    n->deferred = false;
    if (n->hook)
        return wf_node_call_hook(tape, n);
    status = walk_inner(n);
    if (status == WF_OK)
        status = wf_node_step_back(tape, n, true);
    wf_node_forget(n);
    return status;
}

wf_status wf_backward_weights(wf_tape *tape)
{
    wf_context *ctx;
    wf_tape *recording;
    wf_status status;

    if (!tape)
        return WF_EINVAL; /* the reason is in the context that could not open it */
    ctx = tape->ctx;
    recording = wf_tape_switch(ctx, NULL);
    status = ctx->error.code;
    for (node *n = tape->newest; n && status == WF_OK; n = n->before)
        if (n->deferred)
            status = visit(tape, n);
    if (status == WF_OK)
        status = wf_tape_settle(tape);
    wf_tape_switch(ctx, recording);
    return status;
}

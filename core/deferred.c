/*
 * core/deferred.c - the walk for weights: gradients of leaves that wf_backward has left for
 * later, of one pass, or of several together.
 */
#include "core/tape_internal.h"

bool wf_node_reads_a_leaf(const node *n)
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

static bool owes(const node *n)
{
    bool any = false;

    for (int i = 0; i < n->n_in; i++)
        any |= wf_edge_owes(&n->from[i]);
    return any;
}

/* Gradients of a leaf that have an order wait together or not at all. */
bool wf_node_can_wait(const node *n)
{
    return owes(n) && n->op != &wf_source_op && !wf_node_has_order(n) &&
           !wf_node_reads_a_leaf(n);
}

void wf_tape_adopt(wf_gradient *g, wf_tape *inner)
{
    if (!inner)
        return;
    if (!g->defer) {
        wf_tape_close(inner);
        return;
    }
    if (inner->ctx->now.tape == inner)
        inner->ctx->now.tape = NULL;
    inner->older = g->node->inner;
    g->node->inner = inner;
}

/* Computes the deferred gradients of tapes inside of a node, newest first. */
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
        status = wf_node_step_back(tape, n, WF_STEP_LEAVES);
    wf_node_forget(tape->ctx, n);
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
    status = ctx->failure.error.code;
    for (node *n = tape->newest; n && status == WF_OK; n = n->before)
        if (n->deferred)
            status = visit(tape, n);
    if (status == WF_OK)
        status = wf_tape_settle(tape);
    wf_tape_switch(ctx, recording);
    return status;
}

/* ---- several passes ---- */

static bool same_shape(const wf_tensor *a, const wf_tensor *b)
{
    bool same = (a != NULL) == (b != NULL);

    if (!a || !same)
        return same;
    same = a->ndim == b->ndim && a->dtype == b->dtype && a->layout == b->layout;
    for (int d = 0; same && d < a->ndim; d++)
        same = a->dim[d].size == b->dim[d].size;
    return same;
}

/* Returns true where a call has deferred gradients of leaves alone that no other call
   contributes to. */
static bool owes_alone(const node *n)
{
    bool any = false;

    for (int i = 0; i < n->n_in; i++) {
        const edge *e = &n->from[i];

        if (!wf_edge_owes(e))
            continue;
        if (e->leaf->readers != 1 || e->leaf->grad)
            return false;
        any = true;
    }
    return any;
}

/* Returns true where a call of several passes can be one. */
static bool joins(int passes, node *const *n)
{
    bool all = n[0]->op && n[0]->op->backward_joined;

    for (int i = 0; all && i < passes; i++) {
        all = owes_alone(n[i]);
        for (int e = 0; all && e < n[0]->n_in; e++)
            all = wf_edge_owes(&n[i]->from[e]) == wf_edge_owes(&n[0]->from[e]) &&
                  same_shape(n[i]->in[e], n[0]->in[e]);
        for (int o = 0; all && o < n[0]->n_out; o++)
            all = n[i]->dout[o] && same_shape(n[i]->dout[o], n[0]->dout[o]);
    }
    return all;
}

/* Returns true where the same calls are deferred on all tapes, in the same order. */
static bool alike(int passes, wf_tape *const *tape)
{
    node *n[WF_MOST_JOINED] = {NULL};
    bool same = true;

    for (int i = 0; i < passes; i++)
        n[i] = tape[i]->newest;
    while (same && n[0]) {
        wf_tape *inner[WF_MOST_JOINED] = {NULL};

        for (int i = 0; same && i < passes; i++) {
            same = n[i] && n[i]->op == n[0]->op && n[i]->deferred == n[0]->deferred &&
                   (n[i]->inner != NULL) == (n[0]->inner != NULL);
            inner[i] = same ? n[i]->inner : NULL;
        }
        same = same && (!inner[0] || alike(passes, inner));
        for (int i = 0; same && i < passes; i++)
            n[i] = n[i]->before;
    }
    for (int i = 0; same && i < passes; i++)
        same = !n[i] && (tape[i]->older != NULL) == (tape[0]->older != NULL);
    if (same && tape[0]->older) {
        wf_tape *older[WF_MOST_JOINED];

        for (int i = 0; i < passes; i++)
            older[i] = tape[i]->older;
        same = alike(passes, older);
    }
    return same;
}

static wf_status walk_joined(int passes, wf_tape *const *tape);

/* Walks the adopted tapes of a node, newest first. */
static wf_status walk_inner_joined(int passes, node *const *n)
{
    wf_tape *inner[WF_MOST_JOINED];
    wf_status status = WF_OK;

    for (int i = 0; i < passes; i++)
        inner[i] = n[i]->inner;
    while (inner[0] && status == WF_OK) {
        status = walk_joined(passes, inner);
        for (int i = 0; i < passes; i++)
            inner[i] = inner[i]->older;
    }
    return status;
}

static wf_status visit_joined(int passes, wf_tape *const *tape, node *const *n)
{
    wf_status status = walk_inner_joined(passes, n);

    if (status != WF_OK || !joins(passes, n))
        return status;
    status = wf_node_step_back_joined(passes, tape, n);
    for (int i = 0; i < passes && !n[0]->inner; i++) {
        if (owes(n[i])) /* gradients that the op does not join */
            continue;
        n[i]->deferred = false;
        wf_node_forget(tape[i]->ctx, n[i]);
    }
    return status;
}

static wf_status walk_joined(int passes, wf_tape *const *tape)
{
    node *n[WF_MOST_JOINED] = {NULL};
    wf_status status = tape[0]->ctx->failure.error.code;

    for (int i = 0; i < passes; i++)
        n[i] = tape[i]->newest;
    while (n[0] && status == WF_OK) {
        if (n[0]->deferred)
            status = visit_joined(passes, tape, n);
        for (int i = 0; i < passes; i++)
            n[i] = n[i]->before;
    }
    return status;
}

wf_status wf_backward_weights_joined(int passes, wf_tape *const *tape)
{
    wf_context *ctx;
    wf_tape *recording;
    wf_status status;

    if (passes < 1)
        return WF_EINVAL;
    for (int i = 0; i < passes; i++)
        if (!tape[i])
            return WF_EINVAL; /* the reason is in the context that could not open it */
    ctx = tape[0]->ctx;
    status = ctx->failure.error.code;
    if (status != WF_OK || passes > WF_MOST_JOINED || !alike(passes, tape))
        return status;
    recording = wf_tape_switch(ctx, NULL);
    status = walk_joined(passes, tape);
    if (status == WF_OK)
        status = wf_tape_settle(tape[0]);
    wf_tape_switch(ctx, recording);
    return status;
}

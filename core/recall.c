/* core/recall.c - what a node of the tape has saved, as its gradient reads it: as it was,
   recomputed, or redistributed from its origin once more. */
#include "core/tape_internal.h"

/* Checks that a saved tensor still has the elements that the op has seen. */
static bool unchanged(const node *n, const wf_tensor *t, uint32_t version, const char *what,
                      int which)
{
    char text[256];

    if (wf_tensor_version(t) == version)
        return true;
    wf_fail(
        t->ctx, WF_EINVAL,
        "%s: %s %d, %s, was changed in place (by %s) after the op had run, and its gradient "
        "reads it: change it after wf_backward, or change a copy",
        n->op->name, what, which, wf_tensor_describe(t, text, sizeof text),
        t->storage->changed_by);
    return false;
}

bool wf_node_reads(const node *n, const wf_gradient *g, int i)
{
    unsigned weights = n->op->weights;

    if (!(n->op->save_others & WF_SAVE_IN(i)))
        return n->in[i] || n->recipe[i];
    for (int j = 0; j < n->n_in; j++)
        if (j != i && g->want[j] && !(weights & WF_SAVE_IN(i) && weights & WF_SAVE_IN(j)))
            return n->in[i] || n->recipe[i];
    return false;
}

/* Recomputes a tensor that was not saved, from what its op saves. */
static wf_tensor *recompute(wf_context *ctx, node *by)
{
    wf_gradient g = {
        .ctx = ctx, .attr = by->attr, .n_in = by->n_in, .n_out = by->n_out, .node = by};
    const char *path = wf_context_enter(ctx, by->path);
    wf_tensor *t = wf_node_recall(ctx, by, &g) == WF_OK ? by->op->recompute(&g) : NULL;

    wf_context_enter(ctx, path);
    return t;
}

wf_status wf_node_keep(wf_tape *tape, node *n)
{
    wf_scope_open(tape->ctx);
    for (int i = 0; i < n->n_in; i++) {
        if (!n->recipe[i])
            continue;
        n->in[i] = wf_tensor_retain(recompute(tape->ctx, n->recipe[i]));
        n->in_version[i] = n->in[i] ? wf_tensor_version(n->in[i]) : 0;
        wf_node_release(tape->ctx, n->recipe[i]);
        n->recipe[i] = NULL;
    }
    wf_scope_close(tape->ctx);
    return tape->ctx->failure.error.code;
}

wf_status wf_node_recall(wf_context *ctx, node *n, wf_gradient *g)
{
    bool good = true;

    for (int i = 0; i < n->n_in && good; i++) {
        wf_tensor *t = n->in[i];

        if (!wf_node_reads(n, g, i))
            continue;
        if (n->recipe[i])
            t = recompute(ctx, n->recipe[i]);
        else if (!(n->op->save_shape & WF_SAVE_IN(i)))
            good = unchanged(n, t, n->in_version[i], "operand", i);
        if (good && t)
            g->in[i] = n->is_origin[i] ? ctx->distribution->move(t, n->regather[i]) : t;
    }
    for (int o = 0; o < n->n_out && good; o++) {
        if (n->out[o])
            good = unchanged(n, n->out[o], n->out_version[o], "output", o);
        if (n->dout[o] && good)
            good = unchanged(n, n->dout[o], n->dout_version[o], "the gradient of output", o);
        g->out[o] = n->out[o];
        g->dout[o] = n->dout[o];
    }
    return ctx->failure.error.code;
}

wf_status wf_node_gather_ahead(const wf_tape *tape, node *n)
{
    wf_context *ctx = tape->ctx;
    wf_gradient g = {.n_in = n->n_in};
    bool inputs = false, ahead = ctx->options.row_block && !tape->defer && n->is_origin[0];
    wf_tensor *x;

    for (int i = 0; i < n->n_in; i++) {
        g.want[i] = wf_edge_owes(&n->from[i]);
        inputs |= n->from[i].made_by != NULL;
    }
    if (!ahead || !inputs || !wf_node_reads(n, &g, 0) ||
        (!n->recipe[0] && !unchanged(n, n->in[0], n->in_version[0], "operand", 0)))
        return ctx->failure.error.code;
    wf_scope_open(ctx);
    x = n->recipe[0] ? recompute(ctx, n->recipe[0]) : n->in[0];
    x = x ? wf_tensor_retain(ctx->distribution->gather_later(x, n->regather[0])) : NULL;
    wf_scope_close(ctx);
    if (!x)
        return ctx->failure.error.code;
    wf_node_release(ctx, n->recipe[0]);
    wf_tensor_release(n->in[0]);
    n->recipe[0] = NULL;
    n->in[0] = x;
    n->in_version[0] = wf_tensor_version(x);
    n->is_origin[0] = false;
    return WF_OK;
}

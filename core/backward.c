/* core/backward.c - the walk back over a tape: who gets which gradient, and in what order. */
#include "core/tape_internal.h"
#include <inttypes.h>
#include <string.h>

/* Two gradients of different types meet in the device's: the one that is stored as bf16 is widened. */
static wf_status widen_either(wf_context *ctx, wf_tensor **place, wf_tensor **grad)
{
    if ((*place)->dtype == (*grad)->dtype)
        return WF_OK;
    if ((*grad)->dtype == WF_BF16) {
        *grad = wf_cast(*grad, ctx->device->dtype);
    } else {
        wf_tensor *wide = wf_cast(*place, ctx->device->dtype);

        if (wide) {
            wf_tensor_release(*place);
            *place = wf_tensor_retain(wide);
        }
    }
    return ctx->error.code;
}

/* Put a gradient where it belongs, adding it to what is there. */
static wf_status deliver(wf_context *ctx, wf_tensor **place, wf_tensor *grad)
{
    char text[256];

    if (!grad)
        return ctx->error.code;
    if (!*place) {
        *place = wf_tensor_retain(grad);
        return WF_OK;
    }
    if (wf_tensor_is_partial(grad))
        return wf_fail(ctx, WF_ELAYOUT,
                       "two gradients of one tensor meet as partial sums, %s: sum each first, "
                       "with a border at each use",
                       wf_tensor_describe(grad, text, sizeof text));
    if ((*place)->ndim != grad->ndim)
        return wf_fail(ctx, WF_ESHAPE,
                       "two gradients of one vector meet, one with a row per sequence and one "
                       "without, %s: give each place of use a wf_leaf of its own",
                       wf_tensor_describe(grad, text, sizeof text));
    if (grad->ndim && (*place)->dim[0].size != grad->dim[0].size)
        return wf_fail(ctx, WF_ESHAPE,
                       "two gradients of one vector meet, with rows of %" PRId64
                       " and of %" PRId64 " sequences, %s: give each place of use a wf_leaf of "
                       "its own, and add their gradients when each is summed (wf_batch_sum)",
                       (*place)->dim[0].size, grad->dim[0].size,
                       wf_tensor_describe(grad, text, sizeof text));
    if (widen_either(ctx, place, &grad) != WF_OK)
        return ctx->error.code;
    return wf_partial_add(place, grad);
}

/* Give a gradient to an output of a node. */
static wf_status deliver_to_node(wf_context *ctx, node *n, int output, wf_tensor *grad)
{
    if (n->walked)
        return wf_fail(
            ctx, WF_EINVAL,
            "%s: gradients went through it before, and what it saved is gone: run the "
            "forward pass again, or add what you differentiate and go back once",
            n->op->name);
    return deliver(ctx, &n->dout[output], grad);
}

/* What was saved must have the elements that the op has seen. */
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
        return n->in[i] || n->again[i];
    for (int j = 0; j < n->n_in; j++)
        if (j != i && g->want[j] && !(weights & WF_SAVE_IN(i) && weights & WF_SAVE_IN(j)))
            return n->in[i] || n->again[i];
    return false;
}

static wf_status recall(wf_context *ctx, node *n, wf_gradient *g);

/* What was not saved, since its op makes it again from what that saves. */
static wf_tensor *recompute(wf_context *ctx, node *by)
{
    wf_gradient g = {
        .ctx = ctx, .attr = by->attr, .n_in = by->n_in, .n_out = by->n_out, .node = by};
    const char *path = wf_context_enter(ctx, by->path);
    wf_tensor *t = recall(ctx, by, &g) == WF_OK ? by->op->recompute(&g) : NULL;

    wf_context_enter(ctx, path);
    return t;
}

wf_status wf_node_keep(wf_tape *tape, node *n)
{
    wf_scope_open(tape->ctx);
    for (int i = 0; i < n->n_in; i++) {
        if (!n->again[i])
            continue;
        n->in[i] = wf_tensor_retain(recompute(tape->ctx, n->again[i]));
        n->in_version[i] = n->in[i] ? wf_tensor_version(n->in[i]) : 0;
        wf_node_release(tape->ctx, n->again[i]);
        n->again[i] = NULL;
    }
    wf_scope_close(tape->ctx);
    return tape->ctx->error.code;
}

/* Give a backward function what was saved: as it was, and where it was moved from there again. */
static wf_status recall(wf_context *ctx, node *n, wf_gradient *g)
{
    bool good = true;

    for (int i = 0; i < n->n_in && good; i++) {
        wf_tensor *t = n->in[i];

        if (!wf_node_reads(n, g, i))
            continue;
        if (n->again[i])
            t = recompute(ctx, n->again[i]);
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
    return ctx->error.code;
}

/* Where a residual stream in fp32 and branches in bf16 meet, the gradient of each is stored as it is. */
static wf_tensor *stored_as_operand(const node *n, int i, wf_tensor *grad)
{
    bool rounds = grad->ctx->options.fp32_residual && n->op->follows && n->from[i].narrow &&
                  grad->dtype != WF_BF16 && !wf_tensor_is_partial(grad);

    return rounds ? wf_cast(grad, WF_BF16) : grad;
}

/* Leaves take what they are owed, asked for or made by the way; nodes what was asked for. */
static void hand_out(wf_tape *tape, node *n, const wf_gradient *g)
{
    wf_context *ctx = tape->ctx;
    bool listed = false;

    for (int i = 0; i < n->n_in; i++)
        listed |= n->from[i].given;
    for (int i = 0; i < n->n_in && ctx->error.code == WF_OK; i++) {
        edge *e = &n->from[i];

        if (!g->din[i])
            continue;
        if (wf_edge_owes(e)) {
            deliver(ctx, &e->leaf->grad, g->din[i]);
            e->given = true;
            if (!listed) {
                n->given = tape->given;
                tape->given = n;
            }
            listed = true;
        } else if (g->want[i] && e->made_by) {
            deliver_to_node(ctx, e->made_by, e->output, stored_as_operand(n, i, g->din[i]));
        }
    }
}

/* What is asked of a node; false: nothing. */
static bool ask(const wf_tape *tape, node *n, bool leaves, wf_gradient *g)
{
    bool any = false;

    *g = (wf_gradient){.ctx = tape->ctx,
                       .attr = n->attr,
                       .n_in = n->n_in,
                       .n_out = n->n_out,
                       .defer = tape->defer,
                       .node = n};
    for (int i = 0; i < n->n_in; i++) {
        const node *made_by = n->from[i].made_by;

        g->want[i] = leaves ? wf_edge_owes(&n->from[i]) : made_by != NULL;
        g->summed[i] = made_by && !(made_by->op->flags & WF_OP_BORDER);
        any |= g->want[i];
    }
    return any;
}

wf_status wf_node_step_back(wf_tape *tape, node *n, bool leaves)
{
    wf_context *ctx = tape->ctx;
    wf_memory_kind kind = ctx->kind;
    const char *path;
    wf_gradient g;

    if (!ask(tape, n, leaves, &g))
        return WF_OK;
    path = wf_context_enter(ctx, n->path);
    wf_scope_open(ctx);
    if (recall(ctx, n, &g) == WF_OK) {
        if (leaves)
            ctx->kind = WF_MEMORY_GRADIENT;
        n->op->backward(&g);
        ctx->kind = kind;
        hand_out(tape, n, &g);
    }
    wf_scope_close(ctx);
    wf_context_enter(ctx, path);
    return ctx->error.code;
}

/* The other passes' leaves have given what they had to a sum. */
static void mark_joined(int passes, node *const *n)
{
    for (int e = 0; e < n[0]->n_in; e++)
        if (n[0]->from[e].given)
            n[0]->from[e].leaf->joined = passes;
    for (int i = 1; i < passes; i++)
        for (int e = 0; e < n[i]->n_in; e++)
            if (wf_edge_owes(&n[i]->from[e])) {
                wf_tensor_release(n[i]->from[e].leaf);
                n[i]->from[e] = (edge){.leaf = NULL};
            }
}

wf_status wf_node_step_back_joined(int passes, wf_tape *const *tape, node *const *n)
{
    wf_context *ctx = tape[0]->ctx;
    wf_memory_kind kind = ctx->kind;
    wf_gradient g[WF_MOST_JOINED], *each[WF_MOST_JOINED];
    const char *path = wf_context_enter(ctx, n[0]->path);
    wf_status status = ctx->error.code;

    wf_scope_open(ctx);
    for (int i = 0; i < passes && status == WF_OK; i++) {
        each[i] = &g[i];
        ask(tape[i], n[i], true, &g[i]);
        status = recall(ctx, n[i], &g[i]);
    }
    if (status == WF_OK) {
        ctx->kind = WF_MEMORY_GRADIENT;
        n[0]->op->backward_joined(passes, each);
        ctx->kind = kind;
        hand_out(tape[0], n[0], &g[0]);
        mark_joined(passes, n);
    }
    wf_scope_close(ctx);
    wf_context_enter(ctx, path);
    return ctx->error.code;
}

/* What is left to be done with a node's gradients finds them as they are now. */
static void note_versions(node *n)
{
    for (int o = 0; o < n->n_out; o++)
        n->dout_version[o] = n->dout[o] ? wf_tensor_version(n->dout[o]) : 0;
}

static bool has_gradient(const node *n)
{
    for (int o = 0; o < n->n_out; o++)
        if (n->dout[o])
            return true;
    return false;
}

wf_status wf_node_call_hook(wf_tape *tape, node *n)
{
    return wf_tape_settle(tape) == WF_OK ? n->hook(n->arg) : tape->ctx->error.code;
}

/* Gradients of what ops made, and where they cannot wait those of leaves. */
static wf_status visit(wf_tape *tape, node *n)
{
    wf_status status = WF_OK;

    n->walked = true;
    if (n->hook && tape->defer && n->hook_walk == WF_WALK_WEIGHTS)
        n->deferred = true;
    else if (n->hook)
        status = wf_node_call_hook(tape, n);
    if (has_gradient(n)) {
        note_versions(n);
        status = wf_node_step_back(tape, n, false);
        n->deferred = tape->defer && wf_node_can_wait(n);
        if (status == WF_OK)
            status = n->deferred ? wf_node_keep(tape, n) : wf_node_step_back(tape, n, true);
    }
    n->deferred |= n->inner != NULL;
    return status;
}

/* Of what was recorded after `from` only the hooks. */
static wf_status walk(wf_tape *tape, node *from)
{
    wf_status status = WF_OK;
    bool later = true;

    for (node *n = tape->newest; n && status == WF_OK; n = n->before) {
        later &= n != from;
        if (n->walked || (later && !n->hook))
            continue;
        status = visit(tape, n);
        if (!wf_node_can_wait(n) || !n->deferred)
            wf_node_forget(tape->ctx, n);
    }
    return status;
}

static wf_status check_backward(wf_context *ctx, const wf_tensor *root, const wf_tensor *seed)
{
    char text_root[256], text_seed[256];
    bool alike;

    if (!root || !seed)
        return wf_fail(ctx, WF_EINVAL,
                       "wf_backward: the %s is NULL, though nothing failed "
                       "before",
                       root ? "seed" : "tensor to start from");
    if (!ctx->tape || root->tape != ctx->tape->serial)
        return wf_fail(ctx, WF_EINVAL,
                       "wf_backward: the tensor was not made on the current tape: open a tape "
                       "before the forward pass, and use parameters through wf_leaf");
    alike = (seed->dtype == WF_BF16 || seed->dtype == ctx->device->dtype) &&
            root->ndim == seed->ndim;
    for (int i = 0; alike && i < root->ndim; i++)
        alike = root->dim[i].size == seed->dim[i].size;
    if (!alike)
        return wf_fail(ctx, WF_ESHAPE, "wf_backward: the seed, %s, is not like the tensor, %s",
                       wf_tensor_describe(seed, text_seed, sizeof text_seed),
                       wf_tensor_describe(root, text_root, sizeof text_root));
    return WF_OK;
}

wf_status wf_backward(wf_tensor *root, wf_tensor *seed, bool defer_weights)
{
    wf_context *ctx;
    wf_tape *tape, *recording;
    wf_status status;

    if (!root && !seed)
        return WF_EINVAL;
    ctx = root ? root->ctx : seed->ctx;
    status = ctx->error.code;
    if (status == WF_OK)
        status = check_backward(ctx, root, seed);
    if (status != WF_OK)
        return status;
    tape = ctx->tape;
    tape->defer = defer_weights;
    recording = wf_tape_switch(ctx, NULL);
    status = deliver_to_node(ctx, root->node, root->output, seed);
    if (status == WF_OK)
        status = walk(tape, root->node);
    if (status == WF_OK)
        status = wf_tape_settle(tape);
    tape->defer = false;
    wf_tape_switch(ctx, recording);
    return status;
}

/* core/backward.c - the walk back over a tape: who gets which gradient, and in what order. */
#include "core/tape_internal.h"
#include "core/dtype.h"
#include <inttypes.h>
#include <string.h>

/* Casts a gradient to the type of its operand: where a residual stream in fp32 and branches in
   bf16 meet, the gradient of each is stored as it is. */
static wf_tensor *stored_as_operand(const node *n, int i, wf_tensor *grad)
{
    bool rounds = grad->ctx->options.fp32_residual && n->op->follows && n->from[i].narrow &&
                  grad->dtype != WF_BF16 && !wf_tensor_is_partial(grad);

    return rounds ? wf_cast(grad, WF_BF16) : grad;
}

/* Leaves that have got gradients have them from this node. */
static void give(wf_tape *tape, node *n)
{
    bool listed = false, any = false;

    for (int i = 0; i < n->n_in; i++) {
        edge *e = &n->from[i];

        listed |= e->given;
        any |= e->reached && !e->given;
        e->given |= e->reached;
    }
    if (any && !listed) {
        n->given = tape->given;
        tape->given = n;
    }
}

/* Leaves take what they are owed, asked for or made by the way; nodes what was asked for. */
static void hand_out(wf_tape *tape, node *n, const wf_gradient *g)
{
    for (int i = 0; i < n->n_in && tape->ctx->failure.error.code == WF_OK; i++) {
        const edge *e = &n->from[i];

        if (!g->din[i])
            continue;
        if (wf_edge_owes(e))
            wf_edge_deliver(tape->ctx, n, i, g->din[i]);
        else if (g->want[i] && e->made_by)
            wf_edge_deliver(tape->ctx, n, i, stored_as_operand(n, i, g->din[i]));
    }
    give(tape, n);
}

/* Returns true where gradients are wanted of operands that are leaves, or of those that are
   not. */
static bool wants(const node *n, unsigned of)
{
    bool any = false;

    for (int i = 0; i < n->n_in; i++)
        any |= (of & WF_STEP_INPUTS && n->from[i].made_by) ||
               (of & WF_STEP_LEAVES && wf_edge_owes(&n->from[i]));
    return any;
}

/* Fills in the gradient call of a node. */
static void ask(const wf_tape *tape, node *n, bool leaves, wf_gradient *g)
{
    *g = (wf_gradient){.ctx = tape->ctx,
                       .attr = n->attr,
                       .n_in = n->n_in,
                       .n_out = n->n_out,
                       .defer = tape->defer,
                       .node = n};
    for (int i = 0; i < n->n_in; i++) {
        const edge *e = &n->from[i];

        g->owed[i] = wf_edge_owes(e);
        g->want[i] = leaves ? g->owed[i] : e->made_by != NULL;
        g->summed[i] = wf_edge_summed(e);
        g->later[i] = !leaves && e->made_by && wf_node_takes_later(e->made_by);
    }
}

/* Calls an op's backward for operands that are leaves, or for those that are not, except for
   gradients that are made already. */
static void make(wf_tape *tape, node *n, bool leaves, wf_gradient *made)
{
    wf_context *ctx = tape->ctx;
    wf_memory_kind kind = ctx->now.kind;
    wf_gradient g;

    ask(tape, n, leaves, &g);
    if (wf_node_recall(ctx, n, &g) != WF_OK)
        return;
    for (int i = 0; i < n->n_in; i++)
        g.want[i] &= !made->din[i];
    if (leaves)
        ctx->now.kind = WF_MEMORY_GRADIENT;
    wf_node_call_backward(ctx, n, &g);
    ctx->now.kind = kind;
    for (int i = 0; i < n->n_in; i++) {
        made->want[i] |= g.want[i];
        made->din[i] = made->din[i] ? made->din[i] : g.din[i];
    }
}

wf_status wf_node_step_back(wf_tape *tape, node *n, unsigned of)
{
    wf_context *ctx = tape->ctx;
    wf_gradient made = {.n_in = n->n_in};
    const char *path;

    if (!wants(n, of))
        return WF_OK;
    path = wf_context_enter(ctx, n->path);
    wf_scope_open(ctx);
    if (wants(n, of & WF_STEP_INPUTS))
        make(tape, n, false, &made);
    if (wants(n, of & WF_STEP_LEAVES) && ctx->failure.error.code == WF_OK)
        make(tape, n, true, &made);
    hand_out(tape, n, &made);
    wf_scope_close(ctx);
    wf_context_enter(ctx, path);
    return ctx->failure.error.code;
}

/* Marks leaves whose gradients of all passes are one sum, which the first one has. */
static void mark_joined(int passes, node *const *n, const wf_gradient *sum)
{
    for (int e = 0; e < n[0]->n_in; e++) {
        if (!sum->want[e] || !sum->din[e])
            continue;
        n[0]->from[e].leaf->joined = passes;
        for (int i = 1; i < passes; i++) {
            wf_tensor_release(n[i]->from[e].leaf);
            n[i]->from[e] = (edge){.leaf = NULL};
        }
    }
}

wf_status wf_node_step_back_joined(int passes, wf_tape *const *tape, node *const *n)
{
    wf_context *ctx = tape[0]->ctx;
    wf_memory_kind kind = ctx->now.kind;
    wf_gradient g[WF_MOST_JOINED], *each[WF_MOST_JOINED];
    const char *path = wf_context_enter(ctx, n[0]->path);
    wf_status status = ctx->failure.error.code;

    wf_scope_open(ctx);
    for (int i = 0; i < passes && status == WF_OK; i++) {
        each[i] = &g[i];
        ask(tape[i], n[i], true, &g[i]);
        status = wf_node_recall(ctx, n[i], &g[i]);
    }
    if (status == WF_OK) {
        ctx->now.kind = WF_MEMORY_GRADIENT;
        ctx->now.gradient_of = n[0];
        n[0]->op->backward_joined(passes, each);
        ctx->now.gradient_of = NULL;
        ctx->now.kind = kind;
        hand_out(tape[0], n[0], &g[0]);
        mark_joined(passes, n, &g[0]);
    }
    wf_scope_close(ctx);
    wf_context_enter(ctx, path);
    return ctx->failure.error.code;
}

void wf_node_note_versions(node *n)
{
    for (int o = 0; o < n->n_out; o++)
        n->dout_version[o] = n->dout[o] ? wf_tensor_version(n->dout[o]) : 0;
}

/* Returns true where an output has received a gradient, or where one begins. */
static bool has_gradient(const node *n)
{
    for (int o = 0; o < n->n_out; o++)
        if (n->dout[o])
            return true;
    return n->op && n->op->flags & WF_OP_ROOT;
}

wf_status wf_node_call_hook(wf_tape *tape, node *n)
{
    return wf_tape_settle(tape) == WF_OK ? n->hook(n->arg) : tape->ctx->failure.error.code;
}

static wf_status visit(wf_tape *tape, node *n);

/* Visits the border that has just got the gradient of an operand, before gradients of leaves:
   what it moves then moves beside these. */
static wf_status visit_border(wf_tape *tape, const node *n)
{
    wf_status status = tape->ctx->failure.error.code;

    for (int i = 0; i < n->n_in && status == WF_OK && tape->ctx->options.row_block; i++) {
        node *by = n->from[i].made_by;

        if (!by || !wf_node_takes_later(by) || by->walked || !by->dout[0])
            continue;
        status = visit(tape, by);
        if (!by->deferred)
            wf_node_forget(tape->ctx, by);
    }
    return status;
}

/* Gradients of what ops made, and where they cannot wait those of leaves. */
static wf_status step_back(wf_tape *tape, node *n)
{
    wf_status status;

    wf_node_note_versions(n);
    if (wf_node_has_order(n))
        return wf_node_step_back(tape, n, WF_STEP_INPUTS | WF_STEP_LEAVES);
    status = wf_node_gather_ahead(tape, n);
    if (status == WF_OK)
        status = wf_node_step_back(tape, n, WF_STEP_INPUTS);
    if (status == WF_OK)
        status = visit_border(tape, n);
    n->deferred = tape->defer && wf_node_can_wait(n);
    if (status != WF_OK)
        return status;
    return n->deferred ? wf_node_keep(tape, n) : wf_node_step_back(tape, n, WF_STEP_LEAVES);
}

static wf_status visit(wf_tape *tape, node *n)
{
    wf_status status = WF_OK;

    n->walked = true;
    if (n->hook && tape->defer && n->hook_walk == WF_WALK_WEIGHTS)
        n->deferred = true;
    else if (n->hook)
        status = wf_node_call_hook(tape, n);
    if (has_gradient(n))
        status = step_back(tape, n);
    n->deferred |= n->inner != NULL;
    give(tape, n);
    return status;
}

/* Walks a tape back; nodes that were recorded after `from` are left as they are, but for hooks
   and what roots of their own (WF_OP_ROOT) reach. */
static wf_status walk(wf_tape *tape, const node *from)
{
    wf_status status = WF_OK;
    bool later = from != NULL;

    for (node *n = tape->newest; n && status == WF_OK; n = n->before) {
        later &= n != from;
        if (n->walked || (later && !n->hook && !has_gradient(n)))
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
    if (wf_handle_check(root, "wf_backward: the tensor to start from") != WF_OK ||
        wf_handle_check(seed, "wf_backward: the seed") != WF_OK)
        return ctx->failure.error.code;
    if (!ctx->now.tape || root->tape != ctx->now.tape->serial)
        return wf_fail(ctx, WF_EINVAL,
                       "wf_backward: the tensor was not made on the current tape: open a tape "
                       "before the forward pass, and use parameters through wf_leaf");
    alike = (wf_dtype_is_narrow(seed->dtype) || seed->dtype == ctx->device->dtype) &&
            root->ndim == seed->ndim;
    for (int i = 0; alike && i < root->ndim; i++)
        alike = root->dim[i].size == seed->dim[i].size;
    if (!alike)
        return wf_fail(ctx, WF_ESHAPE, "wf_backward: the seed, %s, is not like the tensor, %s",
                       wf_tensor_describe(seed, text_seed, sizeof text_seed),
                       wf_tensor_describe(root, text_root, sizeof text_root));
    return WF_OK;
}

/* Walks the current tape of a context, which records nothing meanwhile. */
static wf_status walk_back(wf_context *ctx, const node *from, bool defer_weights)
{
    wf_tape *tape = wf_tape_switch(ctx, NULL);
    wf_status status;

    tape->defer = defer_weights;
    status = walk(tape, from);
    if (status == WF_OK)
        status = wf_tape_settle(tape);
    tape->defer = false;
    wf_tape_switch(ctx, tape);
    return status;
}

wf_status wf_backward_roots(wf_context *ctx, bool defer_weights)
{
    if (ctx->failure.error.code != WF_OK || !ctx->now.tape)
        return ctx->failure.error.code;
    return walk_back(ctx, NULL, defer_weights);
}

wf_status wf_backward_many(int n, wf_tensor *const *root, wf_tensor *const *seed,
                           bool defer_weights)
{
    wf_context *ctx = NULL;
    wf_tape *recording;
    wf_status status;

    for (int k = 0; k < n && !ctx; k++)
        ctx = root[k] ? root[k]->ctx : seed[k] ? seed[k]->ctx : NULL;
    if (!ctx)
        return WF_EINVAL;
    status = ctx->failure.error.code;
    for (int k = 0; k < n && status == WF_OK; k++)
        status = check_backward(ctx, root[k], seed[k]);
    if (status != WF_OK)
        return status;
    recording = wf_tape_switch(ctx, NULL);
    for (int k = 0; k < n && status == WF_OK; k++)
        status = wf_node_deliver(ctx, root[k]->node, root[k]->output, seed[k],
                                 (wf_reader){NULL, NULL});
    wf_tape_switch(ctx, recording);
    return status == WF_OK ? walk_back(ctx, n == 1 ? root[0]->node : NULL, defer_weights)
                           : status;
}

wf_status wf_backward(wf_tensor *root, wf_tensor *seed, bool defer_weights)
{
    return wf_backward_many(1, &root, &seed, defer_weights);
}

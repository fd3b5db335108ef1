/*
 * core/fan_in.c - where gradients meet, and the order in which they are added: that of a
 * value's uses in the forward pass, from the last one back.
 *
 * The walk back takes nodes in that order, so a sum that is added to as gradients come has it.
 * But gradients of what a border made of a value reach the border, which is walked later than
 * uses of the value itself, and uses inside of a module that is recomputed are on another tape.
 * Both are nodes that pass a value on (WF_OP_PASS). Where a value has three uses or more, they
 * hand each gradient on as it comes; two have one sum in either order. Where one such node
 * passes the value on to all uses, it sums them itself, and moves once.
 */
#include "core/tape_internal.h"
#include "core/dtype.h"
#include <inttypes.h>
#include <stdio.h>

enum { MOST_WITHOUT_ORDER = 2 }; /* gradients whose sum is the same in either order */

/* Widens one of two gradients of different types to the device's: the one that is stored
   narrower. */
static wf_status widen_either(wf_context *ctx, wf_tensor **slot, wf_tensor **grad)
{
    if ((*slot)->dtype == (*grad)->dtype)
        return WF_OK;
    if (wf_dtype_is_narrow((*grad)->dtype)) {
        *grad = wf_cast(*grad, ctx->device->dtype);
    } else {
        wf_tensor *wide = wf_cast(*slot, ctx->device->dtype);

        if (wide) {
            wf_tensor_release(*slot);
            *slot = wf_tensor_retain(wide);
        }
    }
    return ctx->failure.error.code;
}

static const char *describe_reader(wf_reader r, char *text, size_t size)
{
    if (!r.path)
        snprintf(text, size, "another use");
    else if (r.point)
        snprintf(text, size, "what module %s reads after its point %s", r.path, r.point);
    else
        snprintf(text, size, "what module %s reads", r.path);
    return text;
}

/* Fails for gradients of two uses of a tensor that cannot be added as they are; first is who
   gave the older. */
static wf_status refuse_unlike(wf_context *ctx, const wf_tensor *older, wf_reader first,
                               const wf_tensor *grad, wf_reader reader)
{
    bool newer_is = wf_tensor_is_partial(grad), older_is = wf_tensor_is_partial(older);
    char of[2][256], from[2][256], fix[WF_PARTIAL_TEXT];

    if (newer_is || older_is)
        wf_partial_fix(newer_is ? &grad->partial_from : &older->partial_from, fix, sizeof fix);
    else
        snprintf(fix, sizeof fix, "bring both to one by the borders of the styles of both");
    return wf_fail(ctx, WF_ELAYOUT,
                   "two gradients of one tensor meet %s: %s from %s, and %s from %s. Each use "
                   "needs a border of the same layout: %s",
                   newer_is && older_is ? "as partial sums" : "in layouts that are not alike",
                   wf_tensor_describe(older, of[0], sizeof of[0]),
                   describe_reader(first, from[0], sizeof from[0]),
                   wf_tensor_describe(grad, of[1], sizeof of[1]),
                   describe_reader(reader, from[1], sizeof from[1]), fix);
}

/* Stores a gradient in its slot, adding it to the one that is there; first is who gave that. */
static wf_status deliver(wf_context *ctx, wf_tensor **slot, wf_reader *first, wf_tensor *grad,
                         wf_reader reader)
{
    char text[256];

    if (!grad)
        return ctx->failure.error.code;
    if (!*slot) {
        *slot = wf_tensor_retain(grad);
        *first = reader;
        return WF_OK;
    }
    if (wf_tensor_is_partial(grad))
        return refuse_unlike(ctx, *slot, *first, grad, reader);
    if ((*slot)->ndim != grad->ndim)
        return wf_fail(ctx, WF_ESHAPE,
                       "two gradients of one vector meet, one with a row per sequence and one "
                       "without, %s: give each use a wf_leaf of its own",
                       wf_tensor_describe(grad, text, sizeof text));
    if (grad->ndim && (*slot)->dim[0].size != grad->dim[0].size)
        return wf_fail(ctx, WF_ESHAPE,
                       "two gradients of one vector meet, with rows of %" PRId64
                       " and of %" PRId64
                       " sequences, %s: give each use a wf_leaf of its own, and add their "
                       "gradients when each is summed (wf_batch_sum)",
                       (*slot)->dim[0].size, grad->dim[0].size,
                       wf_tensor_describe(grad, text, sizeof text));
    if ((*slot)->layout != grad->layout)
        return refuse_unlike(ctx, *slot, *first, grad, reader);
    if (widen_either(ctx, slot, &grad) != WF_OK)
        return ctx->failure.error.code;
    return wf_partial_add(slot, grad);
}

void wf_edge_count(edge *e, int n)
{
    while (n > 0 && e->made_by) {
        node *by = e->made_by;
        int *uses = &by->uses[e->output], before = *uses, counted;

        *uses += n;
        if (!(by->op->flags & WF_OP_PASS))
            return;
        counted = by->recomputes ? WF_REPLAYED_USES : 1; /* when it was recorded */
        n = (*uses > counted ? *uses : counted) - (before > counted ? before : counted);
        e = &by->from[e->output];
    }
    if (e->leaf)
        e->leaf->readers += n;
}

bool wf_node_takes_later(const node *n)
{
    return n->op->flags & WF_OP_LATER && n->n_out == 1 && n->uses[0] == 1;
}

bool wf_node_has_order(const node *n)
{
    bool any = false;

    for (int i = 0; i < n->n_in; i++)
        any |= wf_edge_owes(&n->from[i]) && n->from[i].leaf->prompt &&
               n->from[i].leaf->readers > MOST_WITHOUT_ORDER;
    return any;
}

/* Returns true where a node passes on each gradient of an output as it comes. */
static bool passes(const node *n, int output)
{
    const edge *e = &n->from[output];
    int uses;

    if (!(n->op->flags & WF_OP_PASS))
        return false;
    while (e->made_by && (e->made_by->op->flags & WF_OP_PASS))
        e = &e->made_by->from[e->output];
    uses = e->made_by ? e->made_by->uses[e->output] : e->leaf ? e->leaf->readers : 0;
    return uses > MOST_WITHOUT_ORDER && uses > n->uses[output];
}

static wf_status pass_on(wf_context *ctx, node *n, int output, wf_tensor *grad)
{
    wf_gradient g = {
        .ctx = ctx, .attr = n->attr, .n_in = n->n_in, .n_out = n->n_out, .node = n};
    wf_memory_kind kind = ctx->now.kind;
    const char *path = wf_context_enter(ctx, n->path);

    g.want[output] = true;
    g.summed[output] = wf_edge_summed(&n->from[output]);
    n->dout[output] = wf_tensor_retain(grad);
    wf_node_note_versions(n);
    wf_scope_open(ctx);
    if (wf_node_recall(ctx, n, &g) == WF_OK) {
        if (n->from[output].leaf)
            ctx->now.kind = WF_MEMORY_GRADIENT;
        wf_node_call_backward(ctx, n, &g);
        ctx->now.kind = kind;
        wf_edge_deliver(ctx, n, output, g.din[output]);
    }
    wf_scope_close(ctx);
    wf_tensor_release(n->dout[output]);
    n->dout[output] = NULL;
    wf_context_enter(ctx, path);
    return ctx->failure.error.code;
}

wf_status wf_node_deliver(wf_context *ctx, node *n, int output, wf_tensor *grad,
                          wf_reader reader)
{
    if (!grad)
        return ctx->failure.error.code;
    if (n->walked)
        return wf_fail(
            ctx, WF_EINVAL,
            "%s: gradients went through it before, and what it saved is gone: run the "
            "forward pass a second time, or add what you differentiate and go back once",
            n->op->name);
    if (passes(n, output))
        return pass_on(ctx, n, output, grad);
    return deliver(ctx, &n->dout[output], &n->first[output], grad, reader);
}

wf_status wf_edge_deliver(wf_context *ctx, node *n, int i, wf_tensor *grad)
{
    const wf_reader reader = {n->path, n->point};
    edge *e = &n->from[i];
    wf_reader other = {NULL, NULL}; /* a leaf keeps no reader */

    if (e->made_by)
        return wf_node_deliver(ctx, e->made_by, e->output, grad, reader);
    if (!grad || !e->leaf)
        return ctx->failure.error.code;
    e->reached = true;
    return deliver(ctx, &e->leaf->grad, &other, grad, reader);
}

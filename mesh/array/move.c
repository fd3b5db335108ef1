/*
 * mesh/array/move.c - carrying out the steps of a redistribution for many tensors at once.
 *
 * A round takes the first tensor that has a collective to do and all others whose next step is
 * the same kind over the same axis: they travel as buffers of one collective, whose rows are
 * the dims in front of the one that is cut. Gathers take tensors of any types along, as bytes.
 */
#include "core/later.h"
#include "core/sharing.h"
#include "core/together.h"
#include "mesh/array/move_internal.h"
#include <string.h>

typedef struct item {
    wf_tensor *now, *next; /* retained */
    const wf_layout *to;
    wf_move_step step;
    bool in_round;
    int64_t *cuts, *out_cuts; /* in elements, one more than members; one block */
    size_t cut_bytes;
} item;

struct wf_move {
    wf_context *ctx;
    int64_t count;
    wf_pending *pending;
    bool background; /* the next collective may progress while the caller computes */
    bool shares;     /* results that are whole on all members may be memory of all */
    item items[];    /* [count] */
};

static size_t move_bytes(int64_t count)
{
    return sizeof(wf_move) + (size_t)count * sizeof(item);
}

static void drop_cuts(wf_move *move, item *it)
{
    wf_blocks_give(wf_context_blocks(move->ctx), it->cuts, it->cut_bytes);
    it->cuts = it->out_cuts = NULL;
    it->in_round = false;
}

/* Makes the tensor after the step; the move holds it and no scope, so that intermediate tensors
   are freed at once. */
static wf_status make_next(wf_move *move, item *it)
{
    wf_context *ctx = move->ctx;
    wf_tensor *t = it->now;
    const wf_layout *layout = wf_move_layout(&it->step, t);
    const wf_dtype dtype = wf_move_dtype(&it->step, t, layout);

    if (wf_move_check(&it->step, t) != WF_OK)
        return wf_context_status(ctx);
    wf_scope_open(ctx);
    if (wf_tensor_is_fake(t))
        it->next = wf_tensor_fake(ctx, dtype, t->ndim, t->dim, layout);
    else
        it->next = move->shares ? wf_move_shared(ctx, &it->step, t, layout) : NULL;
    if (!it->next && wf_context_status(ctx) == WF_OK)
        it->next =
            wf_tensor_new(ctx, dtype, t->ndim, t->dim, layout, wf_context_memory_kind_now(ctx));
    if (it->next) {
        it->next->rounds_to = t->rounds_to;
        it->next->scales = wf_tensor_retain(t->scales);
        it->next->partial_from = t->partial_from;
    }
    wf_tensor_retain(it->next);
    wf_scope_close(ctx);
    return wf_context_status(ctx);
}

/* Advances an item by a step. A sum that is complete is rounded at once, where the step has not
   done it, so that steps after it move the stored type. */
static wf_status advance(wf_move *move, item *it)
{
    wf_tensor *rounded;

    wf_tensor_release(it->now);
    it->now = it->next;
    it->next = NULL;
    wf_scope_open(move->ctx);
    rounded = wf_rounded(it->now);
    if (rounded && rounded != it->now) {
        wf_tensor_release(it->now);
        it->now = wf_tensor_retain(rounded);
    }
    wf_scope_close(move->ctx);
    return wf_context_status(move->ctx);
}

static wf_status run_local(wf_move *move, item *it)
{
    if (make_next(move, it) != WF_OK)
        return wf_context_status(move->ctx);
    wf_move_local(move->ctx, &it->step, it->now, it->next);
    return advance(move, it);
}

/* cuts[i] = elements of `size` bytes before piece i of dim d of t, which the last axis of a
   layout cuts. */
static void cut_dim(const wf_tensor *t, int d, const wf_layout *layout, size_t size,
                    int64_t *cuts)
{
    const wf_mesh *mesh = wf_mesh_of(t->ctx);
    wf_cutter axis[WF_MAX_AXES];
    int n = wf_layout_cutters(mesh, layout, d, mesh->rank, axis);
    int64_t unit =
        wf_outer_count(t, d) * wf_inner_count(t, d) * (int64_t)(wf_dtype_size(t->dtype) / size);

    wf_cut_along(&t->dim[d], n, axis, cuts);
    for (int64_t i = 0; i <= axis[n - 1].parts; i++)
        cuts[i] = (cuts[i] - t->start[d]) * unit;
}

/* Fill one buffer of the round's collective, whose elements have `size` bytes. */
static wf_status prepare(wf_move *move, item *it, size_t size, wf_comm_buffer *buffer)
{
    int members = wf_mesh_size(wf_mesh_of(move->ctx), it->step.axis);
    wf_tensor *x = it->now, *y;
    int from = it->step.from_dim, d = it->step.dim;

    it->in_round = true;
    if (make_next(move, it) != WF_OK)
        return wf_context_status(move->ctx);
    y = it->next;
    it->cut_bytes = 2 * (size_t)(members + 1) * sizeof(int64_t);
    it->cuts = wf_blocks_take(wf_context_blocks(move->ctx), it->cut_bytes);
    if (!it->cuts)
        return wf_fail(move->ctx, WF_ENOMEM, "redistribute: no memory for cuts");
    it->out_cuts = it->cuts + members + 1;
    *buffer = (wf_comm_buffer){.in = x->data,
                               .out = y->data,
                               .count = (int64_t)(wf_tensor_bytes(x) / size),
                               .one_out = wf_tensor_is_shared(y),
                               .rounds = y->dtype != x->dtype,
                               .cuts = it->cuts,
                               .out_cuts = it->out_cuts};
    if (it->step.kind == WF_REDUCE_SCATTER || it->step.kind == WF_ALL_TO_ALL) {
        cut_dim(x, d, y->layout, size, it->cuts);
        buffer->rows = wf_outer_count(x, d);
    }
    if (it->step.kind == WF_ALL_TO_ALL) {
        cut_dim(y, from, x->layout, size, it->out_cuts);
        buffer->out_rows = wf_outer_count(y, from);
    }
    if (it->step.kind == WF_ALL_GATHER) {
        cut_dim(y, from, x->layout, size, it->cuts);
        buffer->rows = wf_outer_count(y, from);
    }
    return WF_OK;
}

/* Returns true where two items take the same step. Tensors of several types are gathered
   together. */
static bool same_step(const item *a, const item *b)
{
    return a->step.kind == b->step.kind && a->step.axis == b->step.axis &&
           a->step.reduction == b->step.reduction &&
           (a->now->dtype == b->now->dtype || a->step.kind == WF_ALL_GATHER) &&
           !wf_tensor_is_fake(b->now);
}

/* Returns bytes of what a round moves: of its tensors' elements, or 1 where those are of
   several types. */
static size_t element_of(const wf_move *move, const item *first)
{
    for (int64_t i = 0; i < move->count; i++)
        if (move->items[i].step.kind >= 0 && same_step(first, &move->items[i]) &&
            move->items[i].now->dtype != first->now->dtype)
            return 1;
    return wf_dtype_size(first->now->dtype);
}

/* Scatters a sum that is rounded when it is complete first: then rounded values are gathered.
   Transports that sum in their own order do so best in one step. */
static void round_halfway(const wf_move *move, item *it)
{
    const wf_tensor *t = it->now;

    if (it->step.kind != WF_ALL_REDUCE || t->dtype == t->rounds_to || t->ndim == 0 ||
        !wf_context_exact(move->ctx))
        return;
    it->step.kind = WF_REDUCE_SCATTER;
    it->step.dim = wf_move_scatter_dim(t, it->step.axis);
}

/* Do all local steps; returns the first tensor that has a collective to do, or NULL. */
static item *next_item(wf_move *move)
{
    item *first = NULL;

    for (int64_t i = 0; i < move->count; i++) {
        item *it = &move->items[i];
        bool more;

        while (
            (more = wf_move_next(wf_mesh_of(move->ctx), it->now->layout, it->to, &it->step)) &&
            (it->step.kind >= WF_COLLECTIVE_KINDS || wf_tensor_is_fake(it->now)))
            if (run_local(move, it) != WF_OK)
                return NULL;
        if (more)
            round_halfway(move, it);
        if (more && !first)
            first = it;
        if (!more)
            it->step.kind = -1;
    }
    return first;
}

static wf_status post(wf_move *move, item *first)
{
    wf_mesh *mesh = wf_mesh_of(move->ctx);
    size_t bytes = (size_t)move->count * sizeof(wf_comm_buffer);
    wf_comm_buffer *buffers = wf_blocks_take(wf_context_blocks(move->ctx), bytes);
    wf_collective what = {
        .kind = (wf_collective_kind)first->step.kind,
        .reduction = first->step.reduction,
        .element = element_of(move, first),
        .buffers = buffers,
        .device = wf_context_device(move->ctx)->memory ? wf_context_device(move->ctx) : NULL,
        .at_once = !move->background,
        .context = move->ctx};
    wf_error error = {WF_OK, ""};
    wf_status status = WF_OK;

    if (!buffers)
        return wf_fail(move->ctx, WF_ENOMEM, "redistribute: no memory for %lld buffers",
                       (long long)move->count);
    for (int64_t i = 0; i < move->count && status == WF_OK; i++)
        if (move->items[i].step.kind >= 0 && same_step(first, &move->items[i]))
            status = prepare(move, &move->items[i], what.element, &buffers[what.n_buffers++]);
    wf_comm_position(mesh->comm[first->step.axis], wf_context_step(move->ctx),
                     wf_context_path(move->ctx));
    if (status == WF_OK && wf_collective_begin(mesh->comm[first->step.axis], &what,
                                               &move->pending, &error) != WF_OK)
        status = wf_fail(move->ctx, error.code, "%s", error.text);
    wf_blocks_give(wf_context_blocks(move->ctx), buffers, bytes);
    return status;
}

static wf_status finish(wf_move *move)
{
    wf_error error = {WF_OK, ""};
    wf_status status = wf_collective_end(move->pending, &error);

    move->pending = NULL;
    if (status != WF_OK)
        return wf_fail(move->ctx, status, "%s", error.text);
    for (int64_t i = 0; i < move->count; i++) {
        item *it = &move->items[i];

        if (!it->in_round)
            continue;
        drop_cuts(move, it);
        if (advance(move, it) != WF_OK)
            return wf_context_status(move->ctx);
    }
    return WF_OK;
}

static bool all_fit(wf_context *ctx, int64_t count, wf_tensor *const *x,
                    const wf_layout *const *to)
{
    for (int64_t i = 0; i < count; i++)
        if (wf_later_come(x[i]) == WF_OK && wf_tensor_is_absent(x[i]))
            return wf_fail(ctx, WF_EINVAL,
                           "redistribute: the memory of tensor %lld was given back "
                           "(wf_tensor_drop)",
                           (long long)i) == WF_OK;
    for (int64_t i = 0; i < count && wf_mesh_of(ctx); i++)
        if (wf_layout_fits(ctx, to[i], x[i]->ndim) != WF_OK)
            return false;
    return wf_context_status(ctx) == WF_OK;
}

static void drop_move(wf_move *move)
{
    for (int64_t i = 0; i < move->count; i++) {
        drop_cuts(move, &move->items[i]);
        wf_tensor_release(move->items[i].next);
        wf_tensor_release(move->items[i].now);
    }
    wf_blocks_give(wf_context_blocks(move->ctx), move, move_bytes(move->count));
}

static wf_move *open(wf_context *ctx, int64_t count, wf_tensor *const *x,
                     const wf_layout *const *to, bool background, bool shares)
{
    wf_move *move;
    item *first;

    if (!all_fit(ctx, count, x, to))
        return NULL;
    move = wf_blocks_take(wf_context_blocks(ctx), move_bytes(count));
    if (!move) {
        wf_fail(ctx, WF_ENOMEM, "redistribute: no memory for %lld tensors", (long long)count);
        return NULL;
    }
    memset(move, 0, move_bytes(count));
    move->ctx = ctx;
    move->count = count;
    move->background = background;
    move->shares = shares;
    for (int64_t i = 0; i < count; i++) {
        move->items[i].now = wf_tensor_retain(x[i]);
        move->items[i].to = to[i];
    }
    wf_together_run(ctx); /* calls that wait may be to change what moves */
    first = wf_mesh_of(ctx) ? next_item(move) : NULL;
    if (first && wf_context_status(ctx) == WF_OK)
        post(move, first);
    if (wf_context_status(ctx) == WF_OK)
        return move;
    drop_move(move); /* it has posted nothing */
    return NULL;
}

wf_move *wf_move_start(wf_context *ctx, int64_t count, wf_tensor *const *x,
                       const wf_layout *const *to, bool background, bool shares)
{
    const wf_trace_mark begun = wf_context_host_begin(ctx);
    wf_move *move = open(ctx, count, x, to, background, shares);

    wf_context_host_end(ctx, begun, "redistribution");
    return move;
}

wf_move *wf_move_begin(wf_context *ctx, int64_t count, wf_tensor *const *x,
                       const wf_layout *const *to)
{
    return wf_move_start(ctx, count, x, to, true, true);
}

wf_status wf_move_run(wf_context *ctx, int64_t count, wf_tensor *const *x,
                      const wf_layout *const *to, wf_tensor **y)
{
    return wf_move_end(wf_move_start(ctx, count, x, to, false, false), y);
}

wf_status wf_move_border(wf_context *ctx, int64_t count, wf_tensor *const *x,
                         const wf_layout *const *to, wf_tensor **y)
{
    return wf_move_end(wf_move_start(ctx, count, x, to, false, true), y);
}

static void end(wf_move *move, wf_tensor **y)
{
    wf_context *ctx = move->ctx;
    wf_status status;

    move->background = false;
    while (move->pending) {
        item *first;

        if (finish(move) != WF_OK)
            break;
        first = next_item(move);
        if (!first || wf_context_status(ctx) != WF_OK || post(move, first) != WF_OK)
            break;
    }
    status = wf_context_status(ctx);
    for (int64_t i = 0; i < move->count; i++) {
        item *it = &move->items[i];

        y[i] = NULL;
        if (status == WF_OK) {
            y[i] = wf_scope_adopt(ctx, it->now); /* maybe not the scope it was begun in */
            it->now = NULL;
        }
    }
    drop_move(move);
}

wf_status wf_move_end(wf_move *move, wf_tensor **y)
{
    wf_context *ctx = move ? move->ctx : NULL;
    wf_trace_mark begun;

    if (!move)
        return WF_EINVAL; /* the reason is in the context */
    begun = wf_context_host_begin(ctx);
    end(move, y);
    wf_context_host_end(ctx, begun, "redistribution");
    return wf_context_status(ctx);
}

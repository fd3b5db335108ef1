/*
 * mesh/array/rows_move.c - rows sent to the owners of their indices, and sums over owners
 * combined at their owning ranks: begun, to be ended when what they move is needed.
 */
#include "core/beside.h"
#include "core/later.h"
#include "mesh/array/move_internal.h"
#include "mesh/array/rows_internal.h"
#include "mesh/comm/transport_internal.h"
#include <string.h>

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static bool has_values(const wf_rows *r)
{
    return r->index != NULL;
}

/* Returns the first sequence of a tensor of those that owners have: a wave's, or all. */
static int64_t first_of(const wf_rows *r)
{
    return r->wave ? r->wave->first : 0;
}

/* ---- to owners ---- */

/* Packs what members take of this rank's rows; returns it. Cuts are those of the collective. */
static wf_tensor *pack_for_owners(wf_rows *r, const wf_tensor *x)
{
    const wf_row_block mine = {r->owned[r->me], {0, r->tokens}};
    const int64_t rows = (mine.sequences.end - mine.sequences.begin) * r->tokens;
    const int64_t most = least(r->k, r->members);
    const size_t row = (size_t)r->d * wf_dtype_size(x->dtype);
    wf_tensor *sent = wf_rows_room(r, x->dtype, rows * most);
    char *to = sent ? sent->data : NULL;

    r->cuts[0] = r->out[0] = 0;
    for (int m = 0; m < r->members && sent; m++) {
        const wf_row_block theirs = {r->owned[m], {0, r->tokens}};

        r->cuts[m + 1] = r->cuts[m] + r->d * wf_rows_count(r, mine, r->taken[m]);
        r->out[m + 1] = r->out[m] + r->d * wf_rows_count(r, theirs, r->taken[r->me]);
        to = wf_rows_pack(r, mine, r->taken[m], x->data, r->first, row, to);
    }
    return sent;
}

/* Moves the rows that came, which lie at the beginning of y, to where they belong, the last
   ones first; all others are +0. */
static void spread(const wf_rows *r, wf_tensor *y)
{
    const size_t row = (size_t)r->d * wf_dtype_size(y->dtype);
    int64_t came = r->d ? r->out[r->members] / r->d : 0;
    const int64_t first = first_of(r) * r->tokens;
    char *rows = y->data;

    for (int64_t i = y->local[0] * r->tokens - 1; i >= 0; i--)
        if (!wf_row_is_taken(r, first + i, r->taken[r->me]))
            memset(rows + (size_t)i * row, 0, row);
        else if (--came != i)
            memcpy(rows + (size_t)i * row, rows + (size_t)came * row, row);
}

static const wf_row_wave *wave_of(const wf_rows_flight *f)
{
    return f->wave.end > f->wave.first ? &f->wave : NULL;
}

/* Begins to bring the rows of x that this rank takes of all members. */
static wf_status begin_to_owners(wf_rows_flight *f, wf_tensor *x, bool background)
{
    wf_mesh *mesh = wf_mesh_of(x->ctx);
    const wf_layout *layout;
    wf_dim dims[3];

    if (wf_layout_split_dim(x->layout, f->owners.inner) == 1)
        x = wf_move_one(x, wf_layout_whole(mesh, x->layout, f->owners.inner));
    if (!x || wf_rows_open(&f->rows, &f->owners, wave_of(f), x, false) != WF_OK)
        return WF_EINVAL; /* the reason is in the context */
    layout = wf_layout_whole(mesh, x->layout, f->owners.axis);
    memcpy(dims, x->dim, sizeof dims);
    if (wave_of(f))
        dims[0] = f->wave.batch;
    f->sent = wf_tensor_retain(pack_for_owners(&f->rows, x));
    f->y = wf_tensor_retain(
        wf_tensor_new(x->ctx, x->dtype, 3, dims, layout, wf_context_memory_kind_now(x->ctx)));
    if (!f->sent || !f->y)
        return WF_ENOMEM;
    return wf_rows_post(f, x->dtype, f->y->data, background);
}

/* ---- combine ---- */

/* Packs this rank's rows of a partial sum, by parts of sequences and then by owning rank; where
   the owners have parts, sums are taken over these, each of which keeps its tokens, or each has
   them already. */
static wf_tensor *pack_for_combine(wf_rows *r, const wf_tensor *y)
{
    const size_t row = (size_t)r->d * sizeof(float);
    const bool sums = r->parts > 1 && wf_layout_is_partial(y->layout, r->of->inner);
    const int64_t first = first_of(r);
    wf_tensor *sent = wf_rows_room(r, WF_F32, y->local[0] * y->local[1]);
    char *to = sent ? sent->data : NULL;

    r->cuts[0] = 0;
    for (int q = sums ? 0 : r->part; q < (sums ? r->parts : r->part + 1) && sent; q++) {
        const wf_row_block part = {{first, first + y->local[0]}, wf_rows_tokens(r, y, q)};

        r->cuts[q + 1] = r->cuts[q] + r->d * wf_rows_count(r, part, r->taken[r->me]);
        to = wf_rows_pack(r, part, r->taken[r->me], y->data, first, row, to);
    }
    if (sent && sums &&
        wf_rows_run(r, r->of->inner, WF_REDUCE_SCATTER, WF_F32,
                    &(wf_comm_buffer){.in = sent->data, .out = sent->data, .cuts = r->cuts}) !=
            WF_OK)
        return NULL;
    return sent;
}

/* Cuts the collective that combines rows at their owning ranks: what this rank has for each
   member, and what comes from each. */
static void cut_for_combine(wf_rows *r, wf_row_range tokens)
{
    r->cuts[0] = r->out[0] = 0;
    for (int m = 0; m < r->members; m++) {
        const wf_row_block theirs = {r->owned[m], tokens}, mine = {r->owned[r->me], tokens};

        r->cuts[m + 1] = r->cuts[m] + r->d * wf_rows_count(r, theirs, r->taken[r->me]);
        r->at[m] = r->out[m];
        r->out[m + 1] = r->out[m] + r->d * wf_rows_count(r, mine, r->taken[m]);
    }
}

/* Adds rows of d numbers, NULL where a member has none, in the tree over members or in their
   order; returns one of them, the sum. A node without a row is left out: the others are never
   -0, so that +0 would change none. */
static float *add_nodes(const wf_reduce_ops *reduce, float *const *row, int n, int64_t d)
{
    int left = reduce->chain ? n - 1 : n / 2;
    float *a, *b;

    if (n == 1)
        return row[0];
    a = add_nodes(reduce, row, left, d);
    b = add_nodes(reduce, row + left, n - left, d);
    if (a && b)
        reduce->sum((const float *const[]){a, b}, 2, !reduce->chain, a, d);
    return a ? a : b;
}

/* Adds the members' rows of each token; those that came are written over. */
static wf_status add_members(wf_rows *r, wf_row_range tokens, float *came, wf_tensor *z)
{
    const wf_reduce_ops *reduce = &wf_mesh_of(r->ctx)->comm[r->of->axis]->reduce;
    const size_t bytes = (size_t)r->members * sizeof(float *),
                 row = (size_t)r->d * sizeof(float);
    const wf_row_range own = r->owned[r->me];
    float **of = wf_blocks_take(wf_context_blocks(r->ctx), bytes);
    float *to = (float *)z->data + (own.begin - r->first) * (tokens.end - tokens.begin) * r->d;

    if (!of)
        return wf_fail(r->ctx, WF_ENOMEM, "no memory for a sum over %d ranks", r->members);
    for (int64_t s = own.begin; s < own.end; s++)
        for (int64_t t = tokens.begin; t < tokens.end; t++, to += r->d) {
            const float *sum;

            for (int m = 0; m < r->members; m++) {
                bool has = wf_row_is_taken(r, s * r->tokens + t, r->taken[m]);

                of[m] = has ? came + r->at[m] : NULL;
                r->at[m] += has ? r->d : 0;
            }
            sum = add_nodes(reduce, of, r->members, r->d);
            if (sum)
                memcpy(to, sum, row);
            else
                memset(to, 0, row);
        }
    wf_blocks_give(wf_context_blocks(r->ctx), of, bytes);
    return WF_OK;
}

/* Returns room for the sum over the owners' axes of y, and of all other sequences: their batch
   is split over the axis, and tokens over the inner one. */
static wf_tensor *sum_of(const wf_rows *r, const wf_tensor *y)
{
    wf_mesh *mesh = wf_mesh_of(r->ctx);
    const wf_dim dims[] = {r->of->index->dim[0], y->dim[1], y->dim[2]};
    const wf_layout *layout = wf_layout_whole(mesh, y->layout, r->of->axis);
    wf_tensor *sum;

    layout = wf_layout_split(mesh, layout, 0, r->of->axis);
    if (r->parts > 1)
        layout =
            wf_layout_split(mesh, wf_layout_whole(mesh, layout, r->of->inner), 1, r->of->inner);
    sum = wf_tensor_new(r->ctx, WF_F32, 3, dims, layout, wf_context_memory_kind_now(r->ctx));
    if (sum)
        sum->rounds_to = y->rounds_to;
    return sum;
}

/* Begins to bring this rank's rows of the sum over the owners' axes of y. */
static wf_status begin_combine(wf_rows_flight *f, const wf_tensor *y, bool background)
{
    wf_rows *r = &f->rows;

    if (y->dtype != WF_F32)
        return wf_fail(y->ctx, WF_EDTYPE, "rows of a partial sum are f32, these are %s",
                       wf_dtype_name(y->dtype));
    if (wf_rows_open(r, &f->owners, wave_of(f), y, true) != WF_OK)
        return wf_context_status(y->ctx);
    f->tokens = wf_rows_tokens(r, y, r->part);
    f->sent = wf_tensor_retain(pack_for_combine(r, y));
    f->came = wf_tensor_retain(
        wf_rows_room(r, WF_F32,
                     least(r->k, r->members) * (r->owned[r->me].end - r->owned[r->me].begin) *
                         (f->tokens.end - f->tokens.begin)));
    f->y = wf_tensor_retain(f->wave.sum ? f->wave.sum : sum_of(r, y));
    if (!f->sent || !f->came || !f->y)
        return WF_ENOMEM;
    cut_for_combine(r, f->tokens);
    return wf_rows_post(f, WF_F32, f->came->data, background);
}

/* ---- either ---- */

static void drop(wf_context *ctx, wf_rows_flight *f)
{
    wf_rows_close(&f->rows);
    wf_tensor_release(f->sent);
    wf_tensor_release(f->came);
    wf_tensor_release(f->y);
    wf_tensor_release(f->owners.index);
    wf_blocks_give(wf_context_blocks(ctx), f, sizeof *f);
}

wf_rows_flight *wf_rows_begin(const wf_row_owners *owners, const wf_row_wave *wave,
                              wf_tensor *x, const wf_layout *to, bool background)
{
    wf_context *ctx = x->ctx;
    const wf_trace_mark begun = wf_context_host_begin(ctx);
    wf_rows_flight *f =
        wf_later_come(x) == WF_OK ? wf_blocks_take(wf_context_blocks(ctx), sizeof *f) : NULL;
    wf_status status;

    if (!f) {
        wf_fail(ctx, WF_ENOMEM, "no memory for a move of rows");
        return NULL;
    }
    *f = (wf_rows_flight){.owners = *owners, .to = to};
    if (wave)
        f->wave = *wave;
    wf_tensor_retain(f->owners.index);
    f->rows.ctx = ctx;
    wf_scope_open(ctx);
    status = wf_layout_is_partial(x->layout, owners->axis) ? begin_combine(f, x, background)
                                                           : begin_to_owners(f, x, background);
    wf_scope_close(ctx);
    if (status != WF_OK || wf_context_status(ctx) != WF_OK) {
        drop(ctx, f); /* it has posted nothing */
        f = NULL;
    }
    wf_context_host_end(ctx, begun, "redistribution");
    return f;
}

/* Returns the rows that have come where they belong, or their sums. */
static wf_tensor *arrived(wf_rows_flight *f)
{
    wf_tensor *z;

    if (!f->came && has_values(&f->rows))
        spread(&f->rows, f->y);
    else if (has_values(&f->rows) &&
             add_members(&f->rows, f->tokens, f->came->data, f->y) != WF_OK)
        return NULL;
    if (!f->came || wave_of(f))
        return f->y;
    z = wf_rounded(f->y);
    return z && z->layout != f->to ? wf_move_one(z, f->to) : z;
}

wf_tensor *wf_rows_end(wf_rows_flight *f)
{
    wf_context *ctx = f->rows.ctx;
    wf_error error = {WF_OK, ""};
    wf_trace_mark begun;
    wf_tensor *y;

    wf_beside_turn(ctx);
    begun = wf_context_host_begin(ctx);
    if (wf_collective_end(f->pending, &error) != WF_OK)
        wf_fail(ctx, error.code, "%s", error.text);
    wf_scope_open(ctx);
    y = wf_context_status(ctx) == WF_OK ? arrived(f) : NULL;
    y = y == f->y ? wf_scope_adopt(ctx, wf_tensor_retain(y)) : y;
    y = wf_scope_return(ctx, y);
    drop(ctx, f);
    wf_context_host_end(ctx, begun, "redistribution");
    return y;
}

void wf_rows_forget(wf_mesh *mesh)
{
    while (mesh->rows) {
        wf_rows_flight *f = mesh->rows;

        mesh->rows = f->next;
        wf_tensor_release(f->handle);
        drop(mesh->ctx, f);
    }
}

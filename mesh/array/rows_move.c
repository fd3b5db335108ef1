/*
 * mesh/array/rows_move.c - rows sent to the owners of their indices, and sums over owners
 * brought home; and the border that does either, whose gradient does the other.
 */
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

/* ---- to owners ---- */

/* Packs what members take of this rank's rows; returns it. Cuts are those of the collective. */
static wf_tensor *pack_for_owners(wf_rows *r, const wf_tensor *x)
{
    const int64_t rows = x->local[0] * r->tokens, most = least(r->k, r->members);
    const size_t row = (size_t)r->d * wf_dtype_size(x->dtype);
    wf_tensor *sent = wf_rows_room(r, x->dtype, rows * most);
    char *to = sent ? sent->data : NULL;
    const wf_row_block mine = {r->home[r->me], {0, r->tokens}};

    r->cuts[0] = r->out[0] = 0;
    for (int m = 0; m < r->members && sent; m++) {
        const wf_row_block theirs = {r->home[m], {0, r->tokens}};

        r->cuts[m + 1] = r->cuts[m] + r->d * wf_rows_count(r, mine, r->taken[m]);
        r->out[m + 1] = r->out[m] + r->d * wf_rows_count(r, theirs, r->taken[r->me]);
        to = wf_rows_pack(r, mine, r->taken[m], x->data, mine.sequences.begin, row, to);
    }
    return sent;
}

/* Moves the rows that came, which lie at the beginning of y, to where they belong, the last
   ones first; all others are +0. */
static void spread(const wf_rows *r, wf_tensor *y)
{
    const size_t row = (size_t)r->d * wf_dtype_size(y->dtype);
    int64_t came = r->d ? r->out[r->members] / r->d : 0;
    char *rows = y->data;

    for (int64_t i = y->local[0] * r->tokens - 1; i >= 0; i--)
        if (!wf_row_is_taken(r, i, r->taken[r->me]))
            memset(rows + (size_t)i * row, 0, row);
        else if (--came != i)
            memcpy(rows + (size_t)i * row, rows + (size_t)came * row, row);
}

/* Returns the rows of x that this rank takes of all members', where they belong. */
static wf_tensor *receive(wf_rows *r, const wf_tensor *x)
{
    const wf_layout *layout = wf_layout_whole(wf_mesh_of(x->ctx), x->layout, r->of->axis);
    wf_tensor *sent = pack_for_owners(r, x);
    wf_tensor *y = wf_tensor_new(x->ctx, x->dtype, x->ndim, x->dim, layout,
                                 wf_context_memory_kind_now(x->ctx));

    if (!sent || !y ||
        wf_rows_run(r, r->of->axis, WF_ALL_TO_ALL, x->dtype,
                    &(wf_comm_buffer){.in = sent->data,
                                      .out = y->data,
                                      .cuts = r->cuts,
                                      .out_cuts = r->out}) != WF_OK)
        return NULL;
    if (has_values(r))
        spread(r, y);
    return y;
}

static wf_tensor *to_owners(const wf_row_owners *owners, wf_tensor *x)
{
    wf_tensor *y = NULL;
    wf_rows r;

    if (wf_layout_split_dim(x->layout, owners->inner) == 1)
        x = wf_move_one(x, wf_layout_whole(wf_mesh_of(x->ctx), x->layout, owners->inner));
    if (!x)
        return NULL;
    if (wf_rows_open(&r, owners, x, false) == WF_OK)
        y = receive(&r, x);
    wf_rows_close(&r);
    return y;
}

/* ---- home ---- */

/* Packs this rank's rows of a partial sum, by parts of sequences and then by home; where the
   owners have parts, sums are taken over these, each of which keeps its tokens. */
static wf_tensor *pack_for_home(wf_rows *r, const wf_tensor *y)
{
    const size_t row = (size_t)r->d * sizeof(float);
    wf_tensor *sent = wf_rows_room(r, WF_F32, y->local[0] * r->tokens);
    char *to = sent ? sent->data : NULL;

    r->cuts[0] = 0;
    for (int q = 0; q < r->parts && sent; q++) {
        const wf_row_block part = {{0, y->local[0]}, wf_rows_tokens(r, y, q)};

        r->cuts[q + 1] = r->cuts[q] + r->d * wf_rows_count(r, part, r->taken[r->me]);
        to = wf_rows_pack(r, part, r->taken[r->me], y->data, 0, row, to);
    }
    if (sent && r->parts > 1 &&
        wf_rows_run(r, r->of->inner, WF_REDUCE_SCATTER, WF_F32,
                    &(wf_comm_buffer){.in = sent->data, .out = sent->data, .cuts = r->cuts}) !=
            WF_OK)
        return NULL;
    return sent;
}

/* Cuts the collective that brings rows home: what this rank has for each member, and what comes
   from each. */
static void cut_for_home(wf_rows *r, wf_row_range tokens)
{
    r->cuts[0] = r->out[0] = 0;
    for (int m = 0; m < r->members; m++) {
        const wf_row_block theirs = {r->home[m], tokens}, mine = {r->home[r->me], tokens};

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
    float **of = wf_blocks_take(wf_context_blocks(r->ctx), bytes), *to = z->data;
    const wf_row_range own = r->home[r->me];

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

/* Returns the sum over the owners' axes of y, whose batch is split over their axis, and tokens
   over the inner one; in a scope that is to be closed. */
static wf_tensor *sum_at_home(wf_rows *r, const wf_tensor *y)
{
    wf_mesh *mesh = wf_mesh_of(r->ctx);
    const wf_row_range tokens = wf_rows_tokens(r, y, r->part);
    const int64_t most = least(r->k, r->members);
    wf_tensor *sent = pack_for_home(r, y), *came, *z;
    const wf_layout *layout = wf_layout_whole(mesh, y->layout, r->of->axis);

    layout = wf_layout_split(mesh, layout, 0, r->of->axis);
    if (r->parts > 1)
        layout =
            wf_layout_split(mesh, wf_layout_whole(mesh, layout, r->of->inner), 1, r->of->inner);
    came = wf_rows_room(r, WF_F32,
                        most * (r->home[r->me].end - r->home[r->me].begin) *
                            (tokens.end - tokens.begin));
    z = wf_tensor_new(r->ctx, WF_F32, y->ndim, y->dim, layout,
                      wf_context_memory_kind_now(r->ctx));
    if (!sent || !came || !z)
        return NULL;
    z->rounds_to = y->rounds_to;
    cut_for_home(r, tokens);
    if (wf_rows_run(r, r->of->axis, WF_ALL_TO_ALL, WF_F32,
                    &(wf_comm_buffer){.in = sent->data,
                                      .out = came->data,
                                      .cuts = r->cuts,
                                      .out_cuts = r->out}) != WF_OK ||
        (has_values(r) && add_members(r, tokens, came->data, z) != WF_OK))
        return NULL;
    return wf_rounded(z);
}

static wf_tensor *to_home(const wf_row_owners *owners, wf_tensor *y, const wf_layout *to)
{
    wf_tensor *z = NULL;
    wf_rows r;

    if (y->dtype != WF_F32) {
        wf_fail(y->ctx, WF_EDTYPE, "rows of a partial sum are f32, these are %s",
                wf_dtype_name(y->dtype));
        return NULL;
    }
    if (wf_rows_open(&r, owners, y, true) == WF_OK)
        z = sum_at_home(&r, y);
    wf_rows_close(&r);
    return z && z->layout != to ? wf_move_one(z, to) : z;
}

wf_tensor *wf_rows_move(const wf_row_owners *owners, wf_tensor *x, const wf_layout *to)
{
    wf_context *ctx = x->ctx;
    const wf_trace_mark begun = wf_context_host_begin(ctx);
    wf_tensor *y;

    wf_scope_open(ctx);
    if (wf_tensor_is_fake(x))
        y = wf_tensor_fake(ctx, x->dtype, x->ndim, x->dim, to);
    else
        y = wf_layout_is_partial(x->layout, owners->axis) ? to_home(owners, x, to)
                                                          : to_owners(owners, x);
    y = wf_scope_return(ctx, wf_context_status(ctx) == WF_OK ? y : NULL);
    wf_context_host_end(ctx, begun, "redistribution");
    return y;
}

/* ---- the border ---- */

typedef struct rows_border {
    const wf_layout *from, *owned;
    wf_dim dim;
    int axis, inner;
} rows_border;

static unsigned axes_of(const rows_border *b)
{
    return 1u << b->axis | (b->inner >= 0 ? 1u << b->inner : 0);
}

static void rows_backward(wf_gradient *g)
{
    const rows_border *b = g->attr;
    const wf_row_owners owners = {b->axis, b->inner, g->in[1], b->dim, b->owned};

    g->din[0] = wf_rows_move(
        &owners, g->dout[0],
        wf_layout_as_on(wf_mesh_of(g->ctx), axes_of(b), b->from, g->dout[0]->layout, 0));
}

static const wf_op rows_op = {.name = "exchange_rows",
                              .signature = "",
                              .flags = WF_OP_BORDER | WF_OP_PASS,
                              .save = WF_SAVE_IN(1),
                              .backward = rows_backward};

wf_tensor *wf_border_rows(const wf_row_owners *owners, wf_tensor *x, wf_tensor *via,
                          const wf_layout *to)
{
    const rows_border b = {.from = x ? x->layout : NULL,
                           .owned = owners->layout,
                           .dim = owners->dim,
                           .axis = owners->axis,
                           .inner = owners->inner};
    wf_call call = {.op = &rows_op,
                    .n_in = 2,
                    .in = {x, owners->index},
                    .n_out = 1,
                    .attr = &b,
                    .attr_size = sizeof b};

    if (!x || !via || !owners->index || wf_context_status(x->ctx) != WF_OK)
        return NULL;
    call.ctx = x->ctx;
    call.out[0] = wf_rows_move(owners, via, to);
    return call.out[0] && wf_tape_record(&call) == WF_OK ? call.out[0] : NULL;
}

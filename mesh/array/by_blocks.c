/*
 * mesh/array/by_blocks.c - rows that move in blocks beside products: an all-gather whose rows a
 * product takes as they come, and a reduce-scatter, or all-reduce, of rows that a product makes
 * block by block (asynchronous tensor parallelism).
 *
 * A block is whole sequences, or, of one sequence, an equal part of the tokens of every rank,
 * and moves as any tensor of its rows: checks, sums in the tree and counters are those of a
 * move. A row's numbers are those of a move of all rows, as rows do not meet.
 */
#include "mesh/array/by_blocks.h"
#include "core/later.h"
#include "mesh/array/move_internal.h"
#include <string.h>

enum { MOST = 8, TOKENS = 1, NDIM = 3 };

/* The blocks of the rows [b, t] of a tensor [b, t, n]. */
typedef struct blocks {
    int n;
    bool of_tokens; /* they are tokens of one sequence, else whole sequences */
    int parts;      /* ranks of the axis, where they split tokens before or after the move */
    /* this rank's sequences, and its tokens of each where they are not split over the axis */
    int64_t sequences, tokens;
} blocks;

static int64_t local_tokens(const wf_tensor *t, const wf_layout *layout)
{
    const wf_mesh *mesh = wf_mesh_of(t->ctx);
    int64_t start = 0, local = t->dim[TOKENS].size;

    if (layout)
        wf_layout_part(mesh, layout, TOKENS, &t->dim[TOKENS], mesh->rank, &start, &local);
    return local;
}

/* Returns the layout, of those before and after a move, that splits tokens further. */
static const wf_layout *split_side(const wf_tensor *x, const wf_layout *to, int axis)
{
    return wf_layout_split_dim(x->layout, axis) == TOKENS ? x->layout : to;
}

int wf_row_blocks(double bytes, size_t least, int64_t sequences)
{
    const double most = sequences > 1 && sequences < MOST ? (double)sequences : MOST;
    const double n = bytes / (double)least;

    return n < 2 ? 1 : n < most ? (int)n : (int)most;
}

/* Finds the blocks in which a tensor moves over an axis, of at least the bytes that the context
   asks for. Members find the same, as all have as many rows. */
static blocks find_blocks(const wf_tensor *x, const wf_layout *to, int axis)
{
    const wf_mesh *mesh = wf_mesh_of(x->ctx);
    const wf_layout *split = split_side(x, to, axis), *whole = split == to ? x->layout : to;
    const bool cut = wf_layout_split_dim(split, axis) == TOKENS;
    const int64_t even = split ? wf_layout_even_parts(split, TOKENS, &x->dim[TOKENS]) : 1;
    const bool rows = x->dim[0].chunks != WF_CHUNKS_8; /* parts of a batch */
    blocks b = {.parts = cut ? wf_mesh_size(mesh, axis) : 1,
                .sequences = x->local[0],
                .tokens = local_tokens(x, whole)};
    const double bytes =
        (double)(b.sequences * b.tokens * x->local[NDIM - 1]) * (double)wf_dtype_size(x->dtype);

    b.n = rows ? wf_row_blocks(bytes, wf_context_row_block(x->ctx), b.sequences) : 1;
    b.of_tokens = b.sequences == 1;
    while (b.of_tokens && b.n > 1 &&
           (even < 1 || x->dim[TOKENS].grain > 1 || x->dim[TOKENS].size % (even * b.n)))
        b.n--;
    return b;
}

static int64_t first_sequence(const blocks *b, int i)
{
    return b->sequences * i / b->n;
}

/* Returns the rows of block i of a tensor with this many tokens of each sequence, which have
   the tokens of `parts` ranks one after the other. */
static wf_row_runs runs_of(const blocks *b, int i, int64_t tokens, int parts)
{
    const int64_t first = first_sequence(b, i);

    if (b->of_tokens)
        return (wf_row_runs){.first = tokens / parts / b->n * i,
                             .rows = tokens / parts / b->n,
                             .step = tokens / parts,
                             .parts = parts};
    return (wf_row_runs){.first = first * tokens,
                         .rows = (first_sequence(b, i + 1) - first) * tokens,
                         .step = b->sequences * tokens,
                         .parts = 1};
}

/* Fills in the dims of block i. */
static void block_dims(const blocks *b, const wf_tensor *x, int i, wf_dim dims[NDIM])
{
    memcpy(dims, x->dim, NDIM * sizeof *dims);
    dims[0].size = wf_parts_of(x, 0) * (first_sequence(b, i + 1) - first_sequence(b, i));
    if (!b->of_tokens)
        return;
    dims[0].size = wf_parts_of(x, 0);
    dims[TOKENS].size /= b->n;
}

/* Returns block i of a tensor that is there, which is split over the axis. Owner: scope. */
static wf_tensor *block_of(const blocks *b, wf_tensor *x, int i)
{
    const int64_t first = first_sequence(b, i);
    wf_dim dims[NDIM];

    if (!b->of_tokens)
        return wf_tensor_rows(x, first, first_sequence(b, i + 1) - first);
    block_dims(b, x, i, dims);
    dims[0].size *= b->n;
    return wf_tensor_rows(wf_tensor_view(x, NDIM, dims, x->layout), i, 1);
}

/* Returns the step that is the whole move of x, false where there is none, or more. */
static bool one_step(const wf_tensor *x, const wf_layout *to, wf_move_step *step)
{
    return x->ndim == NDIM && wf_mesh_of(x->ctx) &&
           wf_move_next(wf_mesh_of(x->ctx), x->layout, to, step) &&
           wf_move_layout(step, x) == to;
}

/* Makes a tensor for the result of a move. Owner: scope. */
static wf_tensor *result_of(const wf_tensor *x, wf_dtype dtype, const wf_layout *to)
{
    wf_tensor *y =
        wf_tensor_new(x->ctx, dtype, x->ndim, x->dim, to, wf_context_memory_kind_now(x->ctx));

    if (y)
        y->rounds_to = x->rounds_to;
    return y;
}

/* ---- gathers ---- */

/* Rows that are gathered. */
typedef struct gather {
    wf_later later;
    wf_tensor *x;     /* retained, as the following */
    wf_tensor *whole; /* takes the blocks; NULL: there is one, which is the result */
    wf_tensor *now;   /* the block that was asked for last */
    const wf_layout *to;
    blocks of;
    wf_move *move; /* the move of block `next`, or NULL */
    int next;
} gather;

static wf_row_runs gather_runs(const wf_later *later, int i)
{
    const blocks *of = &((const gather *)later)->of;

    return runs_of(of, i, of->tokens, of->parts);
}

/* Begins the move of the next block, where there is one. */
static wf_status begin_next(gather *g)
{
    wf_context *ctx = g->x->ctx;
    wf_tensor *block;

    if (g->next >= g->of.n)
        return WF_OK;
    wf_scope_open(ctx);
    block = g->of.n > 1 ? block_of(&g->of, g->x, g->next) : g->x;
    /* the first of several blocks is waited for at once */
    g->move =
        block ? wf_move_start(ctx, 1, &block, &g->to, g->of.n == 1 || g->next > 0, true) : NULL;
    wf_scope_close(ctx);
    return g->move ? WF_OK : wf_context_status(ctx);
}

/* Ends the move of a block; returns the block, retained, or NULL. */
static wf_tensor *end_move(wf_context *ctx, wf_move **move)
{
    wf_move *ending = *move;
    wf_tensor *block = NULL;

    *move = NULL;
    if (!ending)
        return NULL;
    wf_scope_open(ctx);
    wf_move_end(ending, &block);
    wf_tensor_retain(block);
    wf_scope_close(ctx);
    return block;
}

static wf_tensor *bring(wf_later *later, int i)
{
    gather *g = (gather *)later;
    const wf_row_runs runs = gather_runs(later, i);

    wf_tensor_release(g->now);
    g->now = end_move(g->x->ctx, &g->move);
    g->next++;
    if (!g->now || begin_next(g) != WF_OK)
        return NULL;
    if (g->whole)
        wf_rows_put(g->whole, &runs, g->now);
    return g->now;
}

static wf_tensor *gather_all(wf_later *later)
{
    gather *g = (gather *)later;

    while (g->next < g->of.n)
        if (!bring(later, g->next))
            return NULL;
    return g->whole ? g->whole : g->now;
}

static void end_gather(wf_later *later)
{
    gather *g = (gather *)later;
    wf_context *ctx = g->x->ctx;

    wf_tensor_release(end_move(ctx, &g->move));
    wf_tensor_release(g->now);
    wf_tensor_release(g->whole);
    wf_tensor_release(g->x);
    wf_blocks_give(wf_context_blocks(ctx), g, sizeof *g);
}

/* Begins a gather of these blocks. */
static wf_tensor *gather_blocks(wf_tensor *x, const wf_layout *to, blocks of)
{
    wf_context *ctx = x->ctx;
    gather *g = wf_blocks_take(wf_context_blocks(ctx), sizeof *g);
    wf_tensor *y;

    if (!g) {
        wf_fail(ctx, WF_ENOMEM, "no memory for a gather of rows");
        return NULL;
    }
    *g = (gather){.later = {of.n, gather_runs, bring, gather_all, end_gather},
                  .x = wf_tensor_retain(x),
                  .to = to,
                  .of = of};
    wf_scope_open(ctx);
    if (of.n > 1)
        g->whole = wf_tensor_retain(result_of(x, x->dtype, to));
    wf_scope_close(ctx);
    begin_next(g);
    if (wf_context_status(ctx) != WF_OK) {
        end_gather(&g->later);
        return NULL;
    }
    y = wf_later_tensor(ctx, x->dtype, x->ndim, x->dim, to, &g->later);
    if (y)
        y->rounds_to = x->rounds_to;
    return y;
}

static bool is_gather(const wf_tensor *x, const wf_layout *to, wf_move_step *step)
{
    return !wf_tensor_is_fake(x) && !x->scales && one_step(x, to, step) &&
           step->kind == WF_ALL_GATHER && step->from_dim == TOKENS;
}

wf_tensor *wf_gather_later(wf_tensor *x, const wf_layout *to)
{
    wf_move_step step;
    blocks all;

    if (wf_later_come(x) != WF_OK || !is_gather(x, to, &step))
        return NULL;
    all = find_blocks(x, to, step.axis);
    all.n = 1;
    return gather_blocks(x, to, all);
}

/* ---- products ---- */

/* Computes block i of a product. Owner: scope. */
static wf_tensor *compute_block(const blocks *b, wf_tensor *x, int i)
{
    const wf_row_runs runs = runs_of(b, i, b->tokens, b->parts);
    wf_dim dims[NDIM];
    wf_tensor *block;

    block_dims(b, x, i, dims);
    block = wf_tensor_new(x->ctx, x->dtype, NDIM, dims, x->layout,
                          wf_context_memory_kind_now(x->ctx));
    if (!block)
        return NULL;
    block->rounds_to = x->rounds_to;
    block->partial_from = x->partial_from;
    return wf_product_rows(x, &runs, block) == WF_OK ? block : NULL;
}

/* Puts the block that has been summed to its rows of y, which is made with the first. */
static wf_status put_sum(const blocks *b, const wf_tensor *x, const wf_layout *to, int i,
                         wf_move **move, wf_tensor **y)
{
    wf_tensor *sum = end_move(x->ctx, move);

    if (sum && !*y)
        *y = result_of(x, sum->dtype, to);
    if (sum && *y) {
        const wf_row_runs runs = runs_of(b, i, (*y)->local[TOKENS], 1);

        wf_rows_put(*y, &runs, sum);
    }
    wf_tensor_release(sum);
    return wf_context_status(x->ctx);
}

/* Computes a product block by block; each moves while the next one is computed. */
static wf_tensor *sum_blocks(wf_tensor *x, const wf_layout *to, const blocks *b)
{
    wf_context *ctx = x->ctx;
    wf_move *move = NULL;
    wf_tensor *y = NULL;
    wf_status status = WF_OK;

    for (int i = 0; i < b->n && status == WF_OK; i++) {
        wf_tensor *block;

        wf_scope_open(ctx);
        block = wf_tensor_retain(compute_block(b, x, i));
        wf_scope_close(ctx);
        if (block && i > 0)
            status = put_sum(b, x, to, i - 1, &move, &y);
        if (block && status == WF_OK)
            move = wf_move_start(ctx, 1, &block, &to, i + 1 < b->n, true);
        wf_tensor_release(block);
        status = wf_context_status(ctx);
    }
    if (move && status == WF_OK)
        put_sum(b, x, to, b->n - 1, &move, &y);
    wf_tensor_release(end_move(ctx, &move));
    return wf_context_status(ctx) == WF_OK ? y : NULL;
}

/* Returns whether rows are summed over an axis, and split there by tokens, or not at all. */
static bool is_sum(const wf_move_step *step)
{
    return step->reduction == WF_REDUCE_SUM &&
           (step->kind == WF_ALL_REDUCE ||
            (step->kind == WF_REDUCE_SCATTER && step->dim == TOKENS));
}

wf_tensor *wf_move_by_blocks(wf_tensor *x, const wf_layout *to)
{
    const bool makes = wf_is_product_later(x);
    wf_move_step step;
    blocks b;

    if (!wf_context_row_block(x->ctx) || (!makes && wf_later_come(x) != WF_OK))
        return NULL;
    if (makes ? !one_step(x, to, &step) || !is_sum(&step) : !is_gather(x, to, &step))
        return NULL;
    b = find_blocks(x, to, step.axis);
    if (b.n < 2)
        return NULL;
    return makes ? sum_blocks(x, to, &b) : gather_blocks(x, to, b);
}

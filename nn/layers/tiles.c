/* nn/layers/tiles.c - see the header. */
#include "nn/layers/tiles_internal.h"
#include "kernels/ops.h"
#include <string.h>

/* Returns the chunks of a vector's sum in each of n pieces; 0 where they are of unequal
   length. */
static int64_t chunks_in_piece(const wf_tensor *x, int64_t tokens)
{
    int64_t pieces = x->dim[1].size / tokens, chunks = wf_context_chunks(x->ctx);
    int64_t each = chunks > pieces ? chunks / pieces : 1;

    return tokens % each ? 0 : each;
}

wf_nn_tiles wf_nn_tiles_of(const wf_tensor *x, bool vectors, bool whole)
{
    wf_nn_tiles tiles = {.ctx = x->ctx, .pieces = 1, .tokens = 1, .split = 1};

    if (x->ndim == 3 && !whole)
        tiles.pieces = wf_tensor_pieces(x);
    if (vectors && tiles.pieces > 1)
        tiles.split = chunks_in_piece(x, x->local[1] / tiles.pieces);
    if (!tiles.split)
        tiles.pieces = tiles.split = 1;
    for (int i = 1; i < x->ndim - 1; i++)
        tiles.tokens *= x->local[i];
    tiles.tokens /= tiles.pieces;
    tiles.tile = tiles.count = x->local[0] * tiles.pieces;
    return tiles;
}

int64_t wf_nn_tiles_half(const wf_nn_tiles *tiles, int64_t n)
{
    int64_t sequences = n / tiles->pieces;

    if (sequences > 1)
        return (sequences - sequences / 2) * tiles->pieces;
    return n > 1 ? n / 2 : n;
}

void wf_nn_tiles_at_most(wf_nn_tiles *tiles, int64_t tokens)
{
    while (tiles->tile > 1 && tiles->tile * tiles->tokens > tokens)
        tiles->tile = wf_nn_tiles_half(tiles, tiles->tile);
}

int64_t wf_nn_tiles_middle(const wf_nn_tiles *tiles, int64_t from, int64_t to)
{
    return from + wf_tree_left(to - from, tiles->pieces);
}

/* Returns true where tiles are parts of a sequence. */
static bool cuts(const wf_nn_tiles *tiles)
{
    return tiles->tile < tiles->pieces;
}

wf_nn_tiled wf_nn_tiled_of(const wf_nn_tiles *tiles, wf_tensor *t)
{
    return (wf_nn_tiled){t, t && cuts(tiles) ? wf_tensor_in_pieces(t) : NULL};
}

wf_tensor *wf_nn_tile(const wf_nn_tiles *tiles, const wf_nn_tiled *t, int64_t first,
                      int64_t count)
{
    if (cuts(tiles))
        return wf_tensor_rows(t->pieces, first, count);
    return wf_tensor_rows(t->whole, first / tiles->pieces, count / tiles->pieces);
}

wf_tensor *wf_nn_tile_rows(const wf_nn_tiles *tiles, wf_tensor *tile)
{
    wf_dim dims[WF_MAX_DIMS];

    if (!tile || !cuts(tiles) || tiles->split == 1)
        return tile;
    memcpy(dims, tile->dim, sizeof dims);
    dims[0].size *= tiles->split;
    dims[1].size /= tiles->split;
    return wf_tensor_view(tile, tile->ndim, dims, tile->layout);
}

/* Makes the room that a gradient of this shape needs. */
static wf_tensor *room(wf_tensor *like, bool nothing)
{
    return nothing ? like : wf_tensor_like(like, WF_MEMORY_ACTIVATION);
}

wf_nn_vector_grad wf_nn_vector_grad_of(const wf_nn_tiles *tiles, wf_tensor *y, bool nothing)
{
    wf_nn_vector_grad g = {room(wf_bias_grad(y), nothing), NULL};

    if (y && cuts(tiles))
        g.chunks = room(wf_bias_grad(wf_nn_tile_rows(tiles, wf_tensor_in_pieces(y))), nothing);
    return g;
}

wf_tensor *wf_nn_vector_tile(const wf_nn_tiles *tiles, const wf_nn_vector_grad *g,
                             int64_t first, int64_t count)
{
    if (cuts(tiles))
        return wf_tensor_rows(g->chunks, first * tiles->split, count * tiles->split);
    return wf_tensor_rows(g->rows, first / tiles->pieces, count / tiles->pieces);
}

/* Runs an op of one operand, whose result goes into a tensor that is there. */
static void run_into(const wf_op *op, wf_tensor *x, wf_tensor *into)
{
    wf_call call = {.op = op, .n_in = 1, .in = {x}, .n_out = 1, .into = {into}};

    if (x && into)
        wf_dispatch(&call);
}

void wf_nn_bias_grad_into(wf_tensor *dy, wf_tensor *rows)
{
    run_into(&wf_op_bias_grad, dy, rows);
}

wf_tensor *wf_nn_vector_gradient(const wf_gradient *g, int i, wf_tensor *rows)
{
    return rows && g->want[i] && g->summed[i] ? wf_batch_sum(rows) : rows;
}

void wf_nn_vector_finish(const wf_nn_tiles *tiles, const wf_nn_vector_grad *g)
{
    int64_t n = tiles->pieces * tiles->split;

    for (int64_t i = 0; g->chunks && i < tiles->count / tiles->pieces; i++) {
        wf_tensor *of = wf_tensor_rows(g->chunks, i * n, n), *row, *sum;

        wf_scope_open(tiles->ctx);
        row = wf_tensor_rows(g->rows, i, 1);
        sum = of ? wf_batch_sum(
                       wf_tensor_fake(tiles->ctx, of->dtype, of->ndim, of->dim, of->layout))
                 : NULL;
        if (row && sum) /* the sum's shape, in the memory of the row */
            run_into(&wf_op_batch_sum, of,
                     wf_tensor_view(row, sum->ndim, sum->dim, sum->layout));
        wf_scope_close(tiles->ctx);
    }
}

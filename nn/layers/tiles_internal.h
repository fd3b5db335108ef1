/*
 * nn/layers/tiles_internal.h - a rank's tokens in tiles: nodes of the tree by which gradients
 * of weights are summed, whole sequences or pieces of one (wf_tensor_in_pieces). What is
 * computed tile by tile has the bits of all at once. Not installed.
 *
 * Ranges of tiles count pieces; a sequence that is never cut is one piece.
 */
#ifndef WF_NN_LAYERS_TILES_INTERNAL_H
#define WF_NN_LAYERS_TILES_INTERNAL_H

#include "core/tape.h"

typedef struct wf_nn_tiles {
    wf_context *ctx;
    int64_t pieces; /* pieces of a sequence, on this rank */
    int64_t count;  /* those of all sequences of this rank */
    int64_t tokens; /* tokens of a piece */
    int64_t tile;   /* the pieces of a tile, at most */
    int64_t split;  /* chunks of a vector's sum in a piece */
} wf_nn_tiles;

/* A tensor [batch, tokens, ..], whole and in pieces. */
typedef struct wf_nn_tiled {
    wf_tensor *whole, *pieces;
} wf_nn_tiled;

/*
 * Returns the tiles of x, one of all tokens: the caller sets `tile`, or halves it.
 *
 * vectors: gradients of vectors are summed over them, too, so that pieces need as many tokens
 * in each of a vector's chunks
 * whole: a tile is whole sequences
 */
wf_nn_tiles wf_nn_tiles_of(const wf_tensor *x, bool vectors, bool whole);

/* Returns the pieces of the larger half of a node of n pieces; n itself where it has none. */
int64_t wf_nn_tiles_half(const wf_nn_tiles *tiles, int64_t n);

/* Halves tiles until they have at most this many tokens, or one piece. */
void wf_nn_tiles_at_most(wf_nn_tiles *tiles, int64_t tokens);

/* Returns where the right half of a node of pieces [from, to) begins. */
int64_t wf_nn_tiles_middle(const wf_nn_tiles *tiles, int64_t from, int64_t to);

/* Returns a tensor of as many tokens as tiles can show; NULL stays NULL. */
wf_nn_tiled wf_nn_tiled_of(const wf_nn_tiles *tiles, wf_tensor *t);

/* Returns pieces [first, first + count), a tile: sequences, or pieces as rows. Owner: scope. */
wf_tensor *wf_nn_tile(const wf_nn_tiles *tiles, const wf_nn_tiled *t, int64_t first,
                      int64_t count);

/* Returns a view of a tile whose rows are the chunks of a vector's sum, for its gradient; a
   tile of sequences as it is. */
wf_tensor *wf_nn_tile_rows(const wf_nn_tiles *tiles, wf_tensor *tile);

/* The gradient of a vector from tiles, a row for each sequence. */
typedef struct wf_nn_vector_grad {
    wf_tensor *rows;   /* [batch, n] */
    wf_tensor *chunks; /* [batch * pieces * split, n], of cut sequences; or NULL */
} wf_nn_vector_grad;

/* Makes room for the gradient of a vector that is added to y, which may be fake; `nothing`: the
   room is fake, too. */
wf_nn_vector_grad wf_nn_vector_grad_of(const wf_nn_tiles *tiles, wf_tensor *y, bool nothing);

/* Returns the rows that the tile's gradient goes to: wf_bias_grad of wf_nn_tile_rows. */
wf_tensor *wf_nn_vector_tile(const wf_nn_tiles *tiles, const wf_nn_vector_grad *g,
                             int64_t first, int64_t count);

/* Sums the chunks of cut sequences, when all tiles are done. */
void wf_nn_vector_finish(const wf_nn_tiles *tiles, const wf_nn_vector_grad *g);

/* Returns the gradient of operand i from its rows: their sum, where that is asked for. */
wf_tensor *wf_nn_vector_gradient(const wf_gradient *g, int i, wf_tensor *rows);

/* Computes wf_bias_grad(dy) into rows. */
void wf_nn_bias_grad_into(wf_tensor *dy, wf_tensor *rows);

#endif

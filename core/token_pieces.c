/*
 * core/token_pieces.c - views of sequences in pieces: the chunks of a sum over their tokens as
 * rows of their own.
 *
 *     [batch, tokens, ..] split [batch/dp, tokens/cp]  ->  [batch * pieces, tokens / pieces,
 *     ..]
 *                                                          split [rows/(dp, cp)]
 *
 * A sum over the rows of one sequence is a tree over its chunks, each of which is one chain, as
 * in the sequence itself: so work may be cut at any node of that tree.
 */
#include "core/context_internal.h"
#include "core/distribution.h"
#include <string.h>

/* Returns the tokens of a piece: those of a chunk, where all have as many and this rank holds
   whole ones; else 0. */
static int64_t tokens_of_piece(const wf_tensor *t)
{
    int64_t chunks, tokens;

    if (!t || t->ndim < 2 || t->dim[0].chunks != WF_CHUNKS_EACH ||
        t->dim[1].chunks != WF_CHUNKS_8 || t->dim[1].grain != 1 || t->local[1] == 0)
        return 0;
    chunks = wf_token_chunks(t->dim[1].size);
    tokens = t->dim[1].size / chunks;
    if (tokens * chunks != t->dim[1].size || t->start[1] % tokens || t->local[1] % tokens)
        return 0;
    return tokens;
}

int64_t wf_tensor_pieces(const wf_tensor *t)
{
    int64_t tokens = tokens_of_piece(t);

    return tokens ? t->local[1] / tokens : 1;
}

wf_tensor *wf_tensor_in_pieces(wf_tensor *t)
{
    int64_t tokens = tokens_of_piece(t), rows;
    const wf_layout *layout = t ? t->layout : NULL;
    wf_dim dims[WF_MAX_DIMS];
    wf_tensor *view;

    if (!tokens) {
        if (t)
            wf_fail(t->ctx, WF_ESHAPE,
                    "in pieces: dim 0 is a batch, and dim 1 tokens whose chunks are of equal "
                    "length and whole on each rank (wf_tensor_pieces)");
        return NULL;
    }
    rows = t->local[0] * (t->local[1] / tokens);
    if (layout) {
        layout = t->ctx->distribution->resplit(wf_distribution_mesh(t->ctx), layout, 1, 0);
        rows *= layout ? t->ctx->distribution->parts(layout, 0) : 1;
    }
    memcpy(dims, t->dim, sizeof dims);
    dims[0] = wf_dim_batch(rows);
    dims[1] = wf_dim_width(tokens);
    view = wf_tensor_view(t, t->ndim, dims, layout);
    if (!view)
        return NULL;
    view->pieces = (int)(t->dim[1].size / tokens);
    view->start[0] = t->start[0] * view->pieces + t->start[1] / tokens;
    return view;
}

/* nn/layers/embedding.h - tables of vectors: by token, and by position. */
#ifndef WF_NN_LAYERS_EMBEDDING_H
#define WF_NN_LAYERS_EMBEDDING_H

#include "nn/module.h"

WF_BEGIN_DECLS

typedef struct wf_nn_embedding {
    wf_nn_module base;
    wf_nn_parameter *table; /* [vocabulary, width] or [positions, width] */
} wf_nn_embedding;

/**
 * wf_nn_embedding_new - makes a token embedding: a row per token
 *
 * Points: "sum" (the rows; partial where the vocabulary is split)
 */
WF_API wf_nn_embedding *wf_nn_embedding_new(wf_context *ctx, wf_dim vocabulary, wf_dim width,
                                            float deviation);

/**
 * wf_nn_position_new - makes a learned position embedding, which adds a row per position to
 * [batch, tokens, width]
 *
 * Points: "rows" (the rows of the tokens, [tokens, width]); "positions" (those of tokens with a
 * cache, [batch, tokens, width])
 */
WF_API wf_nn_embedding *wf_nn_position_new(wf_context *ctx, int64_t positions, wf_dim width,
                                           float deviation);

WF_END_DECLS

#endif

/*
 * nn/layers/mlp_tiled_internal.h - a pass of an MLP over a rank's tokens, tile by tile: between
 * the op (mlp_tiled.c) and one tile (mlp_tile.c). Not installed.
 */
#ifndef WF_NN_LAYERS_MLP_TILED_INTERNAL_H
#define WF_NN_LAYERS_MLP_TILED_INTERNAL_H

#include "nn/layers/mlp_internal.h"
#include "nn/layers/tiles_internal.h"

enum { WF_MLP_FIRST = 2 }; /* first linears, at most: gate and up */

/* The operands of the op: x, the first weights, the last one, biases of the first. */
typedef struct wf_nn_mlp_operands {
    int first; /* first linears */
    bool bias; /* they have biases */
} wf_nn_mlp_operands;

enum { WF_MLP_X, WF_MLP_WEIGHT };

static inline int wf_nn_mlp_down(const wf_nn_mlp_operands *o)
{
    return WF_MLP_WEIGHT + o->first;
}

static inline int wf_nn_mlp_bias(const wf_nn_mlp_operands *o, int i)
{
    return WF_MLP_WEIGHT + o->first + 1 + i;
}

static inline int wf_nn_mlp_operand_count(const wf_nn_mlp_operands *o)
{
    return WF_MLP_WEIGHT + o->first + 1 + (o->bias ? o->first : 0);
}

/* One pass over a rank's tokens. */
typedef struct wf_nn_mlp_pass {
    const wf_nn_mlp *mlp;
    wf_nn_mlp_operands of;
    wf_tensor *const *in; /* the op's operands */
    wf_nn_tiles tiles;
    wf_nn_tiled x, y, dy, dx;
    unsigned wants;
    wf_nn_vector_grad db[WF_MLP_FIRST];
    wf_tensor *dw_rows[WF_MLP_FIRST + 1]; /* a row per sequence, where gradients come in rows */
} wf_nn_mlp_pass;

static inline bool wf_nn_mlp_wants(const wf_nn_mlp_pass *p, int operand)
{
    return p->wants >> operand & 1;
}

/* Returns the features of a tile x that the last linear takes, [rows, tokens, hidden]. */
wf_tensor *wf_nn_mlp_tile_features(const wf_nn_mlp_pass *p, wf_tensor *x);

/* Goes back through pieces [first, first + count); dw[i]: the sums of earlier nodes, which
   become theirs and this. */
void wf_nn_mlp_tile_back(const wf_nn_mlp_pass *p, int64_t first, int64_t count, wf_tensor **dw);

#endif

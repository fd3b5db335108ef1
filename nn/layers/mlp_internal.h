/* nn/layers/mlp_internal.h - MLPs that are computed in tiles of tokens. Not installed. */
#ifndef WF_NN_LAYERS_MLP_INTERNAL_H
#define WF_NN_LAYERS_MLP_INTERNAL_H

#include "nn/layers/mlp.h"

/* Runs an MLP that has tiles on x, [batch, tokens, width] (nn/layers/mlp_tiled.c). */
wf_tensor *wf_nn_mlp_in_tiles(wf_nn_mlp *m, wf_tensor *x);

#endif

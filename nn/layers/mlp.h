/* nn/layers/mlp.h - the MLPs of transformers: with gelu, and SwiGLU. */
#ifndef WF_NN_LAYERS_MLP_H
#define WF_NN_LAYERS_MLP_H

#include "nn/layers/linear.h"

WF_BEGIN_DECLS

/** wf_nn_mlp_options - sizes, and what zeros mean. */
typedef struct wf_nn_mlp_options {
    int64_t width;  /* the input's and the output's */
    int64_t hidden; /* features in between; 0: 4 * width */
    bool bias;
    /* the standard deviation of the initial normal distributions of weights: 0 means 0.02; of
       the output, 0 means the same */
    float deviation, out_deviation;
    bool erf; /* gelu of a gelu MLP is that by erf (wf_gelu_erf) */
} wf_nn_mlp_options;

typedef struct wf_nn_mlp {
    wf_nn_module base;
    wf_nn_linear *up;            /* a gelu MLP's; NULL in a SwiGLU MLP */
    wf_nn_linear_group *gate_up; /* silu(gate(x)) * up(x); NULL in a gelu MLP */
    bool gelu_gate;              /* gelu instead of silu */
    bool erf;                    /* gelu is an op of its own after up */
    wf_nn_linear *down;
    int64_t tile; /* tokens of a tile (wf_nn_tile_mlps); 0: all at once */
    /* NULL, or what forward calls before the output is made of the features in between, where
       it has no tiles and runs once: a mixture's other experts (nn/layers/moe.c) */
    void (*between)(void *arg);
    void *between_arg;
} wf_nn_mlp;

/**
 * wf_nn_gelu_mlp_new - makes y = down(gelu(up(x))), as in GPT-2; children: up, down; tensor
 * parallel by WF_GELU_MLP_RULES
 * wf_nn_swiglu_mlp_new - makes y = down(silu(gate(x)) * up(x)), as in Llama (Shazeer 2020);
 * children: gate_up.{gate,up}, down; tensor parallel by WF_SWIGLU_MLP_RULES
 * wf_nn_geglu_mlp_new - the same with the gelu of wf_gelu instead of silu, as in Gemma
 *
 * x and y are [..., width].
 *
 * Owner:   its parent
 * Errors:  WF_EINVAL in the context (sizes below 1), WF_ENOMEM; result is then NULL
 */
WF_API wf_nn_mlp *wf_nn_gelu_mlp_new(wf_context *ctx, const wf_nn_mlp_options *options);
WF_API wf_nn_mlp *wf_nn_swiglu_mlp_new(wf_context *ctx, const wf_nn_mlp_options *options);
WF_API wf_nn_mlp *wf_nn_geglu_mlp_new(wf_context *ctx, const wf_nn_mlp_options *options);

/**
 * wf_nn_mlp_add - returns residual + mlp(x), with the bits of wf_add and wf_nn_call
 *
 * The addition is one op with the last linear's product, unless something happens to what that
 * or the MLP returns (a plan sums it over ranks, an adapter, a hook), the MLP is recomputed, or
 * it or that linear was replaced by a module of another type.
 *
 * @param residual  [..., width], as x
 */
WF_API wf_tensor *wf_nn_mlp_add(wf_nn_mlp *mlp, wf_tensor *residual, wf_tensor *x);

/**
 * wf_nn_tile_mlps - has all MLPs of a tree computed a tile of tokens at a time (tiled MLP, as
 * in Arctic Long Sequence Training), with the same bits
 *
 * Of what lies between their linears, a tile is in memory at a time, and nothing is kept for
 * backward, which recomputes it. A tile is a node of the tree by which gradients of weights are
 * summed: whole sequences, or chunks of a long one (wf_token_chunks) where these are of equal
 * length.
 *
 * @param tokens  of a tile, at most; 0: all at once
 * Errors:  WF_EINVAL: tokens below 0, or the tree has no MLP. Where it runs: WF_EINVAL (a
 *          sequence cannot be cut in tiles so small), WF_EUNSUPPORTED (dropout of an adapter of
 *          the last linear; a plan that moves what the first linears give)
 */
WF_API wf_status wf_nn_tile_mlps(wf_nn_module *root, int64_t tokens);

WF_END_DECLS

#endif

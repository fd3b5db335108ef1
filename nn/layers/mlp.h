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

WF_END_DECLS

#endif

/* nn/layers/linear.h - linear layers, alone and in groups that share their input. */
#ifndef WF_NN_LAYERS_LINEAR_H
#define WF_NN_LAYERS_LINEAR_H

#include "nn/module.h"

WF_BEGIN_DECLS

/** An adapter of a linear (LoRA, Hu et al. 2021): x W^T becomes x W^T + scale (x A^T) B^T. */
typedef struct wf_nn_adapter {
    wf_nn_parameter *a, *b; /* [rank, in] and [out, rank]; NULL: there is none */
    float scale;
    float dropout; /* the share of A's input that is dropped in training */
    int site;
} wf_nn_adapter;

typedef struct wf_nn_linear {
    wf_nn_module base;
    wf_nn_parameter *weight; /* [out, in] */
    wf_nn_parameter *bias;   /* [out], or NULL */
    bool gelu;
    wf_nn_adapter lora;
    float cap; /* caps its output; 0: none */
} wf_nn_linear;

/** Linears of one input: q, k, v or gate, up. */
typedef struct wf_nn_linear_group {
    wf_nn_module base;
    int64_t count;
    wf_nn_module **member; /* wf_nn_linear each */
} wf_nn_linear_group;

typedef struct wf_nn_linear_options {
    wf_dim in, out;
    bool bias;
    bool gelu; /* gelu(x W^T + b), in one pass with the bias */
    /* the standard deviation of the initial normal distribution of weights; biases start from
       0 */
    float deviation;
    float cap; /* y becomes cap * tanh(y / cap); 0: it stays */
} wf_nn_linear_options;

/** wf_nn_soft_cap - returns cap * tanh(x / cap), or x where the cap is 0 */
WF_API wf_tensor *wf_nn_soft_cap(wf_tensor *x, float cap);

/**
 * wf_nn_linear_new - makes a linear layer: y = x W^T + b, or its gelu
 *
 * Points: "in" (x), "sum" (x W^T, before the bias: the sum of a row-parallel plan); of an
 *         adapted one also "lora_in" (x before and after "in", the second of which A takes) and
 *         "lora" (x A^T)
 * Owner:  its parent
 */
WF_API wf_nn_linear *wf_nn_linear_new(wf_context *ctx, const wf_nn_linear_options *options);

/**
 * wf_nn_linear_group_new - makes linears that share an input and its gradient's one sum
 *
 * Up to three members are one op. More of them are several, each with a sum of its own where a
 * plan splits their outputs: x passes "in" once for each, and their gradients are added in
 * order.
 *
 * Points: "in" (x), "sum" of each member; "lora_in" as of one linear, and "lora" for all
 *         members at once
 * @param count  at least 1
 * @param name   of the members, static strings
 */
WF_API wf_nn_linear_group *wf_nn_linear_group_new(wf_context *ctx, int count,
                                                  const char *const *name,
                                                  const wf_nn_linear_options *options);

/** wf_nn_call_group - runs a group; y gets a tensor per member. */
WF_API void wf_nn_call_group(wf_nn_linear_group *group, wf_tensor *x, wf_tensor **y);

/**
 * wf_nn_linear_adapt - gives a linear an adapter: A starts from U(-1/sqrt(in), 1/sqrt(in)),
 * PEFT's kaiming_uniform with a = sqrt(5), and B from zeros
 *
 * Its product and the adapter's are one contraction (wf_linear_sum), so that a row-parallel
 * plan has one partial sum of both; a member of a group adds the adapter's to its own.
 *
 * @param like  scale, dropout and site of the adapter; its parameters are not read
 * Errors:  WF_EINVAL: a rank below 1, the linear has an adapter, or it is planned or real. The
 *          tree is to be renamed
 */
WF_API wf_status wf_nn_linear_adapt(wf_nn_linear *linear, int64_t rank,
                                    const wf_nn_adapter *like);

/** wf_nn_as_linear - returns the module, where it is a linear; else NULL. */
WF_API wf_nn_linear *wf_nn_as_linear(wf_nn_module *module);

WF_END_DECLS

#endif

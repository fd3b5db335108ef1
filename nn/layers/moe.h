/* nn/layers/moe.h - a mixture of SwiGLU experts, instead of an MLP. */
#ifndef WF_NN_LAYERS_MOE_H
#define WF_NN_LAYERS_MOE_H

#include "kernels/moe.h"
#include "nn/layers/linear.h"
#include "nn/layers/mlp.h"

WF_BEGIN_DECLS

/** wf_nn_moe_options - sizes, and what zeros mean. */
typedef struct wf_nn_moe_options {
    int64_t width;    /* the input's and the output's */
    int64_t experts;  /* their number */
    int64_t hidden;   /* features of each */
    int64_t shared;   /* features of an expert that all tokens take; 0: there is none */
    bool shared_gate; /* its output is multiplied with sigmoid(w x), a number a token */
    /* the choice, and losses: "balance", "router_z". The counts that route.global_weight reads
       are a parameter, which each step sets */
    wf_route_options route;
    /* the weight of a token's expert multiplies what it takes, not what it gives (Llama 4); of
       one expert a token */
    bool weigh_input;
    /* a bias chooses experts with their scores; each step adds +-bias_step to it, towards equal
       loads. 0: there is none */
    float bias_step;
    int64_t capacity; /* tokens of a sequence that an expert takes at most; 0: all */
    float deviation, out_deviation; /* as in wf_nn_mlp_options */
} wf_nn_moe_options;

typedef struct wf_nn_moe {
    wf_nn_module base;
    wf_nn_parameter *router;           /* [experts, width] */
    wf_nn_parameter *gate, *up, *down; /* [experts, hidden, width], `down` transposed */
    wf_nn_parameter *bias;             /* [experts], added to scores that choose; or NULL */
    wf_nn_parameter *counts;           /* [experts], of route.global_weight; or NULL */
    wf_nn_mlp *shared;                 /* NULL: there is none */
    wf_nn_parameter *shared_gate;      /* [1, width]; or NULL */
    wf_route_options route;
    bool weigh_input;
    int64_t capacity; /* as in wf_nn_moe_options */
    /* adapters of experts, or NULL: [experts, rank, width], [experts, hidden, rank] twice,
       [experts, rank, hidden] and [experts, width, rank] */
    wf_nn_parameter *lora_gate_up_a, *lora_gate_b, *lora_up_b, *lora_down_a, *lora_down_b;
    float lora_scale;
    float buffer; /* as in wf_experts_bound (wf_nn_buffer_experts) */
} wf_nn_moe;

/**
 * wf_nn_moe_new - makes y = sum over the k chosen experts of weight * down(silu(gate(x)) *
 * up(x)), and that of the shared expert, which is added last (Shazeer et al. 2017; Dai et al.
 * 2024)
 *
 * No token is dropped, but for a capacity: an expert then takes the first tokens of a sequence
 * that choose it, of each document where documents are set (nn/documents.h), after those that a
 * cache has (nn/cache.h); losses and biases count all choices. Expert parallel by WF_MOE_RULES:
 * experts are split, tokens gathered, and the sum over experts is the tree of one rank. Every
 * rank has the router whole.
 *
 * Points: "in" (x), "router" (x before and after "in", the second of which the router takes),
 *         "weights" (of the chosen experts, or tokens times these), "dispatch" (x before and
 *         after "in", the second of which experts take, with weights and indices), "experts"
 *         (these three, and x before "in"; a hook that computes experts makes the first the sum
 *         over them, the second NULL), "sum" (over experts, with the same indices), "arrived"
 *         and "summed" (results of "dispatch" and "sum", where tensors may still be under way,
 *         while the shared expert computes), "gate" (of the shared expert, if it has one: whole
 *         tokens, to be split as the residual stream)
 * Owner:  its parent
 * Errors: WF_EINVAL in the context (sizes below 1, a k that experts have not, weigh_input with
 *         another k than 1), WF_ENOMEM;
 *         result is then NULL
 */
WF_API wf_nn_moe *wf_nn_moe_new(wf_context *ctx, const wf_nn_moe_options *options);

/**
 * wf_nn_moe_adapt - gives each expert adapters of its matrices (wf_experts_adapted): A start
 * from U(-1/sqrt(in), 1/sqrt(in)), B from zeros
 *
 * Experts are frozen then; gate and up share their A, as in PEFT's adapters of gate_up_proj.
 *
 * @param like  the scale; its parameters and site are not read
 * Errors:  WF_EINVAL: a rank below 1, a dropout, which x A has not where experts have it, they
 *          have adapters, or are planned or real. The tree is to be renamed
 */
WF_API wf_status wf_nn_moe_adapt(wf_nn_moe *moe, int64_t rank, const wf_nn_adapter *like);

/**
 * wf_nn_buffer_experts - has all mixtures of a tree compute the rows of their experts in room
 * for `factor` times those that a rank has where loads are equal, in waves of whole sequences
 * where there are more (wf_experts), and exchange tokens so with ranks of other experts
 * (wf_experts_wave); 0: room for the rows of any choice
 *
 * Errors:  WF_EINVAL: a factor below 0, a tree without a mixture
 */
WF_API wf_status wf_nn_buffer_experts(wf_nn_module *root, double factor);

/** wf_nn_moe_bound - returns how many rows a mixture's experts have at most, of a forward pass
 * that runs now: with a capacity those that it leaves of a sequence, but for documents, each of
 * which counts for itself. For hooks that compute experts. */
WF_API wf_experts_bound wf_nn_moe_bound(const wf_nn_moe *moe);

/** wf_nn_as_moe - returns the module, where it is a mixture; else NULL. */
WF_API wf_nn_moe *wf_nn_as_moe(wf_nn_module *module);

WF_END_DECLS

#endif

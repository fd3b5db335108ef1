/*
 * nn/models/gpt/gpt.h - decoder-only transformers from the same modules: a model is a set of
 * properties, and a family of models (GPT-2, Llama, Qwen 3, ..) a row of
 * nn/models/gpt/families.def, which names some of them.
 *
 * The chain (nn/chain.h) is embedding, position and dropout as one step, the blocks, and the
 * last norm.
 *
 * Paths: embed, position (learned ones), block.N.{norm1, attn.{qkv.{q,k,v}, q_norm, k_norm,
 * out}, post1, norm2, mlp, post2}, norm, head, loss; mlp is {up, down}, or with a gate
 * {gate_up.{gate,up}, down}; a mixture has instead moe.{router, gate, up, down, shared,
 * shared_gate}; post1 and post2 are norms after branches that have one before them.
 */
#ifndef WF_NN_MODELS_GPT_GPT_H
#define WF_NN_MODELS_GPT_GPT_H

#include "nn/chain.h"
#include "nn/layers/attention.h"
#include "nn/layers/embedding.h"
#include "nn/layers/loss.h"
#include "nn/layers/mlp.h"
#include "nn/layers/moe.h"
#include "nn/layers/norm.h"

WF_BEGIN_DECLS

/* Properties of a model, whatever its family is called; zeros are those of a Llama. */
typedef enum wf_nn_norm_kind {
    WF_NN_RMSNORM,
    WF_NN_LAYERNORM,
    WF_NN_LAYERNORM_UNBIASED
} wf_nn_norm_kind;
/* Norms of what a branch takes, of what it gives, or of both. */
typedef enum wf_nn_norm_order {
    WF_NN_PRE_NORM,
    WF_NN_POST_NORM,
    WF_NN_BOTH_NORMS
} wf_nn_norm_order;
typedef enum wf_nn_position_kind { WF_NN_ROPE, WF_NN_LEARNED_POSITIONS } wf_nn_position_kind;
typedef enum wf_nn_mlp_kind { WF_NN_SWIGLU, WF_NN_GELU, WF_NN_GEGLU } wf_nn_mlp_kind;

/* A router's weights: a softmax over all experts, over the chosen ones, or sigmoids. */
typedef enum wf_nn_router_kind {
    WF_NN_SOFTMAX,
    WF_NN_SOFTMAX_CHOSEN,
    WF_NN_SIGMOID
} wf_nn_router_kind;

enum { WF_NN_SQRT_WIDTH = -1 }; /* a scale that is the root of the width */

enum { WF_NN_LISTED_BLOCKS = 512 }; /* most blocks of which a list can name some */

/** wf_nn_blocks - a list of blocks: a bit for each (wf_nn_block_list) */
typedef struct wf_nn_blocks {
    uint64_t bits[WF_NN_LISTED_BLOCKS / 64];
} wf_nn_blocks;

typedef struct wf_nn_gpt_config {
    int64_t vocabulary, positions, layers, heads, kv_heads, width, ffn;
    int64_t head_dim; /* 0: width / heads */
    float dropout;    /* for embeddings, residuals and attention weights */
    float eps;        /* the norms'; 0: 1e-5 */
    wf_nn_norm_kind norm;
    wf_nn_norm_order order; /* norms before attention and MLP, or after them */
    bool gain_offset;       /* WF_NN_RMSNORM; its gains are 1 + the parameter */
    wf_nn_position_kind position;
    double rope_base;             /* WF_NN_ROPE; 0: 10000 */
    wf_rope_scaling rope_scaling; /* WF_NN_ROPE; zeros: none */
    /* WF_ROPE_LONG, whose factor is positions / original ones where it is 0 */
    wf_rope_factors rope_factors;
    /* WF_NN_ROPE; the share of a head's features, its first ones, that rotate; 0: 1 */
    double rotary;
    int64_t rope_skip; /* WF_NN_ROPE; every n-th block has no positions; 0: all have */
    /* sliding windows: tokens see the last `window` of those before them and themselves alone,
       0: all; blocks before window_first, and every window_skip-th one, have none; 0: all have.
       Where any block is in window_blocks, those that are have a window and all others none */
    int64_t window, window_first, window_skip;
    wf_nn_blocks window_blocks;
    wf_nn_mlp_kind mlp;
    /* linears that have biases: of queries, keys and values, of attention's output, of the
       MLP */
    bool qkv_bias, out_bias, mlp_bias;
    bool qk_norm;      /* an RMSNorm of every head's queries and keys before they rotate */
    bool qk_norm_wide; /* instead, one of all heads' queries, and one of all keys */
    bool tied;         /* the head's weight is the embedding's table */
    /* mixtures of SwiGLU experts instead of MLPs: how many experts (0: MLPs), how many a token
       chooses, features of each (0: ffn), and of one that all tokens take (0: none) */
    int64_t experts, top_k, expert_ffn, shared_ffn;
    wf_nn_blocks dense_blocks; /* those that have an MLP all the same */
    wf_nn_router_kind router;
    bool router_normalised; /* weights are scores divided by the sum of the chosen ones */
    double router_factor;   /* multiplies weights; 0: 1 */
    bool weigh_input;       /* weights multiply what experts take; top_k is 1 */
    bool shared_gate;       /* the shared expert has a gate, a number a token */
    /* balance of experts (nn/layers/moe.h): a bias that chooses with scores and its step,
       weights of losses, of each sequence or of the global batch; 0: without */
    double bias_step, sequence_weight, global_weight, z_weight;
    int64_t expert_capacity; /* tokens of a sequence that an expert takes at most; 0: all */
    /* factors of the embedding, and of branches that join the residual stream; 0: 1; the first
       may be WF_NN_SQRT_WIDTH */
    double embedding_scale, residual_scale;
    double attention_scale; /* factor of scores; 0: 1 / sqrt(head_dim) */
    double logit_divisor;   /* divisor of logits; 0: 1 */
    /* WF_NN_ROPE: pairs are features 2i and 2i + 1 of a head, not i and i + half of those that
       rotate; the base of blocks with a window, which are then not scaled, 0: as all others */
    bool rope_neighbours;
    double window_rope_base;
    /* attention and MLP take the same and are both added to it, with one norm for both or one
       for each */
    bool parallel, shared_norm;
    bool head_bias; /* the head has a bias */
    /* soft caps of scores of attention and of logits, cap * tanh(x / cap); 0: none */
    double score_cap, logit_cap;
    bool sinks;         /* attention has sinks (nn/layers/attention.h) */
    bool gelu_erf;      /* gelu of WF_NN_GELU by erf, not its approximation by tanh */
    bool window_chunks; /* tokens see their own of the chunks of `window` tokens instead */
    /* queries and keys of heads that rotate are divided by their root mean square afterwards */
    bool qk_l2_norm;
    /* blocks without positions (rope_skip): queries at position p are multiplied with 1 +
       temperature * ln(1 + floor((p + 1) / temperature_every)); 0: 1 */
    double temperature, temperature_every;
} wf_nn_gpt_config;

/* GPT-2's properties, for an initializer: wf_nn_gpt_config config = {WF_NN_GPT2, .width = 768,
   ..}. */
#define WF_NN_GPT2                                                                             \
    .norm = WF_NN_LAYERNORM, .position = WF_NN_LEARNED_POSITIONS, .mlp = WF_NN_GELU,           \
    .qkv_bias = true, .out_bias = true, .mlp_bias = true, .tied = true

typedef struct wf_nn_block {
    wf_nn_module base;
    wf_nn_norm *norm1, *norm2; /* the second is NULL where both branches share the first */
    wf_nn_norm *post1, *post2; /* WF_NN_BOTH_NORMS, or NULL */
    wf_nn_attention *attn;
    wf_nn_mlp *mlp; /* NULL in a mixture of experts */
    wf_nn_moe *moe; /* or NULL */
    wf_nn_norm_order order;
    bool parallel;
    float dropout, scale; /* scale: of branches that join the residual stream */
    int site;
} wf_nn_block;

typedef struct wf_nn_gpt {
    wf_nn_module base;
    wf_nn_gpt_config config;
    wf_nn_embedding *embed, *position;
    int64_t layers;
    wf_nn_module **block;
    wf_nn_norm *norm;
    wf_nn_linear *head; /* tied: its weight is embed's table */
    wf_nn_loss *loss;
} wf_nn_gpt;

/** wf_nn_gpt_family - returns the properties of a family of nn/models/gpt/families.def, without
 * sizes; NULL: unknown name. Owner: static. */
WF_API const wf_nn_gpt_config *wf_nn_gpt_family(const char *name);

/** wf_nn_gpt_complete - returns the config with defaults filled in for zeros, and zeros for
 * unused fields: models that compute the same have equal results. */
WF_API wf_nn_gpt_config wf_nn_gpt_complete(const wf_nn_gpt_config *config);

/** wf_nn_block_listed - returns true where a list has a block; wf_nn_block_list - adds it;
 * wf_nn_blocks_count - counts its blocks. Numbers beyond WF_NN_LISTED_BLOCKS are never
 * listed. */
WF_API bool wf_nn_block_listed(const wf_nn_blocks *list, int64_t number);
WF_API void wf_nn_block_list(wf_nn_blocks *list, int64_t number);
WF_API int64_t wf_nn_blocks_count(const wf_nn_blocks *list);

/** wf_nn_gpt_is_mixture - returns true where block `number` of a config has experts. */
WF_API bool wf_nn_gpt_is_mixture(const wf_nn_gpt_config *config, int64_t number);

/** wf_nn_gpt_window - returns the sliding window of block `number` of a config, in tokens; 0:
 * none. */
WF_API int64_t wf_nn_gpt_window(const wf_nn_gpt_config *config, int64_t number);

/** wf_nn_gpt_rotary - returns the features of a head that rotate, rounded down. */
WF_API int64_t wf_nn_gpt_rotary(const wf_nn_gpt_config *config);

/** wf_nn_gpt_rope_wrong - describes an error in the RoPE of a config; NULL: none. Owner: static
 * string. */
WF_API const char *wf_nn_gpt_rope_wrong(const wf_nn_gpt_config *config);

/** wf_nn_gpt_alike - returns true where two configs have the same properties, whatever their
 * sizes and numbers. */
WF_API bool wf_nn_gpt_alike(const wf_nn_gpt_config *a, const wf_nn_gpt_config *b);

/** wf_nn_gpt_same - returns true where two configs have the same of everything but dropout. */
WF_API bool wf_nn_gpt_same(const wf_nn_gpt_config *a, const wf_nn_gpt_config *b);

/** wf_nn_gpt_difference - describes the first property in which two configs differ, and counts
 * them; NULL: none (wf_nn_gpt_same). */
WF_API const char *wf_nn_gpt_difference(const wf_nn_gpt_config *a, const wf_nn_gpt_config *b,
                                        int *count);

/**
 * wf_nn_gpt_new - makes a model on the fake device, named.
 *
 * Weights start from N(0, 0.02), those that add to the residual stream from N(0, 0.02 / sqrt(2
 * layers)), as GPT-2's do (Radford et al. 2019).
 *
 * Owner:   caller; wf_nn_free(&model->base)
 * Errors:  WF_EINVAL (heads that do not divide the width, groups that do not divide the heads,
 *          an odd head size with RoPE, numbers of a window below 0), WF_ENOMEM; result is then
 *          NULL
 */
WF_API wf_nn_gpt *wf_nn_gpt_new(wf_context *ctx, const wf_nn_gpt_config *config);

/** wf_nn_gpt_sites - returns the first dropout site that the model does not use. */
WF_API int wf_nn_gpt_sites(const wf_nn_gpt *model);

/**
 * wf_nn_block_new - makes a transformer block: x + attn(norm1(x)), then the same of the mlp
 *
 * @param config  of the model that it is for
 * @param number  of the block, from 0: its dropout sites follow from it
 * Owner:   its parent
 * Errors:  WF_EINVAL as in wf_nn_gpt_new, WF_ENOMEM in the context
 */
WF_API wf_nn_block *wf_nn_block_new(wf_context *ctx, const wf_nn_gpt_config *config,
                                    int64_t number);

/**
 * wf_nn_gpt_logits - computes logits [batch, tokens, vocabulary] from i32 tokens [batch, tokens
 * <= positions]
 *
 * Collective: where a plan has borders
 */
WF_API wf_tensor *wf_nn_gpt_logits(wf_nn_gpt *model, wf_tensor *tokens);

/**
 * wf_nn_gpt_features - computes the input of the head, [batch, tokens, width], from tokens as
 * wf_nn_gpt_logits takes them: for a prompt, whose KV cache alone is wanted
 *
 * Collective: where a plan has borders
 */
WF_API wf_tensor *wf_nn_gpt_features(wf_nn_gpt *model, wf_tensor *tokens);

/**
 * wf_nn_gpt_loss - computes the cross-entropy of every token, [batch, tokens]; targets like
 * tokens
 *
 * @param weight  factor of every token's loss in the sum that is differentiated: see
 *                wf_nn_linear_cross_entropy, which takes the logits in chunks.
 *                wf_nn_cross_entropy(model->loss, logits, targets) has the same bits and takes
 *                any gradient
 * Collective:  where a plan has borders
 */
WF_API wf_tensor *wf_nn_gpt_loss(wf_nn_gpt *model, wf_tensor *tokens, wf_tensor *targets,
                                 float weight);

/**
 * wf_nn_gpt_head_loss - computes the end of wf_nn_gpt_loss, after the last step of the chain:
 * the loss of features
 *
 * Where a stage defers its head until backward (its gradients are made in forward), the caller
 * runs this at its beginning: the same ops in the same order.
 *
 * @param features  [batch, tokens, width], of the last step
 * Collective:      where a plan has borders
 */
WF_API wf_tensor *wf_nn_gpt_head_loss(wf_nn_gpt *model, wf_tensor *features, wf_tensor *targets,
                                      float weight);

WF_END_DECLS

#endif

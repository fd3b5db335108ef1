/*
 * nn/models/gpt/gpt.h - decoder-only transformers: GPT-2 and Llama from the same modules.
 *
 * The chain (nn/chain.h) is embedding, position and dropout as one step, the blocks, and the last norm.
 *
 * Paths: embed, position (gpt2), block.N.{norm1, attn.{qkv.{q,k,v}, q_norm, k_norm, out}, norm2, mlp}, norm,
 * head, loss; mlp is {up, down} for gpt2 and {gate_up.{gate,up}, down} for llama.
 */
#ifndef WF_NN_MODELS_GPT_GPT_H
#define WF_NN_MODELS_GPT_GPT_H

#include "nn/chain.h"
#include "nn/layers/attention.h"
#include "nn/layers/embedding.h"
#include "nn/layers/loss.h"
#include "nn/layers/mlp.h"
#include "nn/layers/norm.h"

WF_BEGIN_DECLS

typedef enum wf_nn_arch { WF_NN_GPT2, WF_NN_LLAMA } wf_nn_arch;

typedef struct wf_nn_gpt_config {
    wf_nn_arch arch; /* gpt2: learned positions, LayerNorm, GELU, biases, tied head;
                        llama: RoPE, RMSNorm, SwiGLU, no biases, a head of its own unless tied */
    int64_t vocabulary, positions, layers, heads, kv_heads, width, ffn;
    float dropout;    /* for embeddings, residuals and attention weights */
    float eps;        /* the norms'; 0 means 1e-5 */
    double rope_base; /* llama; 0 means 10000 */
    bool tied; /* llama: the head's weight is the embedding's table, as gpt2's always is */
    wf_rope_scaling rope_scaling; /* llama; zeros: none */
    int64_t head_dim;             /* 0: width / heads */
    bool qkv_bias; /* llama: queries, keys and values have biases, as gpt2's always do */
    bool
        qk_norm; /* an RMSNorm of every head's queries and keys before they turn, as Qwen 3 has it */
} wf_nn_gpt_config;

typedef struct wf_nn_block {
    wf_nn_module base;
    wf_nn_norm *norm1, *norm2;
    wf_nn_attention *attn;
    wf_nn_mlp *mlp;
    float dropout;
    int site;
} wf_nn_block;

typedef struct wf_nn_gpt {
    wf_nn_module base;
    wf_nn_gpt_config config;
    wf_nn_embedding *embed, *position;
    int64_t layers;
    wf_nn_module **block;
    wf_nn_norm *norm;
    wf_nn_linear *head; /* gpt2, and tied: its weight is embed's table */
    wf_nn_loss *loss;
} wf_nn_gpt;

/**
 * wf_nn_gpt_new - a model on the fake device, named.
 *
 * Weights start from N(0, 0.02), those that add to the residual stream from N(0, 0.02 / sqrt(2
 * layers)), as GPT-2's do (Radford et al. 2019).
 *
 * Owner:   caller; wf_nn_free(&model->base)
 * Errors:  WF_EINVAL (heads that do not divide the width, groups that do not divide the heads,
 *          an odd head size with RoPE), WF_ENOMEM; result is then NULL
 */
WF_API wf_nn_gpt *wf_nn_gpt_new(wf_context *ctx, const wf_nn_gpt_config *config);

/**
 * wf_nn_block_new - x + attn(norm1(x)), and the same of the mlp
 *
 * @param config  of the model that it is for: sizes, arch and dropout
 * @param number  of the block, from 0: its dropout sites follow from it
 * Owner:   its parent
 * Errors:  WF_EINVAL as in wf_nn_gpt_new, WF_ENOMEM in the context
 */
WF_API wf_nn_block *wf_nn_block_new(wf_context *ctx, const wf_nn_gpt_config *config,
                                    int64_t number);

/**
 * wf_nn_gpt_logits - [batch, tokens, vocabulary] from i32 tokens [batch, tokens <= positions]
 *
 * Collective: where a plan has borders
 */
WF_API wf_tensor *wf_nn_gpt_logits(wf_nn_gpt *model, wf_tensor *tokens);

/**
 * wf_nn_gpt_features - what the head takes, [batch, tokens, width], from tokens as wf_nn_gpt_logits takes them:
 * for a prompt, of which a key-value cache is all that is wanted
 *
 * Collective: where a plan has borders
 */
WF_API wf_tensor *wf_nn_gpt_features(wf_nn_gpt *model, wf_tensor *tokens);

/**
 * wf_nn_gpt_loss - the cross-entropy of every token, [batch, tokens]; targets like tokens
 *
 * @param weight  of every token's loss in what is differentiated: see wf_nn_linear_cross_entropy,
 *                which takes the logits in chunks. wf_nn_cross_entropy(model->loss, logits,
 *                targets) has the same bits and takes any gradient
 * Collective:  where a plan has borders
 */
WF_API wf_tensor *wf_nn_gpt_loss(wf_nn_gpt *model, wf_tensor *tokens, wf_tensor *targets,
                                 float weight);

/**
 * wf_nn_gpt_head_loss - the end of wf_nn_gpt_loss, behind the last step of the chain: the loss of
 * features
 *
 * Where a stage holds back its head until backward (its gradients are made in forward), the caller
 * runs this at the begin of it: the same ops in the same order.
 *
 * @param features  [batch, tokens, width], what the last step carries
 * Collective:      where a plan has borders
 */
WF_API wf_tensor *wf_nn_gpt_head_loss(wf_nn_gpt *model, wf_tensor *features, wf_tensor *targets,
                                      float weight);

WF_END_DECLS

#endif

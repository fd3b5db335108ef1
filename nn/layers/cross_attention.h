/* nn/layers/cross_attention.h - attention whose keys and values are of other tokens: of an
   encoder's output, a prompt, or an image. */
#ifndef WF_NN_LAYERS_CROSS_ATTENTION_H
#define WF_NN_LAYERS_CROSS_ATTENTION_H

#include "nn/layers/linear.h"

WF_BEGIN_DECLS

/** wf_nn_cross_attention_options - width and heads have no default; zeros elsewhere give no
 * biases and no dropout. */
typedef struct wf_nn_cross_attention_options {
    int64_t width;        /* the input's and the output's */
    int64_t memory_width; /* the memory's; 0: width */
    int64_t heads;        /* query heads */
    int64_t kv_heads;     /* key-value heads, each for heads / kv_heads queries; 0: heads */
    int64_t head_dim;     /* 0: width / heads */
    bool qkv_bias, out_bias;
    float dropout; /* the probability for attention weights */
    int site;      /* number of that dropout, see wf_dropout */
    /* the standard deviation of the initial normal distributions of weights: of queries, keys
       and values, 0 means 0.02; of the output, 0 means the same */
    float deviation, out_deviation;
} wf_nn_cross_attention_options;

typedef struct wf_nn_cross_attention {
    wf_nn_module base;
    wf_nn_linear *q;
    wf_nn_linear_group *kv;
    wf_nn_linear *out;
    int64_t head_dim;
    float dropout;
    int site;
} wf_nn_cross_attention;

/**
 * wf_nn_cross_attention_new - makes cross attention: y = out(softmax(q k^T / sqrt(head_dim))
 * v), q linear in x, k and v in a memory
 *
 * Children: q, kv.{k,v}, out; tensor parallel by WF_CROSS_ATTENTION_RULES.
 *
 * Points:  "qkv" (queries, keys and values, before they meet)
 * Owner:   its parent
 * Errors:  WF_EINVAL in the context (sizes below 1, heads that do not divide the width,
 *          kv_heads that do not divide the heads, dropout outside of [0, 1)), WF_ENOMEM; result
 *          is then NULL
 */
WF_API wf_nn_cross_attention *wf_nn_cross_attention_new(
    wf_context *ctx, const wf_nn_cross_attention_options *options);

/**
 * wf_nn_call_cross - runs cross attention
 *
 * @param x       [batch, tokens, width]
 * @param memory  [batch, keys, memory_width]; with sequence parallelism split like x, by keys
 * @param mask    [batch, keys], whole in keys: keys whose number is 0 are padding; NULL: none
 * Returns:     [batch, tokens, width]. Owner: scope
 * Gradient:    to x, memory and the weights
 */
WF_API wf_tensor *wf_nn_call_cross(wf_nn_cross_attention *m, wf_tensor *x, wf_tensor *memory,
                                   wf_tensor *mask);

WF_END_DECLS

#endif

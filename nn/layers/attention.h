/* nn/layers/attention.h - attention with its projections: of multiple heads, or of heads in
   groups. */
#ifndef WF_NN_LAYERS_ATTENTION_H
#define WF_NN_LAYERS_ATTENTION_H

#include "kernels/ops.h"
#include "nn/layers/linear.h"
#include "nn/layers/norm.h"

WF_BEGIN_DECLS

/** wf_nn_attention_options - width and heads have no default; zeros elsewhere give attention of
 * every token to all of its sequence, without biases, positions and dropout. */
typedef struct wf_nn_attention_options {
    int64_t width;    /* the input's and the output's */
    int64_t heads;    /* query heads */
    int64_t kv_heads; /* key-value heads, each for heads / kv_heads queries; 0: heads */
    int64_t head_dim; /* 0: width / heads */
    bool causal;      /* a token sees those before it and itself alone */
    /* the most tokens that it sees, the last ones, where it is causal; 0: all */
    int64_t window;
    bool qkv_bias,
        out_bias; /* biases in the projections of queries, keys and values; in the output's */
    double rope_base;             /* RoPE's base, 10000 for instance; 0: no rotation */
    wf_rope_scaling rope_scaling; /* zeros: none */
    wf_rope_factors rope_factors; /* WF_ROPE_LONG */
    int64_t rope_features;        /* the first features of each head, which rotate; 0: all */
    /* RMSNorm of each head's queries and keys before they rotate (Dehghani et al. 2023): the
       epsilon added to the mean square; 0: none */
    float qk_norm;
    bool qk_norm_wide; /* instead, one norm of all heads' queries and one of all keys */
    double scale;      /* factor of scores; 0: 1 / sqrt(head_dim) */
    float dropout;     /* the probability for attention weights */
    int site;          /* number of that dropout, see wf_dropout */
    /* the standard deviation of the initial normal distributions of weights: of queries, keys
       and values, 0 means 0.02; of the output, 0 means the same */
    float deviation, out_deviation;
    bool rope_neighbours; /* pairs are features 2i and 2i + 1, not i and i + half */
    float score_cap;      /* scores s become cap * tanh(s / cap); 0: they stay */
    bool qk_norm_offset;  /* gains of qk_norm are 1 + the parameter */
    bool sinks;           /* a learnt logit of each query head, its sink, is in its softmax */
    bool window_chunks;   /* it sees its own of the chunks of `window` tokens instead */
    /* each head's queries and keys are divided by their root mean square after they rotate,
       with no gains (Llama 4): the epsilon added to the mean square; 0: none. With RoPE */
    float qk_l2_norm;
    /* queries at position p are multiplied with 1 + temperature * ln(1 + floor((p + 1) /
       temperature_every)); 0: 1. Without RoPE */
    double temperature, temperature_every;
} wf_nn_attention_options;

typedef struct wf_nn_attention {
    wf_nn_module base;
    wf_nn_linear_group *qkv;
    wf_nn_norm *q_norm,
        *k_norm; /* gains [head_dim], the same for all heads, or [heads * head_dim]; or NULL */
    bool wide;   /* the second of these */
    wf_nn_linear *out;
    wf_nn_parameter *sinks; /* [heads], zeros at first; or NULL */
    int64_t head_dim;
    /* base 0: no rotation; WF_ROPE_TEMPERATURE: of queries alone */
    wf_rope_options rope;
    wf_rope_factors rope_factors;
    float score_cap;   /* 0: none */
    float query_scale; /* beside the 1 / sqrt(head_dim) of wf_attention */
    bool causal;
    int64_t window; /* 0: none */
    bool chunks;    /* it is the length of chunks */
    float l2_norm;  /* 0: none */
    float dropout;
    int site;
} wf_nn_attention;

/**
 * wf_nn_attention_new - makes attention: y = out(softmax(q k^T / sqrt(head_dim)) v), q, k and v
 * linear in x
 *
 * x and y are [batch, tokens, width]. Children: qkv.{q,k,v}, q_norm and k_norm where there is a
 * norm, out; tensor parallel by WF_ATTENTION_RULES.
 *
 * Points:  "heads" (queries, keys and values before their heads are split, and positions where
 *          there are some); "qkv" (before they meet); "sinks" (queries and sinks, where there
 *          are some); "attend" (queries, keys, values and sinks: what attends there leaves its
 *          result in the first and NULL in keys and values); "tokens" (what attention
 *          gives, before the projection); where a norm is of all heads,
 *          "in" and "out" of q_norm and k_norm (before and after it: WF_WIDE_NORM)
 * Owner:   its parent
 * Errors:  WF_EINVAL in the context (sizes below 1, heads that do not divide the width,
 *          kv_heads that do not divide the heads, a window below 0 or without causal, a
 *          temperature with RoPE or qk_l2_norm without, a cap
 *          below 0, an odd number of features that rotate or more than a head has, dropout
 *          outside of [0, 1)), WF_ENOMEM; result is then NULL
 */
WF_API wf_nn_attention *wf_nn_attention_new(wf_context *ctx,
                                            const wf_nn_attention_options *options);

/** wf_nn_attention_options_now - returns the options with which it attends now: its own, and
 * the documents that are set; not its sinks, which are a use of their own. */
WF_API wf_attention_options wf_nn_attention_options_now(const wf_nn_attention *m);

WF_END_DECLS

#endif

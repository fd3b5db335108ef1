/*
 * kernels/ops.h - the ops that return tensors (those that work in place are in
 * kernels/parameters.h). Each returns a new tensor that belongs to the innermost scope, never
 * communicates, and gives NULL (the reason is in the context) where an operand is NULL, the
 * shapes or the layouts do not fit, or memory is short. "Layout" is the op's signature
 * (core/op.h); WF_ESHAPE, WF_ELAYOUT, WF_ENOMEM are possible everywhere.
 */
#ifndef WF_KERNELS_OPS_H
#define WF_KERNELS_OPS_H

#include "core/op.h"
#include "kernels/cross_entropy.h"
#include "kernels/rope_scaling.h"

WF_BEGIN_DECLS

#define OP(name, signature, flags) extern WF_API const wf_op wf_op_##name;
#include "kernels/ops.def"
#undef OP

/** wf_op_count, wf_op_at, wf_op_find - look up the rows of ops.def (ids from 1); NULL if
 * none. */
WF_API int wf_op_count(void);
WF_API const wf_op *wf_op_at(int id);
WF_API const wf_op *wf_op_find(const char *name);

/**
 * wf_add - returns a + b; wf_sub - a - b; wf_mul - a * b; wf_scale - factor * x
 *
 * @param a, b  of one shape, or of shapes that wf_broadcast_all makes one (kernels/reshape.h)
 * Layout:      "...,...->..."
 * Gradient:    to every operand
 */
WF_API wf_tensor *wf_add(wf_tensor *a, wf_tensor *b);
WF_API wf_tensor *wf_sub(wf_tensor *a, wf_tensor *b);
WF_API wf_tensor *wf_mul(wf_tensor *a, wf_tensor *b);
WF_API wf_tensor *wf_scale(wf_tensor *x, float factor);

/**
 * wf_add_constant - returns x + value, for parameters before they are used (a gain that is 1 +
 * w): always f32
 *
 * Layout:      "...->..."
 * Gradient:    to x as it is, that of a vector also as rows [b, n], a row per sequence, as ops
 *              give it to a parameter
 */
WF_API wf_tensor *wf_add_constant(wf_tensor *x, float value);

/**
 * wf_silu - returns x / (1 + exp(-x))
 * wf_gelu - returns x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))   (Hendrycks & Gimpel 2016)
 *
 * Layout:      "...->..."
 * Gradient:    to x, by wf_silu_grad and wf_gelu_grad (x, dy)
 */
WF_API wf_tensor *wf_silu(wf_tensor *x);
WF_API wf_tensor *wf_gelu(wf_tensor *x);
WF_API wf_tensor *wf_silu_grad(wf_tensor *x, wf_tensor *dy);
WF_API wf_tensor *wf_gelu_grad(wf_tensor *x, wf_tensor *dy);

/**
 * wf_swiglu - returns silu(gate) * up, in one pass with the bits of the two ops   (Shazeer
 *                                                                                 2020)
 *
 * Layout:      "...,...->..."
 * Gradient:    to gate and up, by wf_swiglu_grad
 */
WF_API wf_tensor *wf_swiglu(wf_tensor *gate, wf_tensor *up);
WF_API void wf_swiglu_grad(wf_tensor *gate, wf_tensor *up, wf_tensor *dy, wf_tensor **dgate,
                           wf_tensor **dup);

/**
 * wf_dropout - zeroes x with probability p, else returns x / (1 - p); the identity in
 * evaluation
 *
 * @param x     [batch, tokens, ...]
 * @param p     in [0, 1); 0 returns x itself
 * @param site  number of this dropout in the model; with the step and the global indices of the
 *              element (wf_context_position) it decides the mask, whatever the layout
 * Layout:      "bs...->bs..."
 * Gradient:    to x, by the same mask
 */
WF_API wf_tensor *wf_dropout(wf_tensor *x, float p, int site);

/**
 * wf_dropout_add - returns x + wf_dropout(y, p, site), in one pass with the bits of the two ops
 *
 * Layout:      "bs...,bs...->bs..."
 * Gradient:    to x, and to y by the same mask
 */
WF_API wf_tensor *wf_dropout_add(wf_tensor *x, wf_tensor *y, float p, int site);

/**
 * wf_bias_add - returns y[b, .., n] = x[b, .., n] + bias[n]
 *
 * Layout:      "b...n,n->b...n"
 * Gradient:    to x, and to bias per sequence: [b, n], by wf_bias_grad; to the result of an op
 *              (this goes for gains as well) their sum, [n]
 */
WF_API wf_tensor *wf_bias_add(wf_tensor *x, wf_tensor *bias);
WF_API wf_tensor *wf_bias_grad(wf_tensor *dy);

/**
 * wf_bias_gelu - returns gelu(x + bias), in one pass with the bits of wf_gelu(wf_bias_add(x,
 * bias))
 *
 * Layout:      "b...n,n->b...n"
 * Gradient:    to x, and to bias per sequence: [b, n], both in one pass by wf_bias_gelu_grad,
 *              which recomputes x + bias
 */
WF_API wf_tensor *wf_bias_gelu(wf_tensor *x, wf_tensor *bias);
WF_API void wf_bias_gelu_grad(wf_tensor *x, wf_tensor *bias, wf_tensor *dy, wf_tensor **dx,
                              wf_tensor **dbias);

/**
 * wf_batch_sum - sums over dim 0, a chunk per index; wf_token_sum - over all dims but dim 0, in
 * the chunks of the last one that has 8 (wf_chunk_dim)
 *
 * Layout:      "b...->..." and "b...->b"
 * Gradient:    to x, by wf_batch_expand and wf_token_expand (dy, x for its shape)
 */
WF_API wf_tensor *wf_batch_sum(wf_tensor *x);
WF_API wf_tensor *wf_batch_expand(wf_tensor *dy, wf_tensor *like);
WF_API wf_tensor *wf_token_sum(wf_tensor *x);
WF_API wf_tensor *wf_token_expand(wf_tensor *dy, wf_tensor *like);

/**
 * wf_permute - reorders the dims; wf_transpose - exchanges two of them
 *
 * @param order  [x->ndim]: dim d of the result is dim order[d] of x
 * Layout:      each dim keeps its axes: "bij->bji"
 * Gradient:    to x
 */
WF_API wf_tensor *wf_permute(wf_tensor *x, const int *order);
WF_API wf_tensor *wf_transpose(wf_tensor *x, int dim0, int dim1);

/**
 * wf_slice - returns the indices [first, first + count) of one dim, whole grains of it
 *
 * Layout:      "bi!j->bi!j" for dim 1: the dim is whole on each rank, others as they are
 * Gradient:    to x, zero elsewhere, by wf_slice_grad (like for its shape)
 */
WF_API wf_tensor *wf_slice(wf_tensor *x, int dim, int64_t first, int64_t count);
WF_API wf_tensor *wf_slice_grad(wf_tensor *like, wf_tensor *dy, int dim, int64_t first);

/**
 * wf_sum - sums over one dim, which the result lacks; wf_mean - and divides by its size
 *
 * Layout:      "bij->bj" for dim 1; partial where the dim is split, in which case a mean has to
 *              be made of a sum that was redistributed first
 * Gradient:    to x, by wf_sum_expand (like for its shape)
 */
WF_API wf_tensor *wf_sum(wf_tensor *x, int dim);
WF_API wf_tensor *wf_mean(wf_tensor *x, int dim);
WF_API wf_tensor *wf_sum_expand(wf_tensor *y, wf_tensor *like, int dim);

/**
 * wf_softmax - returns exp(x - max) / sum of exp(x - max) over one dim
 *
 * @param dim  the last one runs without copies, another is transposed there and back
 * Layout:      "...n!->...n!": the dim is whole on each rank
 * Gradient:    to x, by wf_softmax_grad (y, dy), of the last dim
 */
WF_API wf_tensor *wf_softmax(wf_tensor *x, int dim);
WF_API wf_tensor *wf_softmax_grad(wf_tensor *y, wf_tensor *dy);

/** wf_matmul_options - zeros: neither operand is transposed. */
typedef struct wf_matmul_options {
    bool transpose_a, transpose_b; /* its last two dims are exchanged */
} wf_matmul_options;

/**
 * wf_matmul - returns y[.., m, n] = sum over k of a[.., m, k] b[.., k, n], a batch of products
 *
 * @param a, b     as many leading dims, of the same sizes
 * @param options  NULL for none
 * Layout:      "...mk,...kn->...mn", or with the dims of an operand exchanged
 * Gradient:    to a and b. A product with a weight is wf_linear, whose weight has no batch
 */
WF_API wf_tensor *wf_matmul(wf_tensor *a, wf_tensor *b, const wf_matmul_options *options);

/**
 * wf_linear - returns x W^T; wf_linear_group - for up to three weights that share x
 *
 * @param x       [b, .., k]
 * @param weight  [n, k] each
 * @param count   1 to 3
 * @param y       filled with count tensors [b, .., n]
 * Layout:      "b...k,nk,mk,lk->b...n,b...m,b...l"
 * Gradient:    to x as one sum through the members in order (one op, one partial sum), to the
 *              weights with one chunk per sequence. So the n of all weights are split by the
 *              same axes; each may have chunks of its own, some as wf_dim_chunked and some as
 *              wf_dim_width
 */
WF_API wf_tensor *wf_linear(wf_tensor *x, wf_tensor *weight);
WF_API void wf_linear_group(wf_tensor *x, int count, wf_tensor *const *weight, wf_tensor **y);
WF_API wf_tensor *wf_linear_dx(int count, wf_tensor *const *dy, wf_tensor *const *weight);
WF_API wf_tensor *wf_linear_dw(wf_tensor *dy, wf_tensor *x);

/**
 * wf_linear_dw_joined - returns the sum of wf_linear_dw over several passes, as one product
 *
 * @param passes  1, 2 or 4
 * @param dy      [passes], each [b, .., n], and x likewise, [b, .., k]: all of one shape and
 *                layout
 * Layout:      "b...n,b...k,b...n,b...k->nk", and so on
 * Sum:         the midpoint tree over the passes, then over the sequences of each
 * Gradient:    none
 */
WF_API wf_tensor *wf_linear_dw_joined(int passes, wf_tensor *const *dy, wf_tensor *const *x);

/**
 * wf_linear_bias - returns x W^T + bias, for one or three that share x; wf_linear_bias_gelu -
 * its gelu. With the bits of wf_linear, wf_bias_add and wf_bias_gelu, and in less time
 *
 * @param x       [b, .., k], k whole on each rank: a product that is partial has to be summed
 *                first
 * @param weight  [n, k] each
 * @param bias    [n] each
 * @param count   1 or 3
 * @param y       filled with count tensors [b, .., n]
 * Layout:      "b...k!,nk!,n->b...n"
 * Gradient:    as of those ops, which are what the tape has
 */
WF_API void wf_linear_bias(wf_tensor *x, int count, wf_tensor *const *weight,
                           wf_tensor *const *bias, wf_tensor **y);
WF_API wf_tensor *wf_linear_bias_gelu(wf_tensor *x, wf_tensor *weight, wf_tensor *bias);

/** wf_linear_swiglu - returns silu(x G^T) * (x U^T), with the bits of wf_linear_group and
 * wf_swiglu, which the tape has; gate and up: [n, k], k whole on each rank */
WF_API wf_tensor *wf_linear_swiglu(wf_tensor *x, wf_tensor *gate, wf_tensor *up);

/** wf_linear_add - returns r + (x W^T + bias), bias NULL for none, with the bits of wf_linear,
 * wf_bias_add and wf_add, which the tape has; one op where r is stored as the product is */
WF_API wf_tensor *wf_linear_add(wf_tensor *r, wf_tensor *x, wf_tensor *weight, wf_tensor *bias);

/**
 * wf_linear_dx_into, wf_linear_dw_add - compute the gradients of wf_linear for a part of the
 * sequences
 *
 * @param dx     where to write it (rows of a larger tensor); NULL: a new tensor
 * @param older  NULL, or the sum over earlier sequences, which becomes older + dW: a node of
 *               the batch's tree, where both halves are (core/numerics/tree.h)
 * Layout:      as wf_linear's gradients; dx and older as the results
 * Owner:       the caller of dx and older, which are also returned
 * Errors:      also WF_EINVAL while a tape records
 * Gradient:    none
 */
WF_API wf_tensor *wf_linear_dx_into(int count, wf_tensor *const *dy, wf_tensor *const *weight,
                                    wf_tensor *dx);
WF_API wf_tensor *wf_linear_dw_add(wf_tensor *dy, wf_tensor *x, wf_tensor *older);

/**
 * wf_layernorm - returns (x - mean) / sqrt(var + eps) * gain + bias over the last dim
 *
 * @param gain  [d]
 * @param bias  [d]
 * @param eps   > 0
 * Layout:      "b...d!,d!,d!->b...d!"
 * Gradient:    to x; to gain and bias per sequence, [b, d]
 */
WF_API wf_tensor *wf_layernorm(wf_tensor *x, wf_tensor *gain, wf_tensor *bias, float eps);
WF_API wf_tensor *wf_layernorm_dx(wf_tensor *x, wf_tensor *gain, wf_tensor *mean,
                                  wf_tensor *rstd, wf_tensor *dy);
WF_API void wf_layernorm_dw(wf_tensor *x, wf_tensor *mean, wf_tensor *rstd, wf_tensor *dy,
                            wf_tensor **dgain, wf_tensor **dbias);

/**
 * wf_rmsnorm - returns y[.., d] = gain[d] * x[.., d] / sqrt(mean_d x^2 + eps)
 *
 * @param gain  [d]
 * @param eps   > 0, added to the mean square
 * Layout:      "b...d!,d!->b...d!"
 * Gradient:    to x; to gain per sequence, [b, d]
 */
WF_API wf_tensor *wf_rmsnorm(wf_tensor *x, wf_tensor *gain, float eps);
WF_API wf_tensor *wf_rmsnorm_dx(wf_tensor *x, wf_tensor *gain, wf_tensor *rstd, wf_tensor *dy);
WF_API wf_tensor *wf_rmsnorm_dw(wf_tensor *x, wf_tensor *rstd, wf_tensor *dy);

/**
 * wf_add_layernorm, wf_add_rmsnorm - compute sum = x + dropout(y), and the norm of the sum, in
 * one pass with the bits of wf_dropout_add and the norm
 *
 * @param p, site  as in wf_dropout
 * @param sum      filled with x + dropout(y), which may be used as well
 * Returns:     the norm of the sum
 * Layout:      "b...d!,b...d!,d!,d!->b...d!,b...d!"
 * Gradient:    to x and y; the gradient of the sum is added inside. To gain and bias as of the
 *              plain norm
 */
WF_API wf_tensor *wf_add_layernorm(wf_tensor *x, wf_tensor *y, wf_tensor *gain, wf_tensor *bias,
                                   float eps, float p, int site, wf_tensor **sum);
WF_API wf_tensor *wf_add_rmsnorm(wf_tensor *x, wf_tensor *y, wf_tensor *gain, float eps,
                                 float p, int site, wf_tensor **sum);

/**
 * wf_embedding - returns y[b, .., d] = table[tokens[b, ..], d]
 *
 * @param table   [v, d]; a rank that holds a part of v gives zero rows for other tokens, so
 *                that its result is a partial sum
 * @param tokens  i32 [b, ..]; each in [0, v), else WF_EINVAL naming the token
 * Layout:      "vd,b...->b...d"
 * Gradient:    to table, a chunk per sequence, by wf_embedding_dw (table for its shape)
 */
WF_API wf_tensor *wf_embedding(wf_tensor *table, wf_tensor *tokens);
WF_API wf_tensor *wf_embedding_dw(wf_tensor *table, wf_tensor *tokens, wf_tensor *dy);

/**
 * wf_rows - returns the first n rows of a table [p, d], as tokens: [n, d] with n cut in 8
 * chunks
 * wf_position_add - returns y[b, s, d] = x[b, s, d] + rows[s, d]
 *
 * Layout:      "p!d->sd" and "bsd,sd->bsd"
 * Gradient:    to the table (rows past n get zero), to x and rows
 */
WF_API wf_tensor *wf_rows(wf_tensor *table, int64_t n);
WF_API wf_tensor *wf_rows_grad(wf_tensor *table, wf_tensor *dy);
WF_API wf_tensor *wf_position_add(wf_tensor *x, wf_tensor *rows);

/**
 * wf_split_heads - views [.., heads * dim] as [.., heads, dim]; wf_merge_heads - the inverse
 *
 * @param head_dim  the grain of the last dim (wf_dim_heads)
 * Layout:      "...h->...hd!" and "...hd!->...h"
 * Gradient:    to x
 */
WF_API wf_tensor *wf_split_heads(wf_tensor *x, int64_t head_dim);
WF_API wf_tensor *wf_merge_heads(wf_tensor *x);

/**
 * wf_rope - rotates pairs (i, i + dim/2) of every head by position * f(i), f(i) =
 * base^(-2i/dim), or that scaled (Su et al. 2021)
 * @param x        [batch, tokens, heads, dim], dim (the part of it that rotates) even; position
 *                 is the global token index
 * @param inverse  rotate back
 * Layout:      "bshd!->bshd!"
 * Gradient:    to x, by the inverse rotation
 * Errors:      WF_ESHAPE (odd dim, more features than there are), WF_EINVAL (base, or a number
 *              of the scaling)
 */
WF_API wf_tensor *wf_rope(wf_tensor *x, const wf_rope_options *options, bool inverse);

/** wf_attention_options - zeros: every token sees all, and nothing is dropped. */
typedef struct wf_attention_options {
    bool causal;   /* token i sees the tokens up to i alone */
    float dropout; /* probability of dropping an attention weight; 0 in evaluation */
    int site;      /* as in wf_dropout */
    /* i32 [batch, tokens]: token i sees first[i] .. i alone, any number being taken for the
       nearest of [0, i]; NULL: from 0 on. With causal */
    wf_tensor *first;
    /* the most tokens that token i sees, the last ones up to itself; 0: all. With causal */
    int64_t window;
    /* instead: token i sees those of its own chunk of `chunk` tokens, which count from the
       first one that it would see; 0: all. With causal, and no window */
    int64_t chunk;
    /* [batch, keys]: no token sees the keys whose number is 0 (padding); NULL: none. Not with
       `first` */
    wf_tensor *mask;
    /* [heads, tokens, keys], or of each sequence [batch, heads, tokens, keys]: added to scores
       after their factor; -infinity hides a key from a token. NULL: none. Not with `first` */
    wf_tensor *bias;
    /* scores s become cap * tanh(s / cap) before what a token does not see is left out; 0: they
       stay. Not with `bias` */
    float cap;
    /* [heads]: a score of no key in each query's softmax, which takes a share of its weights
       and adds nothing to its row (gpt-oss); it is under no cap. NULL: none. Not with `mask`,
       `bias` or keys of another sequence */
    wf_tensor *sinks;
} wf_attention_options;

/**
 * wf_attention - computes y = softmax(q k^T / sqrt(dim)) v, as flash attention with an online
 * softmax: the matrix of scores is never whole
 *
 * @param q        [batch, tokens, heads, dim]
 * @param k, v     [batch, keys, groups, dim]; query head j uses group j / (heads / groups).
 *                 Without causal, keys need not be as many as tokens (cross attention)
 * @param options  NULL for none
 *
 * The bits of a token's row are a function of the rows that it sees and of their positions in
 * blocks of 64 tokens: as those of a sequence that begins with its first one, where that is at
 * a multiple of 64; a document, or a chunk, has those that it has alone. The row of a token
 * that sees no key is 0, and so are its gradients.
 *
 * Layout:      "bs!hd!,bt!gd!,bt!gd!->bs!hd!", of options->first "bs!", of the mask "bt!", of
 *              the bias "hs!t!" or "bhs!t!", of the sinks "h"; g whole, or split like h where
 *              each rank's heads use exactly its own groups
 * Gradient:    to q, k, v, the sinks (per sequence, as of wf_bias_add) and the bias, not to the
 *              mask; dk and dv are summed over query heads in their 8 chunks, and are partial
 *              where h is split and g is whole. That of a bias [heads, tokens, keys] is the sum
 *              over the batch, a chunk per sequence, and partial where b is split
 * Errors:      WF_EINVAL (dropout; `first`, `window` or `chunk` without causal; one below 0;
 *              causal with another number of keys; `first` or `sinks` beside a mask or a bias)
 */
WF_API wf_tensor *wf_attention(wf_tensor *q, wf_tensor *k, wf_tensor *v,
                               const wf_attention_options *options);

WF_END_DECLS

#endif

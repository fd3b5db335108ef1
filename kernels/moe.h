/*
 * kernels/moe.h - mixtures of experts: logits that are never rounded, the choice of k experts
 * for each token, and what the chosen experts make of it.
 *
 * A token's experts come in ascending order, so that sums over them have one order. Experts are
 * a dim of their own (wf_dim_experts), one chunk each: an axis that splits it leaves a partial
 * sum, whose nodes are those of one rank.
 */
#ifndef WF_KERNELS_MOE_H
#define WF_KERNELS_MOE_H

#include "core/op.h"

WF_BEGIN_DECLS

enum { WF_ROUTE_MOST = 64 }; /* the most experts of a token */

/** wf_route_options - the scores made of logits, and the weights of the chosen ones. */
typedef struct wf_route_options {
    int64_t k;      /* experts of a token: 1 to WF_ROUTE_MOST */
    bool sigmoid;   /* scores are sigmoids of logits, instead of a softmax over all experts */
    bool after;     /* scores are logits; weights are a softmax over the chosen ones */
    bool normalise; /* weights are divided by their sum */
    float factor;   /* multiplies weights; 0: 1 */
    /* weights of losses of balance (wf_route_losses), of which logits take the gradient: means
       over the sequences of a step (wf_context_batch). 0: none. One of sequence and global */
    float sequence_weight, z_weight;
    float global_weight; /* above 0: wf_route has counts, and no bias */
} wf_route_options;

/**
 * wf_linear_fp32 - y = x W^T, never rounded to bf16: logits of a router
 *
 * Layout:      "b...k,nk->b...n"
 * Gradient:    to x and weight, as of wf_linear
 */
WF_API wf_tensor *wf_linear_fp32(wf_tensor *x, wf_tensor *weight);

/**
 * wf_route - chooses the k experts of greatest score + bias, equal ones by the lower index, and
 * gives them weights, which the bias is not in
 *
 * @param logits          [.., experts]
 * @param bias            [experts]; or NULL. What it takes for a gradient is, of each expert,
 *                        the number of tokens that chose it less the mean, times a whole number
 *                        that makes both whole: exact up to 2^24 (Wang et al. 2024). With
 *                        options.global_weight, counts: how many tokens of the step before
 *                        chose each expert, zeros before the first one; they choose nothing,
 *                        and their gradient is the count of this step, exact as well
 * @param weights, index  filled with [.., k], by ascending index; never rounded. Indices are
 *                        whole numbers in a tensor of floats
 * Layout:      "...n!,n!->...k!,...k!"; with a loss of a sequence, whose tokens are then on one
 *              rank, WF_ELAYOUT for those that axes split
 * Errors:      WF_ESHAPE: a k that experts have not; WF_EINVAL: both sigmoid and after, weights
 *              of losses below 0, both of sequence and global, a global_weight without counts,
 *              a score that is NaN
 * Gradient:    to logits, by the weights, and of losses of balance
 */
WF_API void wf_route(wf_tensor *logits, wf_tensor *bias, const wf_route_options *options,
                     wf_tensor **weights, wf_tensor **index);

/**
 * wf_route_losses - computes the losses of balance of a router, a number per sequence and
 * without weights, to be reported (wf_nn_add_loss)
 *
 * The loss of a sequence (DeepSeek-AI 2024, of V2 and V3) is the sum over experts of the share
 * of its choices times that of its scores, times experts: 1 where all are alike. With
 * options.global_weight the share of choices is that of `counts` instead, of a whole step's
 * batch (Qiu et al. 2025), which is the step before: 1 before the first one. The z-loss (Zoph
 * et al. 2022) is the mean over its tokens of the square of log(sum of exp(logit)).
 *
 * @param logits   [batch, tokens, experts], and
 * @param index    [batch, tokens, k], of wf_route, with its
 * @param counts   [experts], or NULL without a global_weight, and
 * @param options  where a weight is 0, that loss is not computed, and is 0
 * @param balance, z  filled with [batch]; never rounded
 * Layout:      "bs!t!,bs!k!,t!->b,b"; where ranks split tokens, of dim 1, they gather them
 * Errors:      WF_ESHAPE, WF_EINVAL: indices that are none of wf_route; results are then NULL
 * Gradient:    none here: wf_route's to logits is that of both
 */
WF_API void wf_route_losses(wf_tensor *logits, wf_tensor *index, wf_tensor *counts,
                            const wf_route_options *options, wf_tensor **balance,
                            wf_tensor **z);

/** wf_route_limit - the tokens that an expert takes at most, of a sequence or document. */
typedef struct wf_route_limit {
    int64_t experts, most;
    wf_tensor *first;  /* NULL, or i32 [batch, tokens] (wf_nn_documents.first) */
    wf_tensor *before; /* NULL, or i32 [batch, experts], choices of earlier tokens; no first */
} wf_route_limit;

/**
 * wf_route_capacity - returns indices in which a choice is the number of experts, that of none,
 * where `most` tokens before it in the sequence chose its expert
 *
 * Experts then have no such row: it is nothing in a token's sum, whose other weights stay as
 * they are, and its weight has no gradient. A token's choices depend on earlier tokens alone.
 *
 * @param index  [batch, tokens, k], of wf_route
 * Layout:      "bs!k!->bs!k!"; where ranks split tokens they gather indices
 * Errors:      WF_EINVAL: a limit below 1, indices that are none of wf_route, which are NaN on
 *              a GPU, counts of other experts
 * Gradient:    none
 */
WF_API wf_tensor *wf_route_capacity(wf_tensor *index, const wf_route_limit *limit);

/** wf_experts_bound - bounds the rows of a rank's experts that there is room for on the CPU;
 * zeros: those of any choice. */
typedef struct wf_experts_bound {
    /* 0: there is room for the rows of any choice that `taken` allows; else for that many times
       those that this rank's experts have where loads are equal, and for one sequence (a chunk
       of a long one) whatever it chooses. More rows are computed in waves of whole sequences,
       gradients of matrices then expert by expert */
    float buffer;
    /* tokens of a sequence (a row of dim 0) that an expert has at most, which indices keep to
       (wf_route_capacity, without documents); 0: all */
    int64_t taken;
} wf_experts_bound;

/**
 * wf_experts - y[b, s] = sum over its k experts e of weight * down[e] (silu(gate[e] x) * up[e]
 * x), the SwiGLU of Shazeer 2020 for each
 *
 * The sum is the midpoint tree over all experts' indices, in which experts without this token
 * are left out. What experts make of a token is rounded to the type of x before it is summed,
 * and the sum once. Sums over the f features of an expert are those of a linear: where f has 8
 * chunks (wf_dim_chunked), one expert is a SwiGLU MLP bit for bit; on a GPU, whose silu has
 * bits of its own outside of experts, but for those. A row depends on no other row. Gradients
 * of gate, up and down are sums over the batch of one chain for each sequence, through those of
 * its tokens that chose the expert.
 *
 * @param gate, up  [e, f, d]; e is wf_dim_experts
 * @param down      [e, d, f]
 * @param x         [b, .., d]
 * @param weights   [b, .., k], and
 * @param index     [b, .., k], of wf_route
 * @param bound     what there is room for; NULL: the rows of any choice. The bits are the same
 * Layout:      "ef!d!,ef!d!,ed!f!,b...d!,b...k!,b...k!->b...d!": a split e leaves a partial sum
 * Errors:      also WF_EINVAL: indices that are not whole, of experts, and ascending, but for
 *              those of no expert (wf_route_capacity); more rows than bound->taken says;
 *              numbers of a bound below 0
 * Gradient:    to gate, up, down, x and weights. gate x and up x of each choice are kept for
 *              them by a rank that has all experts, without a buffer; else they are recomputed
 */
WF_API wf_tensor *wf_experts(wf_tensor *gate, wf_tensor *up, wf_tensor *down, wf_tensor *x,
                             wf_tensor *weights, wf_tensor *index,
                             const wf_experts_bound *bound);

/** wf_experts_rows - tokens of a rank, and who they may choose. */
typedef struct wf_experts_rows {
    int64_t tokens, k; /* tokens, and experts that each chooses */
    int64_t mine, all; /* experts of this rank, and of all */
    int64_t features;  /* an expert's, on this rank */
    int64_t together; /* tokens that are in one wave: of a sequence, or a chunk of a long one */
    /* sequences that the tokens are of, and as in wf_experts_bound */
    int64_t sequences, taken;
} wf_experts_rows;

/** wf_experts_room - returns how many rows of a rank's experts, one for each choice of a token,
 * there is room for with a buffer (wf_experts_bound): without one, those of any choice. */
WF_API int64_t wf_experts_room(const wf_experts_rows *rows, double buffer);

/** wf_experts_wave - returns how many of the sequences of rows->together tokens are exchanged
 * with the ranks of their experts at a time: a node of the tree over them, of no more tokens
 * than there is room for, or one sequence, but with rows that take no less than the open sums
 * of gradients of another halving; all without a buffer. */
WF_API int64_t wf_experts_wave(const wf_experts_rows *rows, double buffer);

/** wf_experts_adapters - low-rank adapters of a mixture's experts (LoRA, Hu et al. 2021), as
 * PEFT has them: gate and up are one matrix [2 f, d] there, so that they share the first
 * factor. */
typedef struct wf_experts_adapters {
    wf_tensor *gate_up_a;       /* [e, r, d] */
    wf_tensor *gate_b, *up_b;   /* [e, f, r] */
    wf_tensor *down_a, *down_b; /* [e, r, f] and [e, d, r] */
    float scale;
} wf_experts_adapters;

/**
 * wf_experts_adapted - wf_experts, whose gate[e], up[e] and down[e] are each W + scale B A of
 * the expert's adapter
 *
 * With u = scale A x, rounded as a product's operand is, W x + B u is one chain through both,
 * in the last chunk of W's sum. Nothing of W's size is made. Gradients of factors are sums over
 * the batch of one chain for each sequence, as those of experts are.
 *
 * @param adapters  a factor for each expert and matrix; dim 0 is that of gate
 * @param bound     as in wf_experts
 * Layout:      as wf_experts, factors split as experts are
 * Errors:      also WF_EUNSUPPORTED: gate, up or down want a gradient: they are frozen
 * Gradient:    to the factors, x and weights; forward is recomputed for them
 */
WF_API wf_tensor *wf_experts_adapted(wf_tensor *gate, wf_tensor *up, wf_tensor *down,
                                     wf_tensor *x, wf_tensor *weights, wf_tensor *index,
                                     const wf_experts_adapters *adapters,
                                     const wf_experts_bound *bound);

/**
 * wf_experts_backward - fills in g->din from g->in and g->dout[0] as the gradient of wf_experts
 * does, or with 11 operands that of wf_experts_adapted: for an op that runs either by parts
 *
 * @param g       its operands are in the order of their arguments; attr and out are not read
 * @param scale   that of adapters
 * @param bound   as in wf_experts
 * Collective:    no
 * Owner:         scope
 * Errors:        theirs; din is then NULL
 */
WF_API void wf_experts_backward(wf_gradient *g, float scale, const wf_experts_bound *bound);

WF_END_DECLS

#endif

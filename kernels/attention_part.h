/*
 * kernels/attention_part.h - attention of some of a sequence's tokens over the keys and values
 * of all: for ranks that split tokens and gather keys and values.
 */
#ifndef WF_KERNELS_ATTENTION_PART_H
#define WF_KERNELS_ATTENTION_PART_H

#include "core/context.h"
#include "kernels/ops.h"

WF_BEGIN_DECLS

/** wf_attention_time - when attention ran, which decides the masks of dropout: that of forward,
 * for its gradient. */
typedef struct wf_attention_time {
    bool training;
    int64_t step;
    wf_sequences sequences;
} wf_attention_time;

/** wf_attention_time_now - returns the time of ops that run now. */
WF_API wf_attention_time wf_attention_time_now(const wf_context *ctx);

/**
 * wf_attention_part - returns the rows of wf_attention for those tokens that q has here
 *
 * @param q        [batch, tokens, heads, dim], tokens split or not
 * @param k, v     [batch, tokens, groups, dim], all of them on each rank
 * @param options  as of wf_attention, without mask and bias; `first` is whole
 * @param time     of now, or of a forward that is recomputed
 * @param lse      filled with the logarithms of sums that the gradient reads, [batch, tokens,
 *                 heads]
 * Layout:      "bshd!,bt!gd!,bt!gd!->bshd!,bsh"; of the sinks "h"
 * Collective:  no
 * Owner:       scope
 * Errors:      WF_EINVAL (options), WF_ESHAPE; result is then NULL
 * Gradient:    by wf_attention_part_grad, whose operands are whole: nothing is recorded
 */
WF_API wf_tensor *wf_attention_part(wf_tensor *q, wf_tensor *k, wf_tensor *v,
                                    const wf_attention_options *options,
                                    const wf_attention_time *time, wf_tensor **lse);

/**
 * wf_attention_sinks_grad - returns the gradient of options->sinks per sequence, [batch,
 * heads], from the result, its gradient and lse: of all tokens, or a part's
 *
 * Layout:      "bshd!,bshd!,bsh,h->bh"; partial where tokens are split
 * Collective:  no
 * Owner:       scope
 * Errors:      WF_ESHAPE; result is then NULL
 */
WF_API wf_tensor *wf_attention_sinks_grad(wf_tensor *y, wf_tensor *dy, wf_tensor *lse,
                                          wf_tensor *sinks);

/** wf_attention_part_pairs - pairs of a query and a key, of a head of causal attention: those
 * that a part's queries see, those that see its keys, and all of these. */
typedef struct wf_attention_part_pairs {
    double queries, keys, both;
} wf_attention_part_pairs;

/**
 * wf_attention_pairs_of - returns the pairs of a part of a sequence, where a token counts half
 * of itself: n * n / 2 of n tokens that see all before them
 *
 * @param all     tokens of the sequence
 * @param before  those before the part
 * @param n       those of the part
 * @param window  a sliding window, or below 0 minus the tokens of a chunk; 0: neither
 */
WF_API wf_attention_part_pairs wf_attention_pairs_of(double all, double before, double n,
                                                     double window);

/** wf_attention_operands - the operands of the gradient: q, k, v, the result, lse and the
 * result's gradient, of all tokens on each rank. */
typedef struct wf_attention_operands {
    wf_tensor *q, *k, *v, *y, *lse, *dy;
} wf_attention_operands;

/**
 * wf_attention_part_grad - fills grad with the gradients of q, k and v for the tokens that
 * `own` has here, as parts of those of all: dk and dv by the order of all queries
 *
 * @param all      whole, but heads, which may be split
 * @param own      q's tokens: its shape and layout are read
 * @param options, time  of forward
 * Layout:      "bt!hd!,bt!gd!,bt!gd!,bt!hd!,bt!h,bt!hd!,bshd!->bshd!,bsgd!,bsgd!"
 * Collective:  no
 * Owner:       scope
 * Errors:      WF_ESHAPE, WF_ELAYOUT; NULLs then
 */
WF_API void wf_attention_part_grad(const wf_attention_operands *all, wf_tensor *own,
                                   const wf_attention_options *options,
                                   const wf_attention_time *time, wf_tensor *grad[3]);

WF_END_DECLS

#endif

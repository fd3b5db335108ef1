/*
 * kernels/attention_cached.h - ops of generation: tokens that continue sequences, at positions
 * of their own, and a KV cache of the keys and values before them.
 */
#ifndef WF_KERNELS_ATTENTION_CACHED_H
#define WF_KERNELS_ATTENTION_CACHED_H

#include "core/op.h"
#include "kernels/ops.h"
#include "kernels/rope_scaling.h"

WF_BEGIN_DECLS

/**
 * wf_rope_at - rotates as wf_rope does, at positions of their own: those of a sequence that is
 * continued
 *
 * @param x          [batch, tokens, heads, dim], dim even
 * @param positions  i32 [batch, tokens]; -1 - p for position p in a text that is longer than
 *                   the original length of WF_ROPE_LONG
 * Layout:      "bshd!,bs->bshd!"
 * Gradient:    to x, by the inverse rotation
 * Errors:      as wf_rope
 */
WF_API wf_tensor *wf_rope_at(wf_tensor *x, wf_tensor *positions, const wf_rope_options *options,
                             bool inverse);

/**
 * wf_rope_pair - rotates queries and keys by one op, with the bits of two
 *
 * @param q, k       [batch, tokens, heads, dim] and [batch, tokens, groups, dim], dim even
 * @param positions  NULL: as wf_rope; else as of wf_rope_at
 * @param y          filled with both, rotated
 * Layout:      "bshd!,bsgd!->bshd!,bsgd!" and "bshd!,bsgd!,bs->bshd!,bsgd!"
 * Gradient:    to q and k, by the inverse rotation
 * Errors:      as wf_rope; y then has NULLs
 */
WF_API void wf_rope_pair(wf_tensor *q, wf_tensor *k, wf_tensor *positions,
                         const wf_rope_options *options, bool inverse, wf_tensor *y[2]);

/**
 * wf_linear_rope - returns queries, keys and values of x, of which queries and keys are
 * rotated, with the bits of wf_linear_group, wf_split_heads and wf_rope_pair
 *
 * @param x          [b, s, k], k whole on each rank: a product that is partial has to be summed
 *                   first
 * @param weight     of queries, keys and values, [n, k] each; n of the first two is made with
 *                   wf_dim_heads(.., dim), dim even
 * @param positions  NULL: as wf_rope; else as of wf_rope_at
 * @param y          filled with queries and keys, [b, s, heads, dim], and values, [b, s, n]
 * Layout:      "bsk!,nk!,mk!,lk!->bsn,bsm,bsl", and heads of that
 * Gradient:    as of those ops, which are what the tape has
 * Errors:      as wf_rope; WF_ESHAPE (heads of two sizes); y then has NULLs
 */
WF_API void wf_linear_rope(wf_tensor *x, wf_tensor *const weight[3], wf_tensor *positions,
                           const wf_rope_options *options, wf_tensor *y[3]);

/** wf_cache_dtype - returns the storage type of a cache of such keys and values: WF_BF16 where
 * they are and wf_attention_cached multiplies them so (wf_context_compute), else the device's
 * type */
WF_API wf_dtype wf_cache_dtype(const wf_tensor *k);

/**
 * wf_cache_write - writes the keys and values of tokens to a cache: cache[slot[b], first[b] +
 * t] = k[b, t]
 *
 * @param k_cache, v_cache  [slots, positions, groups, dim], changed in place; stored as
 *                 wf_cache_dtype says
 * @param k, v              [batch, tokens, groups, dim]; bf16 where the cache is
 * @param first, slot       i32 [batch]: the position of each sequence's first token, and its
 *               row of the cache
 * Layout:      "c!t!gd!,c!t!gd!,b!s!gd!,b!s!gd!,b!,b!->"
 * Gradient:    none
 * Errors:      WF_EINVAL (a slot or a position that the cache has not)
 */
WF_API wf_status wf_cache_write(wf_tensor *k_cache, wf_tensor *v_cache, wf_tensor *k,
                                wf_tensor *v, wf_tensor *first, wf_tensor *slot);

/**
 * wf_attention_cached - attends, causally, from tokens to all up to themselves in row slot[b]
 * of a cache, their own keys and values included, which wf_cache_write has written
 *
 * The bits are those that wf_attention gives for these tokens of the whole sequence, however
 * many come at once.
 *
 * @param q            [batch, tokens, heads, dim]
 * @param first, slot  i32 [batch]: the position of each sequence's first token, and its row of
 *               the cache
 * @param options  as of wf_attention, of which sinks, window, chunk and cap count; NULL for
 *               none
 * Layout:      "bs!hd!,c!t!gd!,c!t!gd!,b,b->bs!hd!", of the sinks "h"; g as in wf_attention
 * Gradient:    none
 * Errors:      WF_EINVAL (a slot or a position that the cache has not, a window, a chunk or a
 *              cap below 0), WF_ESHAPE
 */
WF_API wf_tensor *wf_attention_cached(wf_tensor *q, wf_tensor *k_cache, wf_tensor *v_cache,
                                      wf_tensor *first, wf_tensor *slot,
                                      const wf_attention_options *options);

WF_END_DECLS

#endif

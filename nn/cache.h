/*
 * nn/cache.h - a key-value cache (KV cache): generation continues sequences without recomputing
 * their earlier tokens.
 *
 * A cache has slots, one per sequence, each with room for a number of tokens. While it is
 * switched to, a forward pass takes the tokens that wf_nn_cache_at has positioned: attention
 * stores their keys and values there and sees all that are before them, RoPE and learned
 * positions use their positions. The bits are those of a forward pass over the whole sequence,
 * however its tokens are cut, and whatever else is in the batch.
 *
 *     wf_nn_cache *cache = wf_nn_cache_open(ctx, 1, 128);
 *
 *     wf_nn_cache_at(cache, 1, n, &(wf_nn_cache_position){.slot = 0, .first = 0});
 *     wf_nn_cache_switch(ctx, cache);
 *     logits = wf_nn_gpt_logits(model, tokens);
 *     wf_nn_cache_switch(ctx, NULL);
 */
#ifndef WF_NN_CACHE_H
#define WF_NN_CACHE_H

#include "kernels/ops.h"
#include "nn/module.h"

WF_BEGIN_DECLS

typedef struct wf_nn_cache wf_nn_cache;

/** wf_nn_cache_position - the slot and position of the tokens of one sequence of a batch. */
typedef struct wf_nn_cache_position {
    int64_t slot, first; /* the sequence's slot, and the position of its first token here */
    /* the sequence is longer than the original length of WF_ROPE_LONG, and uses its factors for
       long texts, as all tokens before it in the slot */
    bool is_long;
    /* WF_ROPE_DYNAMIC: tokens that the sequence has in all, the same of all in a pass; 0: up to
       each token here */
    int64_t length;
} wf_nn_cache_position;

/** wf_nn_cache_tokens - positions and slots of the tokens of a pass. Zeroed: none. */
typedef struct wf_nn_cache_tokens {
    /* i32 [batch, tokens]: positions; i32 [batch]: the first one's, and the slot. Retained */
    wf_tensor *position, *first, *slot;
    int64_t length; /* tokens of each sequence of the pass; 0: up to each token */
} wf_nn_cache_tokens;

/**
 * wf_nn_cache_open - opens a cache without keys and values; each attention module allocates its
 * own part when it runs first
 *
 * Per attention that is 2 x slots x positions x its key-value heads here x head size, counted
 * as WF_MEMORY_CACHE: in floats of the device's type, or in bf16 where they are stored and
 * multiplied so.
 *
 * @param positions  tokens that a slot has room for
 * Collective:  no
 * Owner:       caller; wf_nn_cache_close, before the context is closed
 * Errors:      WF_EINVAL (a number below 1), WF_ENOMEM, in the context; result is then NULL
 */
WF_API wf_nn_cache *wf_nn_cache_open(wf_context *ctx, int64_t slots, int64_t positions);

/** wf_nn_cache_close - frees a cache. NULL is allowed. */
WF_API void wf_nn_cache_close(wf_nn_cache *cache);

/** wf_nn_cache_switch - makes forward passes from now on continue a cache, or none (NULL);
 * returns the last. */
WF_API wf_nn_cache *wf_nn_cache_switch(wf_context *ctx, wf_nn_cache *cache);

/**
 * wf_nn_cache_at - positions the tokens of the next forward pass: `batch` sequences of `tokens`
 * tokens each
 *
 * Tokens overwrite what their slots hold from `first` on: so a sequence is shortened, or
 * replaced by another one.
 *
 * @param sequence  [batch] the slot and the first position of each sequence; slots differ
 * Errors:       WF_EINVAL (a slot or position that the cache has not, lengths that differ),
 *               WF_ENOMEM
 */
WF_API wf_status wf_nn_cache_at(wf_nn_cache *cache, int64_t batch, int64_t tokens,
                                const wf_nn_cache_position *sequence);

/**
 * wf_nn_cache_swap - exchanges the tensors that wf_nn_cache_at writes for others
 *
 * It writes into those that it finds, where the pass before had as many sequences and tokens:
 * captured work (core/graph.h), which reads them where they were, has tensors of its own.
 *
 * @param other  in: those of such passes, zeroed before the first; out: those of the others.
 *               Owner of what it has: the caller, wf_nn_cache_tokens_free
 */
WF_API void wf_nn_cache_swap(wf_nn_cache *cache, wf_nn_cache_tokens *other);

/** wf_nn_cache_tokens_free - frees the tensors, and zeroes the struct */
WF_API void wf_nn_cache_tokens_free(wf_nn_cache_tokens *tokens);

/** wf_nn_cache_now - returns the cache that is switched to, or NULL. For modules. */
WF_API wf_nn_cache *wf_nn_cache_now(wf_context *ctx);

/** wf_nn_cache_positions - returns the positions of the tokens, i32 [batch, tokens], as
 * wf_rope_at takes them. Owner: the cache. For modules. */
WF_API wf_tensor *wf_nn_cache_positions(const wf_nn_cache *cache);

/** wf_nn_cache_length - returns the length of all sequences of the pass, as
 * wf_rope_scaling.length takes it. For modules. */
WF_API int64_t wf_nn_cache_length(const wf_nn_cache *cache);

/**
 * wf_nn_cache_attention - writes the keys and values of a module's tokens to the cache, and
 * attends to all in its slots. For modules.
 *
 * @param module   the owner of these keys and values
 * @param q, k, v  as for wf_attention, split over heads at most
 * @param options  as of wf_attention_cached
 * Gradient:       none
 * Errors:         those of wf_cache_write and wf_attention_cached
 */
WF_API wf_tensor *wf_nn_cache_attention(wf_nn_cache *cache, const wf_nn_module *module,
                                        wf_tensor *q, wf_tensor *k, wf_tensor *v,
                                        const wf_attention_options *options);

/**
 * wf_nn_cache_choices - keeps the experts that a module's tokens choose, and returns how many
 * of the tokens before them in each slot chose each expert. For modules.
 *
 * Choices are kept token by token, so that a text that is shortened counts those that it has.
 *
 * @param index  [batch, tokens, k], whole on this rank, of wf_route with this many experts
 * Returns i32 [batch, experts]. Owner: the innermost scope
 * Errors:       WF_ELAYOUT: tokens that ranks split; WF_ENOMEM; in the context, NULL then
 */
WF_API wf_tensor *wf_nn_cache_choices(wf_nn_cache *cache, const wf_nn_module *module,
                                      wf_tensor *index, int64_t experts);

WF_END_DECLS

#endif

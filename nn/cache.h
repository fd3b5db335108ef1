/*
 * nn/cache.h - a key-value cache: generation goes on with sequences whose earlier tokens are
 * not computed again.
 *
 * A cache has slots, one a sequence, each with room for so many tokens. While it is switched
 * to, a forward pass takes the tokens that wf_nn_cache_at has placed: attention puts their keys
 * and values there and sees all that are before them, RoPE and learned positions go by their
 * places. The bits are those of a forward pass over the whole sequence, however its tokens are
 * cut, and whatever else is in the batch.
 *
 *     wf_nn_cache *cache = wf_nn_cache_open(ctx, 1, 128);
 *
 *     wf_nn_cache_at(cache, 1, n, &(wf_nn_cache_place){.slot = 0, .first = 0});
 *     wf_nn_cache_switch(ctx, cache);
 *     logits = wf_nn_gpt_logits(model, tokens);
 *     wf_nn_cache_switch(ctx, NULL);
 */
#ifndef WF_NN_CACHE_H
#define WF_NN_CACHE_H

#include "nn/module.h"

WF_BEGIN_DECLS

typedef struct wf_nn_cache wf_nn_cache;

/** wf_nn_cache_place - where the tokens of one sequence of a batch go. */
typedef struct wf_nn_cache_place {
    int64_t slot, first; /* the sequence's slot, and the position of its first token here */
    /* the sequence is longer than the original length of WF_ROPE_LONG, whose factors for long
       texts it has then, as all before it in the slot */
    bool is_long;
} wf_nn_cache_place;

/**
 * wf_nn_cache_open - a cache without keys and values; each attention takes room for its own
 * when it runs first
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

/** wf_nn_cache_close - give back what it keeps. NULL is allowed. */
WF_API void wf_nn_cache_close(wf_nn_cache *cache);

/** wf_nn_cache_switch - forward passes from now on go on with what a cache keeps, or begin anew
 * (NULL); returns the last. */
WF_API wf_nn_cache *wf_nn_cache_switch(wf_context *ctx, wf_nn_cache *cache);

/**
 * wf_nn_cache_at - the next forward pass has `batch` sequences of `tokens` tokens each, at
 * these places
 *
 * What a slot holds from `first` on is written over: a sequence is shortened, or another one
 * takes its slot, by going on further ahead.
 *
 * @param place  [batch], each of another slot
 * Errors:       WF_EINVAL (a place that the cache has not), WF_ENOMEM
 */
WF_API wf_status wf_nn_cache_at(wf_nn_cache *cache, int64_t batch, int64_t tokens,
                                const wf_nn_cache_place *place);

/** wf_nn_cache_now - the cache that is switched to, or NULL. For modules. */
WF_API wf_nn_cache *wf_nn_cache_now(wf_context *ctx);

/** wf_nn_cache_positions - the places of the tokens, i32 [batch, tokens], as wf_rope_at takes
 * them. Owner: the cache. For modules. */
WF_API wf_tensor *wf_nn_cache_positions(const wf_nn_cache *cache);

/**
 * wf_nn_cache_attention - write keys and values of a module's tokens, and attend to all that
 * its slots have. For modules.
 *
 * @param module   whose keys and values these are
 * @param q, k, v  as for wf_attention, split over heads at most
 * @param window   as in wf_attention_options
 * Gradient:       none
 * Errors:         those of wf_cache_write and wf_attention_cached
 */
WF_API wf_tensor *wf_nn_cache_attention(wf_nn_cache *cache, const wf_nn_module *module,
                                        wf_tensor *q, wf_tensor *k, wf_tensor *v,
                                        int64_t window);

WF_END_DECLS

#endif

/*
 * kernels/cuda/attention_walk_internal.h - which keys the queries of a block see, and the tiles
 * of keys that the block goes through. For .cu files.
 *
 * Tiles count from where a document or chunk begins, the origin of its queries: so these have
 * the bits that they have alone.
 */
#ifndef WF_KERNELS_CUDA_ATTENTION_WALK_INTERNAL_H
#define WF_KERNELS_CUDA_ATTENTION_WALK_INTERNAL_H

#include "kernels/cuda/attention_pairs_internal.h"

enum { NO_TOKEN = 0x7fffffff };

/* Returns the least of a warp's numbers. */
static __device__ __forceinline__ int least_of_warp(int x)
{
#pragma unroll
    for (int step = WF_WARP / 2; step > 0; step /= 2) {
        const int other = __shfl_xor_sync(0xffffffffu, x, step);

        x = other < x ? other : x;
    }
    return x;
}

/* A query sees keys from `from` on and before `end`, of which tiles count from `origin`
   (origin_of). */
struct query_view {
    int from, end, origin;
};

/* Returns the view of a query; one that is not there sees nothing. */
static __device__ __forceinline__ query_view view_of(const wf_cuda_heads &a, int query)
{
    const int keys = (int)keys_of(a);

    if (query >= end_of(a.query_tokens))
        return {0, 0, NO_TOKEN};
    if (a.bidirectional)
        return {0, keys, 0};
    return {is_bounded(a) ? (int)from_of(a, query) : 0, query < keys ? query + 1 : keys,
            (int)origin_of(a, query)};
}

/* Returns n bits. */
static __device__ __forceinline__ uint64_t low_bits(int n)
{
    return n <= 0 ? 0 : n >= 64 ? ~(uint64_t)0 : ((uint64_t)1 << n) - 1;
}

/* Returns which of the 64 keys from `key` on a query sees, a bit each; `shown`: those that a
   mask leaves. */
static __device__ __forceinline__ uint64_t seen_bits(const query_view &v, int key,
                                                     uint64_t shown)
{
    return low_bits(v.end - key) & ~low_bits(v.from - key) & shown;
}

/* Returns which of the 64 keys from `key` on a mask leaves; a warp asks as one. */
static __device__ __forceinline__ uint64_t shown_bits(const wf_cuda_heads &a, int key)
{
    const float *mask = a.mask + (int64_t)blockIdx.z * keys_of(a);
    uint64_t bits = 0;

    if (!a.mask)
        return ~(uint64_t)0;
#pragma unroll
    for (int i = 0; i < 64; i += WF_WARP) {
        const int own = key + i + (int)threadIdx.x % WF_WARP;
        const bool is_shown = own < keys_of(a) && mask[own] != 0.0f;

        bits |= (uint64_t)__ballot_sync(0xffffffffu, is_shown) << i;
    }
    return bits;
}

/* A tile of keys that queries of one origin see; `own`: some of the thread's part may. */
struct key_tile {
    int key, origin;
    bool own, any;
};

/* Some keys, from `from` on and before `end`. */
struct key_span {
    int from, end;
};

/* Returns what a warp's spans reach. */
static __device__ __forceinline__ key_span span_of_warp(const key_span &s)
{
    return {least_of_warp(s.from), -least_of_warp(-s.end)};
}

static __device__ __forceinline__ void widen(key_span *s, const query_view &v)
{
    s->from = v.from < s->from ? v.from : s->from;
    s->end = v.end > s->end ? v.end : s->end;
}

/* The tiles of keys that a block's queries see, one after the other: those of the queries of
   each origin, from the least on. view(row) is that of the block's query number row. */
template <class V> struct key_walk {
    V view;
    int origin, at, end; /* the keys that are left of this origin */
    key_span own;        /* the keys that the thread's part sees */
};

template <class V> static __device__ __forceinline__ key_walk<V> walk_keys(V view)
{
    return {view, -1, 0, 0, {0, 0}};
}

/* Takes the queries of the least origin after the walk's; false: there are none. S: the shape
   of the block (attention_tensor_internal.h). */
template <class S, class V>
static __device__ __forceinline__ bool next_origin(key_walk<V> *w, int keys_of_tile)
{
    const int lane = (int)threadIdx.x % WF_WARP;
    key_span all = {NO_TOKEN, 0}, own = {NO_TOKEN, 0};
    int origin = NO_TOKEN;

#pragma unroll 1 /* it is rare, and sums have the registers */
    for (int row = lane; row < S::OWN; row += WF_WARP) {
        const int of_row = w->view(row).origin;

        origin = of_row > w->origin && of_row < origin ? of_row : origin;
    }
    origin = least_of_warp(origin);
    if (origin == NO_TOKEN)
        return false;
#pragma unroll 1 /* it is rare, and sums have the registers */
    for (int row = lane; row < S::OWN; row += WF_WARP) {
        const query_view view = w->view(row);

        if (view.origin == origin) {
            widen(&all, view);
            if (row / S::ROWS == S::part())
                widen(&own, view);
        }
    }
    all = span_of_warp(all);
    w->own = span_of_warp(own);
    w->origin = origin;
    w->at = origin + (all.from - origin) / keys_of_tile * keys_of_tile;
    w->end = all.end;
    return true;
}

template <class S, int KEYS, class V>
static __device__ __forceinline__ key_tile next_keys(key_walk<V> *w)
{
    int key;

    while (w->at >= w->end)
        if (!next_origin<S>(w, KEYS))
            return {0, 0, false, false};
    key = w->at;
    w->at += KEYS;
    return {key, w->origin, key < w->own.end && key + KEYS > w->own.from, true};
}

#endif

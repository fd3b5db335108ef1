/*
 * kernels/cuda/attention_tensor_internal.h - the pieces that attention's kernels of bf16 are
 * made of, on tensor cores. For .cu files.
 *
 * A block of four warps has a tile of 64 tokens of its own, 16 for each warp, and goes through
 * tiles of the other side, which come by two stages. Rows of a fragment depend on nothing else
 * in it, and 16 terms are added by one instruction, so terms of a sum are taken in groups of 16
 * that count from where a document or chunk begins: an element is one expression wherever its
 * head, its sequence and its document are computed.
 *
 * A tile is blocks of 64 features, a token's in a line of 128 bytes (tensor_tile_internal.h).
 * A warp's scores are fragments of 16 x 8: a thread has of the n-th, at 4 n, columns 8 n + 2 t
 * and one more of row g, then of row g + 8, where its lane is 4 g + t.
 */
#ifndef WF_KERNELS_CUDA_ATTENTION_TENSOR_INTERNAL_H
#define WF_KERNELS_CUDA_ATTENTION_TENSOR_INTERNAL_H

#include "kernels/cuda/attention_pairs_internal.h"
#include "kernels/cuda/tensor_fragment_internal.h"

enum {
    OWN = 64, /* tokens of a block's own tile */
    OWN_OF_WARP = 16,
    ATTENTION_THREADS = OWN / OWN_OF_WARP * WF_WARP,
    NO_TOKEN = 0x7fffffff
};

/* Returns the first of the thread's two rows of the block's tile. */
static __device__ __forceinline__ int row_of_thread(void)
{
    return (int)threadIdx.x / WF_WARP * OWN_OF_WARP + (int)threadIdx.x % WF_WARP / 4;
}

/* ---- tiles ---- */

/* Returns the bytes of a tile of some tokens. */
template <int DIM> static constexpr __host__ __device__ int bytes_of_tokens(int tokens)
{
    return tokens * DIM * (int)sizeof(wf_bf16);
}

/* Returns the block of a tile of LINES tokens that has a feature. */
template <int LINES>
static __device__ __forceinline__ const char *block_of(const char *tile, int feature)
{
    return tile + feature / WF_TILE_DEPTH * (LINES * WF_TILE_LINE);
}

/* LINES tokens from `first` on of a head that begins at element `at`, on their way to a tile,
   zeros for those that are not there and past dim. */
template <int LINES, int DIM>
static __device__ __forceinline__ void load_tokens(char *tile, const void *data, int64_t at,
                                                   int64_t stride, int first,
                                                   const wf_cuda_tokens &t,
                                                   const wf_cuda_heads &a)
{
#pragma unroll
    for (int d = 0; d < DIM; d += WF_TILE_DEPTH)
        if (d < a.dim)
            wf_load_tile<LINES, ATTENTION_THREADS, true>(
                tile + d * LINES * (int)sizeof(wf_bf16), (const wf_bf16 *)data + at, stride,
                first - t.first, t.count, d, a.dim, (int)threadIdx.x);
}

/* Tokens of two arrays of a head, such as keys and values, on their way to a stage; `any`
   false: none, which is a group of copies too, since waits count them. */
template <int LINES, int DIM>
static __device__ __forceinline__ void load_pair(char *stage, const void *one,
                                                 const void *other, int64_t at, int64_t stride,
                                                 int first, const wf_cuda_tokens &t,
                                                 const wf_cuda_heads &a, bool any)
{
    if (any) {
        load_tokens<LINES, DIM>(stage, one, at, stride, first, t, a);
        load_tokens<LINES, DIM>(stage + bytes_of_tokens<DIM>(LINES), other, at, stride, first,
                                t, a);
    }
    wf_copy_commit();
}

/* s = the warp's 16 tokens of `own` times the N tokens of `other`, each over all features. */
template <int N, int DIM>
static __device__ __forceinline__ void multiply_tokens(float (&s)[N / 2], const char *own,
                                                       const char *other, int dim)
{
    const int lane = (int)threadIdx.x % WF_WARP;
    const int row = (int)threadIdx.x / WF_WARP * OWN_OF_WARP; /* the warp's first */

    wf_clear(s);
#pragma unroll 4 /* registers have no room for the fragments of all at once */
    for (int d = 0; d < DIM; d += WF_TILE_STEP) {
        uint32_t x[4], y[4];

        if (d >= dim)
            continue;
        wf_load_fragment<true>(x, block_of<OWN>(own, d), row, d % WF_TILE_DEPTH, lane, true);
#pragma unroll
        for (int n = 0; n < N; n += 16) {
            wf_load_fragment<true>(y, block_of<N>(other, d), n, d % WF_TILE_DEPTH, lane, false);
            wf_multiply_fragments<2>(s + n / 2, x, y);
        }
    }
}

/* The scores of 16 rows and N tokens, rounded to bf16, as factors of a product. */
template <int N>
static __device__ __forceinline__ void round_scores(uint32_t (&p)[N / 4],
                                                    const float (&s)[N / 2])
{
#pragma unroll
    for (int i = 0; i < N / 4; i++)
        p[i] = wf_bf16_pair(s[2 * i], s[2 * i + 1]);
}

/* sum += p times the features of N tokens, 16 tokens an instruction, in ascending order. */
template <int N, int DIM>
static __device__ __forceinline__ void add_tokens(float (&sum)[DIM / 2],
                                                  const uint32_t (&p)[N / 4],
                                                  const char *tokens, int dim)
{
    const int lane = (int)threadIdx.x % WF_WARP;

#pragma unroll
    for (int n = 0; n < N; n += WF_TILE_STEP)
#pragma unroll
        for (int d = 0; d < DIM; d += 16) {
            uint32_t y[4];

            if (d >= dim)
                continue;
            wf_load_fragment<false>(y, block_of<N>(tokens, d), d % WF_TILE_DEPTH, n, lane,
                                    false);
            wf_multiply_fragments<2>(sum + d / 2, p + n / 4, y);
        }
}

/* ---- what queries see ---- */

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

/* A tile of keys that queries of one origin see. */
struct key_tile {
    int key, origin;
    bool any;
};

/* The tiles of keys that a block's queries see, one after the other: those of the queries of
   each origin, from the least on. A lane knows two queries. */
struct key_walk {
    query_view own[2];
    int origin, at, end; /* the keys that are left of this origin */
};

static __device__ __forceinline__ key_walk walk_keys(const query_view &one,
                                                     const query_view &other)
{
    return {{one, other}, -1, 0, 0};
}

/* Takes the queries of the least origin after the walk's; false: there are none. */
static __device__ __forceinline__ bool next_origin(key_walk *w, int keys_of_tile)
{
    int origin = NO_TOKEN, from = NO_TOKEN, end = 0;

#pragma unroll
    for (int i = 0; i < 2; i++)
        if (w->own[i].origin > w->origin && w->own[i].origin < origin)
            origin = w->own[i].origin;
    origin = least_of_warp(origin);
    if (origin == NO_TOKEN)
        return false;
#pragma unroll
    for (int i = 0; i < 2; i++)
        if (w->own[i].origin == origin) {
            from = w->own[i].from < from ? w->own[i].from : from;
            end = w->own[i].end > end ? w->own[i].end : end;
        }
    from = least_of_warp(from);
    w->origin = origin;
    w->at = origin + (from - origin) / keys_of_tile * keys_of_tile;
    w->end = -least_of_warp(-end);
    return true;
}

template <int KEYS> static __device__ __forceinline__ key_tile next_keys(key_walk *w)
{
    while (w->at >= w->end)
        if (!next_origin(w, KEYS))
            return {0, 0, false};
    w->at += KEYS;
    return {w->at - KEYS, w->origin, true};
}

/* ---- scores ---- */

/* The scores of 16 rows and N columns, N / 2 of them a thread's: rows are queries and columns
   keys, or with BY_KEYS the other way round. A set of a thread's scores is a bit each. */

/* Returns the set of those whose keys are seen: seen[r] has the keys of row g + 8 r. */
template <int N>
static __device__ __forceinline__ uint32_t seen_scores(const uint64_t (&seen)[2])
{
    const int column = (int)threadIdx.x % 4 * 2;
    const uint64_t bits[2] = {seen[0] >> column, seen[1] >> column};
    uint32_t set = 0;

    static_assert(N <= 64, "a set has 32 bits");
    if ((~(seen[0] & seen[1]) & low_bits(N)) == 0)
        return 0xffffffffu;
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        set |= (uint32_t)(bits[i / 2 % 2] >> (i / 4 * 8 + i % 2) & 1) << i;
    return set;
}

/* Returns the query of a thread's score i: `query` is that of row g, or of column 0. */
template <bool BY_KEYS> static __device__ __forceinline__ int query_at(int query, int i)
{
    const int column = (int)threadIdx.x % 4 * 2;

    return query + (BY_KEYS ? i / 4 * 8 + column + i % 2 : i / 2 % 2 * 8);
}

template <bool BY_KEYS> static __device__ __forceinline__ int key_at(int key, int i)
{
    return query_at<!BY_KEYS>(key, i);
}

/* Products become scores (score_of); biases are read of those in the set. */
template <int N, bool BY_KEYS>
static __device__ __forceinline__ void score_products(float (&s)[N / 2], const wf_cuda_heads &a,
                                                      int query, int key, uint32_t set)
{
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        s[i] *= a.scale;
    if (a.cap > 0.0f) {
#pragma unroll
        for (int i = 0; i < N / 2; i++)
            s[i] = a.cap * tanhf(s[i] / a.cap);
    }
    if (!a.bias)
        return;
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        if (set >> i & 1)
            s[i] += bias_of(a, query_at<BY_KEYS>(query, i), key_at<BY_KEYS>(key, i));
}

/* ---- results ---- */

/* Returns where two features of a token of a tile lie. */
static __device__ __forceinline__ char *features_at(char *tile, int token, int feature)
{
    return const_cast<char *>(block_of<OWN>(tile, feature)) + token * WF_TILE_LINE +
           ((feature % WF_TILE_DEPTH / 8 ^ token % 8) * 16) + feature % 8 * 2;
}

/* Rows of bf16, by the warp's own 16 tokens of a tile, whose copies have come; to_of(token)
   gives where a token's go, NULL: it is not there. */
template <int DIM, class F>
static __device__ __forceinline__ void put_packs(const float (&sum)[DIM / 2], char *tile,
                                                 int dim, F to_of)
{
    constexpr int PACK = wf_pack<wf_bf16>::N;
    const int lane = (int)threadIdx.x % WF_WARP, packs = dim / PACK;
    const int own = (int)threadIdx.x / WF_WARP * OWN_OF_WARP;

    __syncwarp();
#pragma unroll
    for (int i = 0; i < DIM / 2; i += 2) {
        const int token = row_of_thread() + i / 2 % 2 * 8, feature = i / 4 * 8 + lane % 4 * 2;

        if (i / 4 * 8 < dim)
            *(uint32_t *)features_at(tile, token, feature) =
                wf_bf16_pair(sum[i] + 0.0f, sum[i + 1] + 0.0f);
    }
    __syncwarp();
    for (int i = lane; i < OWN_OF_WARP * packs; i += WF_WARP) {
        const int token = own + i / packs, feature = i % packs * PACK;
        wf_bf16 *to = to_of(token);

        if (to)
            *(uint4 *)(to + feature) = *(const uint4 *)features_at(tile, token, feature);
    }
    __syncwarp();
}

template <int DIM>
static __device__ __forceinline__ void put_floats(const float (&sum)[DIM / 2], float *head,
                                                  int64_t stride, int64_t first, int64_t count,
                                                  int dim)
{
    const int column = (int)threadIdx.x % 4 * 2;

#pragma unroll
    for (int i = 0; i < DIM / 2; i += 2) {
        const int64_t row = first + row_of_thread() + i / 2 % 2 * 8;

        if (row < count && i / 4 * 8 < dim)
            *(float2 *)(head + row * stride + i / 4 * 8 + column) =
                make_float2(sum[i] + 0.0f, sum[i + 1] + 0.0f);
    }
}

/* The block's tokens from `first` on, those that are there, to a head that begins at element
   `at`; zeros are +0, as those of a sum over the heads of a group are. */
template <int DIM>
static __device__ __forceinline__ void put_tokens(const float (&sum)[DIM / 2], void *data,
                                                  wf_dtype type, int64_t at, int64_t stride,
                                                  int first, const wf_cuda_tokens &t,
                                                  char *tile, int dim)
{
    const int64_t row = first - t.first;

    if (type == WF_BF16)
        put_packs<DIM>(sum, tile, dim, [&](int token) {
            return row + token < t.count ? (wf_bf16 *)data + at + (row + token) * stride : NULL;
        });
    else
        put_floats<DIM>(sum, (float *)data + at, stride, row, t.count, dim);
}

/* ---- launches ---- */

/* A kernel over tiles of tokens of all heads and sequences. */
static inline cudaError_t launch_attention(void (*kernel)(wf_cuda_heads), int64_t tokens,
                                           int bytes, cudaStream_t stream,
                                           const wf_cuda_heads *a)
{
    dim3 grid((unsigned)wf_ceil(tokens, OWN), (unsigned)a->heads, (unsigned)a->batch);
    cudaError_t status =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);

    return status ? status : wf_launch(kernel, grid, ATTENTION_THREADS, bytes, stream, *a);
}

#endif

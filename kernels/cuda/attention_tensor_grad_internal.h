/*
 * kernels/cuda/attention_tensor_grad_internal.h - the gradient of attention_grad.cu for bf16,
 * on tensor cores: p and ds are computed in floats and rounded to bf16 for their products
 * alone. dq is by tiles of queries, going through the keys; dk and dv of a query head are by
 * tiles of keys, going through the queries. No element has two owners. For .cu files.
 *
 * What a key is given comes in groups of 16 queries that count from where their document or
 * chunk begins, as keys do for a query, so that these have the bits that they have alone.
 */
#ifndef WF_KERNELS_CUDA_ATTENTION_TENSOR_GRAD_INTERNAL_H
#define WF_KERNELS_CUDA_ATTENTION_TENSOR_GRAD_INTERNAL_H

#include "kernels/cuda/attention_tensor_internal.h"

namespace
{

/* Makes of the score of a pair p and, from v . dy, ds before its factor 1 / sqrt(dim); both 0
   where the query does not see the key. */
__device__ __forceinline__ void gradient_terms(float &p, float &ds, bool seen, float kept,
                                               float lse, float delta, const wf_cuda_heads &a)
{
    const float capped = a.cap > 0.0f ? p / a.cap : 0.0f;
    const float x = seen ? wf_exp_of(p - lse) : 0.0f;

    ds = seen ? x * (kept * ds - delta) * (1.0f - capped * capped) : 0.0f;
    p = kept * x;
}

/* Returns dropout's factor of a pair; 1 where it does not count. */
__device__ __forceinline__ float kept_of(const wf_cuda_heads &a, bool seen, int query, int key)
{
    return seen && a.threshold ? keep(a, blockIdx.y, blockIdx.z, query, key) : 1.0f;
}

/* Numbers of a query. */
struct query_numbers {
    float lse, delta;
};

/* Products become p and ds of a thread's pairs; of_pair(i) gives the numbers of a pair's
   query. */
template <int N, bool BY_KEYS, class F>
__device__ __forceinline__ void make_terms(float (&p)[N / 2], float (&ds)[N / 2],
                                           const wf_cuda_heads &a, int query, int key,
                                           uint32_t set, F of_pair)
{
    score_products<N, BY_KEYS>(p, a, query, key, set);
#pragma unroll
    for (int i = 0; i < N / 2; i++) {
        const bool seen = set >> i & 1;
        const query_numbers own = of_pair(i);

        gradient_terms(p[i], ds[i], seen,
                       kept_of(a, seen, query_at<BY_KEYS>(query, i), key_at<BY_KEYS>(key, i)),
                       own.lse, own.delta, a);
    }
}

template <int N> __device__ __forceinline__ void scale_terms(float (&ds)[N / 2], float by)
{
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        ds[i] *= by;
}

/* ---- dq ---- */

/* The gradient of the bias, of pairs in the set; the others are 0 already. */
template <int N>
__device__ __forceinline__ void put_bias_terms(const float (&ds)[N / 2], int query, int key,
                                               uint32_t set, const wf_cuda_heads &a)
{
    const int64_t matrix = blockIdx.z * a.heads + blockIdx.y;

#pragma unroll
    for (int i = 0; i < N / 2; i++)
        if (set >> i & 1)
            a.dbias[pair_at(a, matrix, query_at<false>(query, i), key_at<false>(key, i))] =
                ds[i] + 0.0f;
}

template <class S, int DIM>
__global__ void __launch_bounds__(S::THREADS, 1)
    tensor_dq_kernel(const WF_GRID_CONSTANT wf_cuda_heads a)
{
    constexpr int KEYS = S::streamed(DIM);
    constexpr int TILE = bytes_of_tokens<DIM>(S::OWN), HALF = bytes_of_tokens<DIM>(KEYS);
    WF_DYNAMIC_SHARED(char, shared);
    char *queries = S::aligned(shared), *dys = queries + TILE, *stages = dys + TILE;
    const int64_t head = head_at(a, a.query_tokens), stride = a.heads * a.dim;
    const int first = (int)(a.dq_tokens.first + (gridDim.x - 1 - blockIdx.x) * (int64_t)S::OWN);
    const int query = first + row_of_thread();
    const query_view view[2] = {view_of(a, query), view_of(a, query + 8)};
    const query_numbers own[2] = {
        {of_query(a.lse, query, a), of_query(a.delta, query, a)},
        {of_query(a.lse, query + 8, a), of_query(a.delta, query + 8, a)}};
    const int dim = (int)a.dim;
    const int64_t at = group_at(a, a.key_tokens), k_stride = a.groups * a.dim;
    auto walk = walk_keys([&](int row) { return view_of(a, first + row); });
    key_tile tile = next_keys<S, KEYS>(&walk);
    float dq[DIM / 2];

    wf_clear(dq);
    load_tokens<S, S::OWN, DIM>(queries, a.q, head, stride, first, a.query_tokens, a);
    load_tokens<S, S::OWN, DIM>(dys, a.dy, head, stride, first, a.query_tokens, a);
    load_pair<S, KEYS, DIM>(stages, a.k, a.v, at, k_stride, tile.key, a.key_tokens, a,
                            tile.any);
    for (int stage = 0; tile.any; stage ^= 1) {
        const key_tile next = next_keys<S, KEYS>(&walk);
        const char *keys = stages + stage * 2 * HALF;

        wf_copy_wait<0>();
        S::tiles_are_written();
        __syncthreads(); /* the tile before has been read, too */
        load_pair<S, KEYS, DIM>(stages + (stage ^ 1) * 2 * HALF, a.k, a.v, at, k_stride,
                                next.key, a.key_tokens, a, next.any);
        if (tile.own) {
            const uint32_t set = seen_of_tile<KEYS>(a, view, tile);
            uint32_t terms[KEYS / 4];
            float p[KEYS / 2], ds[KEYS / 2];

            S::template multiply<KEYS, DIM>(p, queries, keys, dim);
            S::template multiply<KEYS, DIM>(ds, dys, keys + HALF, dim);
            S::wait();
            make_terms<KEYS, false>(p, ds, a, query, tile.key, set,
                                    [&](int i) { return own[i / 2 % 2]; });
            if (a.dbias)
                put_bias_terms<KEYS>(ds, query, tile.key, set, a);
            scale_terms<KEYS>(ds, a.scale);
            round_scores<KEYS>(terms, ds);
            S::template add<KEYS, DIM>(dq, terms, keys, dim);
            S::wait();
        }
        tile = next;
    }
    wf_copy_wait<0>();
    __syncthreads();
    put_tokens<S, DIM>(dq, a.dq, WF_BF16, head_at(a, a.dq_tokens), stride, first, a.dq_tokens,
                       queries, dim);
}

/* ---- dk and dv ---- */

/* A tile of queries of one origin, of which those from `from` on and before `end` count. */
struct query_tile {
    int query, from, end;
    bool any;
};

/* The tiles of queries that see a block's keys, one after the other. */
template <class S> struct query_walk {
    enum { HALVES = S::OWN / 64 }; /* sets of keys that have a bit each */
    int key;                       /* the first */
    int at, end;
    uint64_t shown[HALVES];

    /* Returns which of a half's keys a query sees. */
    __device__ __forceinline__ uint64_t seen_by(const query_view &v, int half) const
    {
        return seen_bits(v, key + 64 * half, shown[half]);
    }
};

template <class S>
__device__ __forceinline__ query_walk<S> walk_queries(const wf_cuda_heads &a, int key)
{
    const int64_t all = end_of(a.query_tokens), reach = a.window < 0 ? -a.window : a.window;
    const int64_t last = reach ? key + S::OWN - 1 + reach : all; /* no later one sees these */
    query_walk<S> w = {key, a.bidirectional ? 0 : key, (int)(last < all ? last : all), {}};

#pragma unroll
    for (int half = 0; half < w.HALVES; half++)
        w.shown[half] = shown_bits(a, key + 64 * half);
    return w;
}

/* A tile's queries are a lane's each; it begins where a group of 16 does. */
template <int QUERIES, class S>
__device__ __forceinline__ query_tile next_queries(const wf_cuda_heads &a, query_walk<S> *w)
{
    static_assert(QUERIES <= WF_WARP, "a lane has one of them");
    while (w->at < w->end) {
        const int origin = view_of(a, w->at).origin;
        query_tile t = {origin + (w->at - origin) / WF_TILE_STEP * WF_TILE_STEP, w->at, 0,
                        true};
        const int own = t.query + (int)threadIdx.x % WF_WARP;
        const query_view view = view_of(a, own);
        const bool counts = own >= t.from && own < t.query + QUERIES && view.origin == origin;
        const unsigned others = __ballot_sync(0xffffffffu, own >= t.from && !counts);
        uint64_t seen = 0;

        t.end = others ? t.query + __ffs((int)others) - 1 : t.query + QUERIES;
        w->at = t.end;
#pragma unroll
        for (int half = 0; half < w->HALVES; half++)
            seen |= w->seen_by(view, half);
        if (__any_sync(0xffffffffu, counts && own < t.end && seen != 0))
            return t;
    }
    return {0, 0, 0, false};
}

/* A query of a tile, for the block's keys: `seen` has a bit for each that it sees. */
template <class S> struct __align__(16) query_terms
{
    query_numbers own;
    uint64_t seen[query_walk<S>::HALVES];
};

/* Queries of a tile on their way to a stage. */
template <class S, int QUERIES, int DIM>
__device__ __forceinline__ void load_queries(char *stage, query_terms<S> *terms,
                                             const query_tile &tile, const query_walk<S> &w,
                                             const wf_cuda_heads &a)
{
    const int own = tile.query + (int)threadIdx.x;

    load_pair<S, QUERIES, DIM>(stage, a.q, a.dy, head_at(a, a.query_tokens), a.heads * a.dim,
                               tile.query, a.query_tokens, a, tile.any);
    if (tile.any && threadIdx.x < QUERIES) {
        const bool counts = own >= tile.from && own < tile.end;
        query_terms<S> *to = &terms[threadIdx.x];

        to->own = {of_query(a.lse, own, a), of_query(a.delta, own, a)};
#pragma unroll
        for (int half = 0; half < w.HALVES; half++)
            to->seen[half] = counts ? w.seen_by(view_of(a, own), half) : 0;
    }
}

/* Rows of the thread's pairs are keys here, columns are queries: returns that of pair i. */
template <class S>
__device__ __forceinline__ const query_terms<S> &query_of_pair(const query_terms<S> *terms,
                                                               int i)
{
    return terms[query_at<true>(0, i)];
}

/* Returns the set of the thread's pairs that see each other. */
template <int QUERIES, class S>
__device__ __forceinline__ uint32_t seen_by_queries(const query_terms<S> *terms)
{
    const int row = row_of_thread(), half = S::OWN > 64 ? row / 64 : 0;
    uint32_t set = 0;

#pragma unroll
    for (int i = 0; i < QUERIES / 2; i++)
        set |= (uint32_t)(query_of_pair(terms, i).seen[half] >> row % 64 >> i / 2 % 2 * 8 & 1)
               << i;
    return set;
}

/* Returns whether a query of a tile sees a key of the thread's part, whose warps ask as one;
   `set`: the thread's pairs that do. */
template <int QUERIES, class S>
__device__ __forceinline__ bool part_is_seen(const query_terms<S> *terms, uint32_t set)
{
    const int lane = (int)threadIdx.x % WF_WARP, half = S::part() * S::ROWS / 64;

    static_assert((int)S::ROWS == (int)ROWS_OF_WARP || S::ROWS == 64,
                  "a warp's rows, or a half");
    if ((int)S::ROWS == (int)ROWS_OF_WARP)
        return __any_sync(0xffffffffu, set != 0);
    return __any_sync(0xffffffffu, lane < QUERIES && terms[lane].seen[half] != 0);
}

/* The output of a head's dk or dv: the result, or the buffer from which a group's are
   summed. */
template <class S, int DIM>
__device__ __forceinline__ void put_key_tokens(const float (&sum)[DIM / 2], void *result,
                                               void *parts, int first, char *tile,
                                               const wf_cuda_heads &a)
{
    if (parts)
        put_tokens<S, DIM>(sum, parts, WF_F32, head_at(a, a.dk_tokens), a.heads * a.dim, first,
                           a.dk_tokens, tile, (int)a.dim);
    else
        put_tokens<S, DIM>(sum, result, a.dk_type, group_at(a, a.dk_tokens), a.groups * a.dim,
                           first, a.dk_tokens, tile, (int)a.dim);
}

/* DK, DV: which of the two; registers have no room for both of more than 128 dims. */
template <class S, int DIM, bool DK, bool DV>
__global__ void __launch_bounds__(S::THREADS, 1)
    tensor_dkv_kernel(const WF_GRID_CONSTANT wf_cuda_heads a)
{
    constexpr int QUERIES = S::streamed(DIM);
    constexpr int TILE = bytes_of_tokens<DIM>(S::OWN), HALF = bytes_of_tokens<DIM>(QUERIES);
    WF_DYNAMIC_SHARED(char, shared);
    char *keys = S::aligned(shared), *values = keys + TILE, *stages = values + TILE;
    query_terms<S> *terms = (query_terms<S> *)(stages + 4 * HALF);
    const int64_t at = group_at(a, a.key_tokens), stride = a.groups * a.dim;
    const int first = (int)(a.dk_tokens.first + blockIdx.x * (int64_t)S::OWN);
    const int key = first + row_of_thread(), dim = (int)a.dim;
    query_walk<S> walk = walk_queries<S>(a, first);
    query_tile tile = next_queries<QUERIES>(a, &walk);
    float dk[DIM / 2], dv[DIM / 2];

    wf_clear(dk);
    wf_clear(dv);
    load_tokens<S, S::OWN, DIM>(keys, a.k, at, stride, first, a.key_tokens, a);
    load_tokens<S, S::OWN, DIM>(values, a.v, at, stride, first, a.key_tokens, a);
    load_queries<S, QUERIES, DIM>(stages, terms, tile, walk, a);
    for (int stage = 0; tile.any; stage ^= 1) {
        const query_tile next = next_queries<QUERIES>(a, &walk);
        const char *queries = stages + stage * 2 * HALF, *dys = queries + HALF;
        const query_terms<S> *own = terms + stage * QUERIES;
        uint32_t set;

        wf_copy_wait<0>();
        S::tiles_are_written();
        __syncthreads(); /* the tile before has been read, too */
        load_queries<S, QUERIES, DIM>(stages + (stage ^ 1) * 2 * HALF,
                                      terms + (stage ^ 1) * QUERIES, next, walk, a);
        set = seen_by_queries<QUERIES>(own);
        if (part_is_seen<QUERIES>(own, set)) {
            uint32_t of_v[QUERIES / 4], of_k[QUERIES / 4];
            float p[QUERIES / 2], ds[QUERIES / 2];

            S::template multiply<QUERIES, DIM>(p, keys, queries, dim);
            if (DK)
                S::template multiply<QUERIES, DIM>(ds, values, dys, dim);
            else
                wf_clear(ds);
            S::wait();
            make_terms<QUERIES, true>(p, ds, a, tile.query, key, set,
                                      [&](int i) { return query_of_pair(own, i).own; });
            if (DV) {
                round_scores<QUERIES>(of_v, p);
                S::template add<QUERIES, DIM>(dv, of_v, dys, dim);
            }
            if (DK) {
                scale_terms<QUERIES>(ds, a.scale);
                round_scores<QUERIES>(of_k, ds);
                S::template add<QUERIES, DIM>(dk, of_k, queries, dim);
            }
            S::wait();
        }
        tile = next;
    }
    wf_copy_wait<0>();
    __syncthreads();
    if (DK)
        put_key_tokens<S, DIM>(dk, a.dk, a.dk_parts, first, keys, a);
    if (DV)
        put_key_tokens<S, DIM>(dv, a.dv, a.dv_parts, first, values, a);
}

template <class S, int DIM> cudaError_t launch_dq(cudaStream_t stream, const wf_cuda_heads *a)
{
    return launch_attention<S>(tensor_dq_kernel<S, DIM>, a->dq_tokens.count,
                               bytes_of_tokens<DIM>(2 * S::OWN + 4 * S::streamed(DIM)), stream,
                               a);
}

template <class S, int DIM, bool DK, bool DV>
cudaError_t launch_dkv(cudaStream_t stream, const wf_cuda_heads *a)
{
    return launch_attention<S>(tensor_dkv_kernel<S, DIM, DK, DV>, a->dk_tokens.count,
                               bytes_of_tokens<DIM>(2 * S::OWN + 4 * S::streamed(DIM)) +
                                   2 * S::streamed(DIM) * (int)sizeof(query_terms<S>),
                               stream, a);
}

/* dq, and each query head's dk and dv, from delta. */
template <class S> cudaError_t launch_gradients(cudaStream_t stream, const wf_cuda_heads *a)
{
    cudaError_t status = a->dim <= 64    ? launch_dq<S, 64>(stream, a)
                         : a->dim <= 128 ? launch_dq<S, 128>(stream, a)
                                         : launch_dq<S, 256>(stream, a);

    if (status != cudaSuccess)
        return status;
    if (a->dim <= 64)
        return launch_dkv<S, 64, true, true>(stream, a);
    if (a->dim <= 128)
        return launch_dkv<S, 128, true, true>(stream, a);
    status = launch_dkv<S, 256, true, false>(stream, a);
    return status ? status : launch_dkv<S, 256, false, true>(stream, a);
}

} // namespace

#endif

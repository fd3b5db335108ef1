/*
 * kernels/cuda/attention_tensor_grad.cu - the gradient of attention_grad.cu for bf16, on tensor
 * cores: p and ds are computed in floats and rounded to bf16 for their products alone. dq is by
 * tiles of queries, going through the keys; dk and dv of a query head are by tiles of keys,
 * going through the queries. No element has two owners.
 *
 * What a key is given comes in groups of 16 queries that count from where their document or
 * chunk begins, as keys do for a query, so that these have the bits that they have alone.
 */
#include "kernels/cuda/attention_tensor_internal.h"

namespace
{

/* Returns the tokens of a tile of the other side: of more than 128 dims registers have room for
   the scores of 16. Groups of 16 are added one after the other, so bits do not depend on it. */
constexpr __host__ __device__ int streamed_tokens(int dim)
{
    return dim > 128 ? 16 : 32;
}

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

/* ---- delta ---- */

/* delta = y . dy: a row has as many lanes as its packs, up to the next power of two, a pack
   each. */
__global__ void __launch_bounds__(WF_BLOCK)
    tensor_delta_kernel(const WF_GRID_CONSTANT wf_cuda_heads a)
{
    constexpr int PACK = wf_pack<wf_bf16>::N;
    const int64_t rows = a.batch * a.query_tokens.count * a.heads;
    const int packs = (int)a.dim / PACK, lanes = packs > 16 ? 32 : packs > 8 ? 16 : 8;
    const int own = (int)threadIdx.x % lanes, per_block = WF_BLOCK / lanes;

    for (int64_t first = blockIdx.x * (int64_t)per_block; first < rows;
         first += gridDim.x * (int64_t)per_block) {
        const int64_t row = first + (int)threadIdx.x / lanes, at = row * a.dim + own * PACK;
        float sum = 0.0f;

        if (row < rows && own < packs) {
            const wf_pack<wf_bf16> one = wf_read((const wf_bf16 *)a.y + at, PACK, true);
            const wf_pack<wf_bf16> other = wf_read((const wf_bf16 *)a.dy + at, PACK, true);
            float y[PACK], dy[PACK];

            wf_unpack(one, y);
            wf_unpack(other, dy);
#pragma unroll
            for (int i = 0; i < PACK; i++)
                sum = fmaf(y[i], dy[i], sum);
        }
        for (int step = lanes / 2; step > 0; step /= 2)
            sum += __shfl_xor_sync(0xffffffffu, sum, step);
        if (own == 0 && row < rows)
            a.delta[row] = sum;
    }
}

cudaError_t launch_delta(cudaStream_t stream, const wf_cuda_heads *a)
{
    const int64_t packs = a->batch * a->query_tokens.count * a->heads * (a->dim / 8);

    return wf_launch(tensor_delta_kernel, wf_grid(packs, WF_BLOCK), WF_BLOCK, 0, stream, *a);
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

template <int DIM>
__global__ void __launch_bounds__(ATTENTION_THREADS)
    tensor_dq_kernel(const WF_GRID_CONSTANT wf_cuda_heads a)
{
    constexpr int KEYS = streamed_tokens(DIM);
    constexpr int TILE = bytes_of_tokens<DIM>(OWN), HALF = bytes_of_tokens<DIM>(KEYS);
    WF_DYNAMIC_SHARED(char, queries);
    char *dys = queries + TILE, *stages = dys + TILE;
    const int64_t head = head_at(a, a.query_tokens), stride = a.heads * a.dim;
    const int first = (int)(a.dq_tokens.first + (gridDim.x - 1 - blockIdx.x) * (int64_t)OWN);
    const int query = first + row_of_thread();
    const query_view view[2] = {view_of(a, query), view_of(a, query + 8)};
    const query_numbers own[2] = {
        {of_query(a.lse, query, a), of_query(a.delta, query, a)},
        {of_query(a.lse, query + 8, a), of_query(a.delta, query + 8, a)}};
    const int dim = (int)a.dim;
    const int64_t at = group_at(a, a.key_tokens), k_stride = a.groups * a.dim;
    key_walk walk = walk_keys(view_of(a, first + (int)threadIdx.x % WF_WARP),
                              view_of(a, first + (int)threadIdx.x % WF_WARP + WF_WARP));
    key_tile tile = next_keys<KEYS>(&walk);
    float dq[DIM / 2];

    wf_clear(dq);
    load_tokens<OWN, DIM>(queries, a.q, head, stride, first, a.query_tokens, a);
    load_tokens<OWN, DIM>(dys, a.dy, head, stride, first, a.query_tokens, a);
    load_pair<KEYS, DIM>(stages, a.k, a.v, at, k_stride, tile.key, a.key_tokens, a, tile.any);
    for (int stage = 0; tile.any; stage ^= 1) {
        const key_tile next = next_keys<KEYS>(&walk);
        const char *keys = stages + stage * 2 * HALF;
        uint64_t seen[2], shown = shown_bits(a, tile.key);
        uint32_t set, terms[KEYS / 4];
        float p[KEYS / 2], ds[KEYS / 2];

        load_pair<KEYS, DIM>(stages + (stage ^ 1) * 2 * HALF, a.k, a.v, at, k_stride, next.key,
                             a.key_tokens, a, next.any);
        wf_copy_wait<1>();
        __syncthreads();
#pragma unroll
        for (int r = 0; r < 2; r++)
            seen[r] = view[r].origin == tile.origin ? seen_bits(view[r], tile.key, shown) : 0;
        set = seen_scores<KEYS>(seen);
        if (__any_sync(0xffffffffu, set != 0)) {
            multiply_tokens<KEYS, DIM>(p, queries, keys, dim);
            multiply_tokens<KEYS, DIM>(ds, dys, keys + HALF, dim);
            make_terms<KEYS, false>(p, ds, a, query, tile.key, set,
                                    [&](int i) { return own[i / 2 % 2]; });
            if (a.dbias)
                put_bias_terms<KEYS>(ds, query, tile.key, set, a);
            scale_terms<KEYS>(ds, a.scale);
            round_scores<KEYS>(terms, ds);
            add_tokens<KEYS, DIM>(dq, terms, keys, dim);
        }
        __syncthreads();
        tile = next;
    }
    wf_copy_wait<0>();
    __syncthreads();
    put_tokens<DIM>(dq, a.dq, WF_BF16, head_at(a, a.dq_tokens), stride, first, a.dq_tokens,
                    queries, dim);
}

/* ---- dk and dv ---- */

/* A tile of queries of one origin, of which those from `from` on and before `end` count. */
struct query_tile {
    int query, from, end;
    bool any;
};

/* The tiles of queries that see a block's keys, one after the other. */
struct query_walk {
    int key; /* the first */
    int at, end;
    uint64_t shown;
};

__device__ __forceinline__ query_walk walk_queries(const wf_cuda_heads &a, int key)
{
    const int64_t all = end_of(a.query_tokens), reach = a.window < 0 ? -a.window : a.window;
    const int64_t last = reach ? key + OWN - 1 + reach : all; /* no later one sees these */

    return {key, a.bidirectional ? 0 : key, (int)(last < all ? last : all), shown_bits(a, key)};
}

/* A tile's queries are a lane's each; it begins where a group of 16 does. */
template <int QUERIES>
__device__ __forceinline__ query_tile next_queries(const wf_cuda_heads &a, query_walk *w)
{
    while (w->at < w->end) {
        const int origin = view_of(a, w->at).origin;
        query_tile t = {origin + (w->at - origin) / WF_TILE_STEP * WF_TILE_STEP, w->at, 0,
                        true};
        const int own = t.query + (int)threadIdx.x % WF_WARP;
        const query_view view = view_of(a, own);
        const bool counts = own >= t.from && own < t.query + QUERIES && view.origin == origin;
        const unsigned others = __ballot_sync(0xffffffffu, own >= t.from && !counts);

        t.end = others ? t.query + __ffs((int)others) - 1 : t.query + QUERIES;
        w->at = t.end;
        if (__any_sync(0xffffffffu,
                       counts && own < t.end && seen_bits(view, w->key, w->shown) != 0))
            return t;
    }
    return {0, 0, 0, false};
}

/* A query of a tile, for the block's keys: `seen` has a bit for each that it sees. */
struct __align__(16) query_terms
{
    query_numbers own;
    uint64_t seen;
};

/* Queries of a tile on their way to a stage. */
template <int QUERIES, int DIM>
__device__ __forceinline__ void load_queries(char *stage, query_terms *terms,
                                             const query_tile &tile, const query_walk &w,
                                             const wf_cuda_heads &a)
{
    const int own = tile.query + (int)threadIdx.x;

    load_pair<QUERIES, DIM>(stage, a.q, a.dy, head_at(a, a.query_tokens), a.heads * a.dim,
                            tile.query, a.query_tokens, a, tile.any);
    if (tile.any && threadIdx.x < QUERIES)
        terms[threadIdx.x] = {{of_query(a.lse, own, a), of_query(a.delta, own, a)},
                              own >= tile.from && own < tile.end
                                  ? seen_bits(view_of(a, own), w.key, w.shown)
                                  : 0};
}

/* Rows of the thread's pairs are keys here, columns are queries: returns that of pair i. */
__device__ __forceinline__ const query_terms &query_of_pair(const query_terms *terms, int i)
{
    return terms[query_at<true>(0, i)];
}

/* Returns the set of the thread's pairs that see each other. */
template <int QUERIES>
__device__ __forceinline__ uint32_t seen_by_queries(const query_terms *terms)
{
    const int row = row_of_thread();
    uint32_t set = 0;

#pragma unroll
    for (int i = 0; i < QUERIES / 2; i++)
        set |= (uint32_t)(query_of_pair(terms, i).seen >> row >> i / 2 % 2 * 8 & 1) << i;
    return set;
}

/* The output of a head's dk or dv: the result, or the buffer from which a group's are
   summed. */
template <int DIM>
__device__ __forceinline__ void put_key_tokens(const float (&sum)[DIM / 2], void *result,
                                               void *parts, int first, char *tile,
                                               const wf_cuda_heads &a)
{
    if (parts)
        put_tokens<DIM>(sum, parts, WF_F32, head_at(a, a.dk_tokens), a.heads * a.dim, first,
                        a.dk_tokens, tile, (int)a.dim);
    else
        put_tokens<DIM>(sum, result, a.dk_type, group_at(a, a.dk_tokens), a.groups * a.dim,
                        first, a.dk_tokens, tile, (int)a.dim);
}

/* DK, DV: which of the two; registers have no room for both of more than 128 dims. */
template <int DIM, bool DK, bool DV>
__global__ void __launch_bounds__(ATTENTION_THREADS)
    tensor_dkv_kernel(const WF_GRID_CONSTANT wf_cuda_heads a)
{
    constexpr int QUERIES = streamed_tokens(DIM);
    constexpr int TILE = bytes_of_tokens<DIM>(OWN), HALF = bytes_of_tokens<DIM>(QUERIES);
    WF_DYNAMIC_SHARED(char, keys);
    char *values = keys + TILE, *stages = values + TILE;
    query_terms *terms = (query_terms *)(stages + 4 * HALF);
    const int64_t at = group_at(a, a.key_tokens), stride = a.groups * a.dim;
    const int first = (int)(a.dk_tokens.first + blockIdx.x * (int64_t)OWN), dim = (int)a.dim;
    const int key = first + row_of_thread();
    query_walk walk = walk_queries(a, first);
    query_tile tile = next_queries<QUERIES>(a, &walk);
    float dk[DIM / 2], dv[DIM / 2];

    wf_clear(dk);
    wf_clear(dv);
    load_tokens<OWN, DIM>(keys, a.k, at, stride, first, a.key_tokens, a);
    load_tokens<OWN, DIM>(values, a.v, at, stride, first, a.key_tokens, a);
    load_queries<QUERIES, DIM>(stages, terms, tile, walk, a);
    for (int stage = 0; tile.any; stage ^= 1) {
        const query_tile next = next_queries<QUERIES>(a, &walk);
        const char *queries = stages + stage * 2 * HALF, *dys = queries + HALF;
        const query_terms *own = terms + stage * QUERIES;
        uint32_t set, rounded[QUERIES / 4];
        float p[QUERIES / 2], ds[QUERIES / 2];

        load_queries<QUERIES, DIM>(stages + (stage ^ 1) * 2 * HALF,
                                   terms + (stage ^ 1) * QUERIES, next, walk, a);
        wf_copy_wait<1>();
        __syncthreads();
        set = seen_by_queries<QUERIES>(own);
        if (__any_sync(0xffffffffu, set != 0)) {
            multiply_tokens<QUERIES, DIM>(p, keys, queries, dim);
            if (DK)
                multiply_tokens<QUERIES, DIM>(ds, values, dys, dim);
            else
                wf_clear(ds);
            make_terms<QUERIES, true>(p, ds, a, tile.query, key, set,
                                      [&](int i) { return query_of_pair(own, i).own; });
            if (DV) {
                round_scores<QUERIES>(rounded, p);
                add_tokens<QUERIES, DIM>(dv, rounded, dys, dim);
            }
            if (DK) {
                scale_terms<QUERIES>(ds, a.scale);
                round_scores<QUERIES>(rounded, ds);
                add_tokens<QUERIES, DIM>(dk, rounded, queries, dim);
            }
        }
        __syncthreads();
        tile = next;
    }
    wf_copy_wait<0>();
    __syncthreads();
    if (DK)
        put_key_tokens<DIM>(dk, a.dk, a.dk_parts, first, keys, a);
    if (DV)
        put_key_tokens<DIM>(dv, a.dv, a.dv_parts, first, values, a);
}

template <int DIM> cudaError_t launch_dq(cudaStream_t stream, const wf_cuda_heads *a)
{
    return launch_attention(tensor_dq_kernel<DIM>, a->dq_tokens.count,
                            bytes_of_tokens<DIM>(2 * OWN + 4 * streamed_tokens(DIM)), stream,
                            a);
}

template <int DIM, bool DK, bool DV>
cudaError_t launch_dkv(cudaStream_t stream, const wf_cuda_heads *a)
{
    return launch_attention(tensor_dkv_kernel<DIM, DK, DV>, a->dk_tokens.count,
                            bytes_of_tokens<DIM>(2 * OWN + 4 * streamed_tokens(DIM)) +
                                2 * streamed_tokens(DIM) * (int)sizeof(query_terms),
                            stream, a);
}

} // namespace

cudaError_t wf_cuda_launch_tensor_gradients(cudaStream_t stream, const wf_cuda_heads *a)
{
    cudaError_t status = launch_delta(stream, a);

    if (status == cudaSuccess)
        status = a->dim <= 64    ? launch_dq<64>(stream, a)
                 : a->dim <= 128 ? launch_dq<128>(stream, a)
                                 : launch_dq<256>(stream, a);
    if (status != cudaSuccess)
        return status;
    if (a->dim <= 64)
        return launch_dkv<64, true, true>(stream, a);
    if (a->dim <= 128)
        return launch_dkv<128, true, true>(stream, a);
    status = launch_dkv<256, true, false>(stream, a);
    return status ? status : launch_dkv<256, false, true>(stream, a);
}

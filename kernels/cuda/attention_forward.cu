/*
 * kernels/cuda/attention_forward.cu - flash attention by an online softmax (Milakov and
 * Gimelshein 2018; Dao et al. 2022): a block has a tile of queries and goes through the tiles
 * of keys, of a causal head from the first that one of its queries sees up to its own: the
 * others are never touched.
 *
 *     m' = max(m, greatest of the tile's s)          s = q . k * scale
 *     l' = l e^(m - m') + sum of e^(s - m')
 *     y' = y e^(m - m') + sum of keep e^(s - m') v
 *
 * and in the end y / l and lse = m + log l. A row's sum over a tile: each thread's columns in
 * order, then 8, 4, 2, 1 threads apart.
 *
 * A sink is a term before the first tile: m begins with it, and l with 1.
 *
 * Tiles of keys count from where a query's document or chunk begins, so that these have the
 * bits that they have alone: those of a tile of queries come one after the other.
 */
#include "kernels/cuda/attention_tile_internal.h"

namespace
{

template <int M> struct softmax_rows {
    float greatest[M], sum[M];
};

__device__ __forceinline__ float half_warp_sum(float x)
{
    for (int step = SIDE / 2; step > 0; step /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}

__device__ __forceinline__ float half_warp_greatest(float x)
{
    for (int step = SIDE / 2; step > 0; step /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
    return x;
}

/* Scores of rows from i and columns from j become terms of the sum; what was summed before is
   scaled to the new greatest. */
template <int M, int Q>
__device__ __forceinline__ void update(softmax_rows<M> &state, float s[M][M], float4 y[M][Q],
                                       int64_t i, int64_t j, int64_t origin,
                                       const wf_cuda_heads &a)
{
    int tx = (int)threadIdx.x % SIDE;

#pragma unroll
    for (int r = 0; r < M; r++) {
        float greatest = state.greatest[r], sum = 0.0f, before;
        bool takes_part = origin_of(a, i + r) == origin;

#pragma unroll
        for (int c = 0; c < M; c++) {
            int64_t column = j + tx + SIDE * c;

            s[r][c] = takes_part && sees(a, i + r, column) ? score_of(a, s[r][c], i + r, column)
                                                           : -INFINITY;
            greatest = fmaxf(greatest, s[r][c]);
        }
        greatest = half_warp_greatest(greatest);
        before = expf(state.greatest[r] - greatest);
#pragma unroll
        for (int c = 0; c < M; c++) {
            s[r][c] = expf(s[r][c] - greatest);
            sum += s[r][c];
        }
        state.greatest[r] = greatest;
        state.sum[r] = fmaf(state.sum[r], before, half_warp_sum(sum));
#pragma unroll
        for (int q = 0; q < Q; q++) {
            y[r][q].x *= before;
            y[r][q].y *= before;
            y[r][q].z *= before;
            y[r][q].w *= before;
        }
    }
}

template <int M>
__device__ void drop(float s[M][M], int64_t i, int64_t j, const wf_cuda_heads &a)
{
    int tx = (int)threadIdx.x % SIDE;

#pragma unroll
    for (int r = 0; r < M; r++)
#pragma unroll
        for (int c = 0; c < M; c++)
            s[r][c] *= keep(a, blockIdx.y, blockIdx.z, i + r, j + tx + SIDE * c);
}

/* A query that saw no key has y and lse of 0. */
template <int M, int Q>
__device__ void finish(softmax_rows<M> &state, float4 y[M][Q], int64_t first,
                       const wf_cuda_heads &a)
{
    const wf_cuda_tokens &t = a.query_tokens;
    int tx = (int)threadIdx.x % SIDE, ty = (int)threadIdx.x / SIDE;
    int64_t lse = (int64_t)blockIdx.z * t.count * a.heads + blockIdx.y;

#pragma unroll
    for (int r = 0; r < M; r++) {
        int64_t row = first - t.first + ty * M + r;
        bool none = state.sum[r] == 0.0f;

        state.sum[r] = none ? 1.0f : state.sum[r];
#pragma unroll
        for (int q = 0; q < Q; q++) {
            y[r][q].x /= state.sum[r];
            y[r][q].y /= state.sum[r];
            y[r][q].z /= state.sum[r];
            y[r][q].w /= state.sum[r];
        }
        if (tx == 0 && row < t.count)
            a.lse[lse + row * a.heads] = none ? 0.0f : state.greatest[r] + logf(state.sum[r]);
    }
    put_tile<M, Q>(y, a.y, a.type, head_at(a, t), a.heads * a.dim, first, t, a);
}

/* Tiles with the longest rows begin first. */
template <int TILE, int Q>
__global__ void __launch_bounds__(SIDE *SIDE) forward_kernel(wf_cuda_heads a)
{
    constexpr int M = TILE / SIDE;
    WF_DYNAMIC_SHARED(float, room);
    int ld = row_floats(a.dim), ty = (int)threadIdx.x / SIDE;
    float *queries = room, *keys = queries + TILE * ld, *values = keys + TILE * ld;
    float *scores = values + TILE * ld;
    int64_t first = a.query_tokens.first + (int64_t)(gridDim.x - 1 - blockIdx.x) * TILE;
    int64_t row = first + ty * M, at = group_at(a, a.key_tokens), stride = a.groups * a.dim;
    softmax_rows<M> state;
    float4 y[M][Q];
    float s[M][M];

#pragma unroll
    for (int r = 0; r < M; r++) {
        state.greatest[r] = a.sinks ? a.sinks[blockIdx.y] : lowest(a);
        state.sum[r] = a.sinks ? 1.0f : 0.0f;
    }
    clear<M, Q>(y);
    load_tile<TILE>(queries, a.q, head_at(a, a.query_tokens), a.heads * a.dim, first,
                    a.query_tokens, a);
    for (key_range r = range_after<TILE>(a, first, -1); r.end > 0;
         r = range_after<TILE>(a, first, r.origin))
        for (int64_t j = r.begin; j < r.end; j += TILE) {
            load_tile<TILE>(keys, a.k, at, stride, j, a.key_tokens, a);
            load_tile<TILE>(values, a.v, at, stride, j, a.key_tokens, a);
            __syncthreads();
            multiply_rows<M>(s, queries, keys, ld);
            update<M, Q>(state, s, y, row, j, r.origin, a);
            if (a.threshold)
                drop<M>(s, row, j, a);
            put_scores<M>(scores, s);
            __syncthreads();
            add_product<M, Q>(y, scores, values, ld);
            __syncthreads();
        }
    finish<M, Q>(state, y, first, a);
}

} // namespace

cudaError_t wf_cuda_launch_attention(cudaStream_t stream, const wf_cuda_heads *a)
{
    const int64_t tokens = a->query_tokens.count;

    if (wf_cuda_on_tensor_cores(a))
        return wf_attention_kernels_of(a)->forward(stream, a);
    if (a->dim <= COLUMNS)
        return launch_tiles<64>(forward_kernel<64, 1>, tokens, 3, stream, a);
    if (a->dim <= 2 * COLUMNS)
        return launch_tiles<64>(forward_kernel<64, 2>, tokens, 3, stream, a);
    return launch_tiles<32>(forward_kernel<32, 4>, tokens, 3, stream, a);
}

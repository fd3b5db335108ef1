/*
 * kernels/cuda/attention_grad.cu - the gradient of flash attention without an atomic: delta = y
 * . dy for every row; dq by tiles of queries, going through the keys; dk and dv of a query head
 * by tiles of keys, going through the queries; and where heads share keys, the sum over a
 * group's (attention_groups.cu).
 *
 *     p = e^(q . k scale - lse), ds = p (keep v . dy - delta) scale
 *     dq_i = sum_j ds k_j        dk_j = sum_i ds q_i        dv_j = sum_i keep p dy_i
 */
#include "kernels/cuda/attention_tile_internal.h"
#include "kernels/cuda/operands_internal.h"

namespace
{

/* One warp for a row of a head: lanes take every 32nd element in order. */
template <class T> __global__ void delta_kernel(wf_cuda_heads a)
{
    int64_t rows = a.batch * a.query_tokens.count * a.heads, lane = threadIdx.x % WF_WARP;
    int64_t warps = (int64_t)gridDim.x * (blockDim.x / WF_WARP);
    int64_t row = (int64_t)blockIdx.x * (blockDim.x / WF_WARP) + threadIdx.x / WF_WARP;

    for (; row < rows; row += warps) {
        const T *y = (const T *)a.y + row * a.dim, *dy = (const T *)a.dy + row * a.dim;
        float sum = 0.0f;

        for (int64_t d = lane; d < a.dim; d += WF_WARP)
            sum = fmaf(wf_get(y[d]), wf_get(dy[d]), sum);
        sum = wf_warp_sum(sum);
        if (lane == 0)
            a.delta[row] = sum;
    }
}

template <int M> __device__ __forceinline__ void scale(float x[M][M], float by)
{
#pragma unroll
    for (int r = 0; r < M; r++)
#pragma unroll
        for (int c = 0; c < M; c++)
            x[r][c] *= by;
}

/* Computes for query i and key j p and, from v . dy, ds before its factor 1 / sqrt(dim); both 0
   where i does not see j, or either is not there. */
__device__ __forceinline__ void terms(float &p, float &ds, int64_t i, int64_t j, float lse,
                                      float delta, const wf_cuda_heads &a)
{
    bool counts = i < end_of(a.query_tokens) && sees(a, i, j);
    float kept = counts && a.threshold ? keep(a, blockIdx.y, blockIdx.z, i, j) : 1.0f;
    float score = counts ? score_of(a, p, i, j) : 0.0f, x = counts ? expf(score - lse) : 0.0f;

    ds = counts ? x * (kept * ds - delta) : 0.0f;
    if (a.cap > 0.0f)
        ds *= 1.0f - score / a.cap * (score / a.cap);
    p = kept * x;
}

/* The thread's part of the gradient of the bias: rows from `row` on, columns from `column`
   on. */
template <int M>
__device__ __forceinline__ void put_dbias(const float ds[M][M], int64_t row, int64_t column,
                                          const wf_cuda_heads &a)
{
    int64_t matrix = blockIdx.z * a.heads + blockIdx.y;

#pragma unroll
    for (int r = 0; r < M; r++)
#pragma unroll
        for (int c = 0; c < M; c++)
            if (row + r < end_of(a.query_tokens) && column + SIDE * c < keys_of(a))
                a.dbias[pair_at(a, matrix, row + r, column + SIDE * c)] = ds[r][c] + 0.0f;
}

template <int TILE, int Q>
__global__ void __launch_bounds__(SIDE *SIDE) dq_kernel(wf_cuda_heads a)
{
    constexpr int M = TILE / SIDE;
    WF_DYNAMIC_SHARED(float, room);
    int ld = row_floats(a.dim), tx = (int)threadIdx.x % SIDE, ty = (int)threadIdx.x / SIDE;
    float *queries = room, *dys = queries + TILE * ld, *keys = dys + TILE * ld;
    float *values = keys + TILE * ld, *scores = values + TILE * ld;
    int64_t first = a.dq_tokens.first + (int64_t)(gridDim.x - 1 - blockIdx.x) * TILE;
    int64_t row = first + ty * M, at = group_at(a, a.key_tokens), stride = a.groups * a.dim;
    int64_t head = head_at(a, a.query_tokens), q_stride = a.heads * a.dim;
    float s[M][M], ds[M][M];
    float4 dq[M][Q];

    clear<M, Q>(dq);
    load_tile<TILE>(queries, a.q, head, q_stride, first, a.query_tokens, a);
    load_tile<TILE>(dys, a.dy, head, q_stride, first, a.query_tokens, a);
    for (int64_t j = keys_begin<TILE>(a, first); j < keys_end<TILE>(a, first); j += TILE) {
        load_tile<TILE>(keys, a.k, at, stride, j, a.key_tokens, a);
        load_tile<TILE>(values, a.v, at, stride, j, a.key_tokens, a);
        __syncthreads();
        multiply_rows<M>(s, queries, keys, ld);
        multiply_rows<M>(ds, dys, values, ld);
#pragma unroll
        for (int r = 0; r < M; r++) {
            float lse = of_query(a.lse, row + r, a), delta = of_query(a.delta, row + r, a);

#pragma unroll
            for (int c = 0; c < M; c++)
                terms(s[r][c], ds[r][c], row + r, j + tx + SIDE * c, lse, delta, a);
        }
        if (a.dbias)
            put_dbias<M>(ds, row, j + tx, a);
        scale<M>(ds, a.scale);
        put_scores<M>(scores, ds);
        __syncthreads();
        add_product<M, Q>(dq, scores, keys, ld);
        __syncthreads();
    }
    put_tile<M, Q>(dq, a.dq, a.type, head_at(a, a.dq_tokens), q_stride, first, a.dq_tokens, a);
}

/* The output of a head's dk and dv: the results, or the buffer from which a group's are
   summed. */
template <int M, int Q>
__device__ __forceinline__ void put_gradient(const float4 sum[M][Q], void *result, void *parts,
                                             int64_t first, const wf_cuda_heads &a)
{
    if (parts)
        put_tile<M, Q>(sum, parts, WF_F32, head_at(a, a.dk_tokens), a.heads * a.dim, first,
                       a.dk_tokens, a);
    else
        put_tile<M, Q>(sum, result, a.dk_type, group_at(a, a.dk_tokens), a.groups * a.dim,
                       first, a.dk_tokens, a);
}

/* Rows of the thread's scores are keys here, columns are queries. */
template <int TILE, int Q>
__global__ void __launch_bounds__(SIDE *SIDE) dkv_kernel(wf_cuda_heads a)
{
    constexpr int M = TILE / SIDE;
    WF_DYNAMIC_SHARED(float, room);
    int ld = row_floats(a.dim), tx = (int)threadIdx.x % SIDE, ty = (int)threadIdx.x / SIDE;
    float *queries = room, *dys = queries + TILE * ld, *keys = dys + TILE * ld;
    float *values = keys + TILE * ld, *scores = values + TILE * ld;
    int64_t first = a.dk_tokens.first + (int64_t)blockIdx.x * TILE, row = first + ty * M;
    int64_t at = group_at(a, a.key_tokens), stride = a.groups * a.dim;
    int64_t head = head_at(a, a.query_tokens), q_stride = a.heads * a.dim;
    float s[M][M], ds[M][M];
    float4 dk[M][Q], dv[M][Q];

    clear<M, Q>(dk);
    clear<M, Q>(dv);
    load_tile<TILE>(keys, a.k, at, stride, first, a.key_tokens, a);
    load_tile<TILE>(values, a.v, at, stride, first, a.key_tokens, a);
    for (int64_t i = a.bidirectional ? 0 : first; i < end_of(a.query_tokens); i += TILE) {
        if (least_from<TILE>(a, i) >= first + TILE)
            continue;
        load_tile<TILE>(queries, a.q, head, q_stride, i, a.query_tokens, a);
        load_tile<TILE>(dys, a.dy, head, q_stride, i, a.query_tokens, a);
        __syncthreads();
        multiply_rows<M>(s, keys, queries, ld);
        multiply_rows<M>(ds, values, dys, ld);
#pragma unroll
        for (int c = 0; c < M; c++) {
            int64_t query = i + tx + SIDE * c;
            float lse = of_query(a.lse, query, a), delta = of_query(a.delta, query, a);

#pragma unroll
            for (int r = 0; r < M; r++)
                terms(s[r][c], ds[r][c], query, row + r, lse, delta, a);
        }
        scale<M>(ds, a.scale);
        put_scores<M>(scores, s);
        __syncthreads();
        add_product<M, Q>(dv, scores, dys, ld);
        __syncthreads();
        put_scores<M>(scores, ds);
        __syncthreads();
        add_product<M, Q>(dk, scores, queries, ld);
        __syncthreads();
    }
    put_gradient<M, Q>(dk, a.dk, a.dk_parts, first, a);
    put_gradient<M, Q>(dv, a.dv, a.dv_parts, first, a);
}

cudaError_t launch_heads(cudaStream_t stream, const wf_cuda_heads *a)
{
    const int64_t queries = a->dq_tokens.count, keys = a->dk_tokens.count;
    cudaError_t status;

    if (a->dim <= COLUMNS) {
        status = launch_tiles<64>(dq_kernel<64, 1>, queries, 4, stream, a);
        return status ? status : launch_tiles<64>(dkv_kernel<64, 1>, keys, 4, stream, a);
    }
    if (a->dim <= 2 * COLUMNS) {
        status = launch_tiles<64>(dq_kernel<64, 2>, queries, 4, stream, a);
        return status ? status : launch_tiles<64>(dkv_kernel<64, 2>, keys, 4, stream, a);
    }
    status = launch_tiles<32>(dq_kernel<32, 4>, queries, 4, stream, a);
    return status ? status : launch_tiles<32>(dkv_kernel<32, 4>, keys, 4, stream, a);
}

template <class T> cudaError_t launch(cudaStream_t stream, const wf_cuda_heads *a)
{
    int64_t rows = a->batch * a->query_tokens.count * a->heads;
    cudaError_t status =
        wf_launch(delta_kernel<T>, wf_grid(rows, WF_BLOCK / WF_WARP), WF_BLOCK, 0, stream, *a);

    return status ? status : launch_heads(stream, a);
}

/* Rows of the gradient of sinks; y has `heads` of them for each token. */
struct sink_job {
    const void *y, *dy;
    const float *lse, *sinks;
    float *out;
    int64_t rows, heads, dim;
};

template <class T> __global__ void __launch_bounds__(WF_BLOCK) sinks_kernel(sink_job a)
{
    const int64_t lane = threadIdx.x % WF_WARP, step = (int64_t)gridDim.x * WF_WARPS;
    int64_t row = (int64_t)blockIdx.x * WF_WARPS + threadIdx.x / WF_WARP;

    for (; row < a.rows; row += step) {
        const T *y = (const T *)a.y + row * a.dim, *dy = (const T *)a.dy + row * a.dim;
        float sum = 0.0f;

        for (int64_t d = lane; d < a.dim; d += WF_WARP)
            sum = fmaf(wf_get(y[d]), wf_get(dy[d]), sum);
        sum = wf_warp_sum(sum);
        if (lane == 0)
            a.out[row] = -(expf(a.sinks[row % a.heads] - a.lse[row]) * sum);
    }
}

wf_status attention_sinks_rows(const wf_call *call, void *)
{
    const wf_tensor *y = call->in[0];
    sink_job a = {};

    a.y = y->data;
    a.dy = call->in[1]->data;
    a.lse = (const float *)call->in[2]->data;
    a.sinks = (const float *)call->in[3]->data;
    a.out = (float *)call->out[0]->data;
    a.rows = wf_count(call->in[2]);
    a.heads = y->local[2];
    a.dim = y->local[3];
    return wf_run(call, [&](auto zero) {
        return wf_launch(sinks_kernel<decltype(zero)>, wf_grid(a.rows, WF_WARPS), WF_BLOCK, 0,
                         wf_cuda_of(call)->stream, a);
    });
}

} // namespace

cudaError_t wf_cuda_launch_attention_grad(cudaStream_t stream, const wf_cuda_heads *a)
{
    cudaError_t status;

    if (wf_cuda_on_tensor_cores(a)) {
        status = wf_cuda_launch_tensor_delta(stream, a);
        if (status == cudaSuccess)
            status = wf_attention_kernels_of(a)->gradients(stream, a);
    } else {
        status = a->type == WF_BF16 ? launch<wf_bf16>(stream, a) : launch<float>(stream, a);
    }

    return status || !a->dk_parts ? status : wf_cuda_launch_group_sums(stream, a);
}

const wf_kernel wf_cuda_attention_sinks_rows = {attention_sinks_rows, NULL, 0,
                                                WF_IN(0) | WF_IN(1)};

/*
 * kernels/cuda/attention_tensor_forward_internal.h - the attention of attention_forward.cu for
 * bf16, on tensor cores: the same online softmax in floats, whose terms e^(s - m) are rounded
 * to bf16 for their product with the values alone. For .cu files.
 */
#ifndef WF_KERNELS_CUDA_ATTENTION_TENSOR_FORWARD_INTERNAL_H
#define WF_KERNELS_CUDA_ATTENTION_TENSOR_FORWARD_INTERNAL_H

#include "kernels/cuda/attention_softmax_internal.h"

namespace
{

template <int N>
__device__ __forceinline__ void drop_scores(float (&s)[N / 2], int query, int key,
                                            const wf_cuda_heads &a)
{
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        s[i] *=
            keep(a, blockIdx.y, blockIdx.z, query_at<false>(query, i), key_at<false>(key, i));
}

/* y and lse of the block's rows. */
template <class S, int DIM>
__device__ __forceinline__ void put_outputs(const softmax_state &state, float (&y)[DIM / 2],
                                            int first, char *tile, const wf_cuda_heads &a)
{
    const wf_cuda_tokens &t = a.query_tokens;
    const int64_t lse = (int64_t)blockIdx.z * t.count * a.heads + blockIdx.y;
    float logs[2];

    divide_rows<DIM>(state, y, logs);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int64_t row = first - t.first + row_of_thread() + 8 * r;

        if (threadIdx.x % 4 == 0 && row < t.count)
            a.lse[lse + row * a.heads] = logs[r];
    }
    put_tokens<S, DIM>(y, a.y, WF_BF16, head_at(a, t), a.heads * a.dim, first, t, tile,
                       (int)a.dim);
}

/* Tiles with the longest rows begin first. */
template <class S, int DIM>
__global__ void __launch_bounds__(S::THREADS, 1)
    tensor_forward_kernel(const WF_GRID_CONSTANT wf_cuda_heads a)
{
    constexpr int KEYS = keys_of_tile(DIM);
    WF_DYNAMIC_SHARED(char, shared);
    char *queries = S::aligned(shared);
    const int first =
        (int)(a.query_tokens.first + (gridDim.x - 1 - blockIdx.x) * (int64_t)S::OWN);
    const int query = first + row_of_thread();
    const int64_t at = group_at(a, a.key_tokens), stride = a.groups * a.dim;
    softmax_state state = softmax_begin(a, blockIdx.y, blockIdx.y);
    float y[DIM / 2];

    load_tokens<S, S::OWN, DIM>(queries, a.q, head_at(a, a.query_tokens), a.heads * a.dim,
                                first, a.query_tokens, a);
    attend<S, DIM>(
        state, y, queries, {view_of(a, query), view_of(a, query + 8)}, query,
        walk_keys([&](int row) { return view_of(a, first + row); }), a,
        [&](char *stage, const key_tile &tile) {
            load_pair<S, KEYS, DIM>(stage, a.k, a.v, at, stride, tile.key, a.key_tokens, a,
                                    tile.any);
        },
        [&](float(&s)[KEYS / 2], int key) {
            if (a.threshold)
                drop_scores<KEYS>(s, query, key, a);
        });
    put_outputs<S, DIM>(state, y, first, queries, a);
}

template <class S, int DIM>
cudaError_t launch_tensor_forward(cudaStream_t stream, const wf_cuda_heads *a)
{
    return launch_attention<S>(tensor_forward_kernel<S, DIM>, a->query_tokens.count,
                               bytes_to_attend<S, DIM>(), stream, a);
}

/* y and lse. */
template <class S> cudaError_t launch_outputs(cudaStream_t stream, const wf_cuda_heads *a)
{
    return a->dim <= 64    ? launch_tensor_forward<S, 64>(stream, a)
           : a->dim <= 128 ? launch_tensor_forward<S, 128>(stream, a)
                           : launch_tensor_forward<S, 256>(stream, a);
}

} // namespace

#endif

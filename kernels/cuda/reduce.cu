/*
 * kernels/cuda/reduce.cu - sums and maxima of many buffers, for the reductions over ranks, and the
 * leaves of a norm.
 */
#include "kernels/cuda/operands.h"

namespace
{
enum { OPEN = 8 }; /* nodes of a tree over up to WF_CUDA_SOURCES leaves */

/* The midpoint tree or the chain over the sources' packs, or their maximum; +0 of no source. */
template <class T>
__device__ __forceinline__ void combine(const wf_cuda_sum &s, int64_t i, bool wide, float *out)
{
    constexpr int PACK = wf_pack<T>::N;
    float node[OPEN][PACK];
    int open = 0;

#pragma unroll
    for (int e = 0; e < PACK; e++)
        out[e] = 0.0f;
    for (int k = 0; k < s.n_src; k++) {
        int merges = k == 0 ? 0 : s.tree && !s.maximum ? wf_tree_merges(s.n_src, k) : 1;
        float x[PACK];

        wf_load((const T *)s.src[k] + i, s.n - i, wide, x);
        for (; merges > 0; merges--) {
            open--;
#pragma unroll
            for (int e = 0; e < PACK; e++)
                x[e] = s.maximum ? wf_greater(node[open][e], x[e]) : node[open][e] + x[e];
        }
#pragma unroll
        for (int e = 0; e < PACK; e++)
            out[e] = node[open][e] = x[e];
        open++;
    }
}

template <class T>
__global__ void __launch_bounds__(WF_BLOCK) sum_kernel(wf_cuda_sum s, bool wide)
{
    constexpr int PACK = wf_pack<T>::N;
    const int64_t step = (int64_t)gridDim.x * WF_BLOCK * PACK;

    for (int64_t i = ((int64_t)blockIdx.x * WF_BLOCK + threadIdx.x) * PACK; i < s.n;
         i += step) {
        float sum[PACK];

        combine<T>(s, i, wide, sum);
        for (int d = 0; d < s.n_dst; d++)
            wf_store((T *)s.dst[d] + i, s.n - i, wide, sum);
    }
}

template <class T> cudaError_t launch_sum(cudaStream_t stream, const wf_cuda_sum &s)
{
    uintptr_t bits = 0;

    for (int k = 0; k < s.n_src; k++)
        bits |= (uintptr_t)s.src[k];
    for (int k = 0; k < s.n_dst; k++)
        bits |= (uintptr_t)s.dst[k];
    return wf_launch(sum_kernel<T>, wf_grid(wf_ceil(s.n, wf_pack<T>::N), WF_BLOCK), WF_BLOCK, 0,
                     stream, s, bits % 16 == 0);
}

struct squares {
    const float *x;
    int64_t rows, columns, at[WF_LEAVES + 1];
    int leaves;
    double *leaf;
};

enum { LANES = 8 };

/* 8 threads have a leaf: element i in lane i % 8, a chain; squares are exact in double. */
__global__ void __launch_bounds__(WF_BLOCK) squares_kernel(squares s)
{
    const int64_t step = (int64_t)gridDim.x * WF_BLOCK / LANES;
    const int lane = (int)(threadIdx.x % LANES);

    for (int64_t first =
             ((int64_t)blockIdx.x * WF_BLOCK + threadIdx.x / WF_WARP * WF_WARP) / LANES;
         first < s.rows * s.leaves; first += step) { /* the same in all lanes of a warp */
        const int64_t k = first + threadIdx.x % WF_WARP / LANES;
        const bool real = k < s.rows * s.leaves;
        const int64_t r = real ? k / s.leaves : 0, l = real ? k % s.leaves : 0;
        const float *x = s.x + r * s.columns;
        double sum = 0.0;

        for (int64_t i = s.at[l] + lane; real && i < s.at[l + 1]; i += LANES)
            sum += (double)x[i] * (double)x[i];
        for (int apart = LANES / 2; apart > 0; apart /= 2)
            sum += __shfl_xor_sync(0xffffffffu, sum, apart);
        if (real && lane == 0)
            s.leaf[k] = sum;
    }
}
} // namespace

cudaError_t wf_cuda_launch_sum(cudaStream_t stream, const wf_cuda_sum *sum)
{
    return sum->element == sizeof(float) ? launch_sum<float>(stream, *sum)
                                         : launch_sum<wf_bf16>(stream, *sum);
}

cudaError_t wf_cuda_launch_squares(cudaStream_t stream, const float *x, int64_t rows,
                                   int64_t columns, const int64_t at[WF_LEAVES + 1], int leaves,
                                   double *leaf)
{
    squares s = {x, rows, columns, {}, leaves, leaf};

    for (int l = 0; l <= leaves; l++)
        s.at[l] = at[l];
    return wf_launch(squares_kernel, wf_grid(rows * leaves * LANES, WF_BLOCK), WF_BLOCK, 0,
                     stream, s);
}

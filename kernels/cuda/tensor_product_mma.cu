/*
 * kernels/cuda/tensor_product_mma.cu - tensor products by mma.sync, which every GPU from
 * compute capability 8.0 on has.
 *
 * Kernels are instances of one, by how many rows a product has and by how its weights are
 * stored: as bf16, or as nf4, which is widened on its way to shared memory. An element is the
 * same expression in all.
 */
#include "kernels/cuda/tensor_fragment_internal.h"
#include "kernels/cuda/tensor_kernel_internal.h"

namespace
{

/* Adds 16 terms of two tiles. */
template <class S, bool A, bool B>
__device__ __forceinline__ void multiply(float (&sum)[S::SUMS], const char *a, const char *b,
                                         int step, int t);

/* A block's part of a node: DOWN x ACROSS elements, of which a warp has WARP x WARP as
   fragments of 16 x 8. */
template <int DOWN_, int ACROSS_, int WARP_> struct mma_shape {
    enum {
        DOWN = DOWN_,
        ACROSS = ACROSS_,
        WARP = WARP_,
        SIDE = ACROSS / WARP, /* warps side by side */
        THREADS = DOWN / WARP * SIDE * WF_WARP,
        ROWS = WARP / 16, /* fragments */
        COLUMNS = WARP / 8,
        SUMS = 4 * ROWS * COLUMNS, /* a thread's */
        TILE_A = DOWN * WF_TILE_LINE,
        STAGE = TILE_A + ACROSS * WF_TILE_LINE,
        ALIGNED = 0 /* bytes that aligned() may skip */
    };

    static __device__ __forceinline__ char *aligned(char *shared)
    {
        return shared;
    }
    static __device__ __forceinline__ void tiles_are_written(void)
    {
    }
    template <bool A, bool B>
    static __device__ __forceinline__ void multiply_tiles(float (&sum)[SUMS], const char *a,
                                                          const char *b, int64_t left, int t)
    {
#pragma unroll
        for (int step = 0; step < WF_TILE_DEPTH / WF_TILE_STEP; step++)
            if (step * WF_TILE_STEP < left)
                multiply<mma_shape, A, B>(sum, a, b, step, t);
    }
    /* Returns the row of the block's part that a thread's sum i is of; its column. */
    static __device__ __forceinline__ int row_of(int t, int i)
    {
        return t / WF_WARP / SIDE * WARP + t % WF_WARP / 4 + i / (4 * COLUMNS) * 16 +
               i / 2 % 2 * 8;
    }
    static __device__ __forceinline__ int column_of(int t, int i)
    {
        return t / WF_WARP % SIDE * WARP + t % 4 * 2 + i / 4 % COLUMNS * 8 + i % 2;
    }
};

using mma_many_rows = mma_shape<WF_TENSOR_TILE, 64, 32>;
using mma_few_rows = mma_shape<16, 64, 16>;

/* Adds 16 terms: the four sums from 4 (COLUMNS i + j) on are fragment (i, j) of the warp's. */
template <class S, bool A, bool B>
__device__ __forceinline__ void multiply(float (&sum)[S::SUMS], const char *a, const char *b,
                                         int step, int t)
{
    int warp = t / WF_WARP, lane = t % WF_WARP, term = step * WF_TILE_STEP;
    int row = warp / S::SIDE * S::WARP, column = warp % S::SIDE * S::WARP;
    uint32_t x[S::ROWS][4], y[4 * S::ROWS]; /* y has a fragment of 8 columns in every two */

#pragma unroll
    for (int i = 0; i < S::ROWS; i++) {
        wf_load_fragment<A>(x[i], a, row + 16 * i, term, lane, true);
        wf_load_fragment<B>(y + 4 * i, b, column + 16 * i, term, lane, false);
    }
#pragma unroll
    for (int i = 0; i < S::ROWS; i++)
        wf_multiply_fragments<S::COLUMNS>(sum + 4 * S::COLUMNS * i, x[i], y);
}

template <class S, class T>
cudaError_t launch_coded(cudaStream_t stream, const wf_tensor_product *p)
{
    return p->b_along ? launch<S, coded_bf16_weights<S, true>, true, T>(stream, p)
                      : launch<S, coded_bf16_weights<S, false>, true, T>(stream, p);
}

template <class T> cudaError_t launch_any(cudaStream_t stream, const wf_tensor_product *p)
{
    typedef mma_many_rows S;

    if (p->coded && !p->a_along)
        return cudaErrorNotSupported; /* activations are, where weights are the other factor */
    if (p->coded)
        return p->m <= mma_few_rows::DOWN ? launch_coded<mma_few_rows, T>(stream, p)
                                          : launch_coded<mma_many_rows, T>(stream, p);
    if (p->a_along)
        return p->b_along ? launch<S, bf16_weights<S, true>, true, T>(stream, p)
                          : launch<S, bf16_weights<S, false>, true, T>(stream, p);
    return p->b_along ? launch<S, bf16_weights<S, true>, false, T>(stream, p)
                      : launch<S, bf16_weights<S, false>, false, T>(stream, p);
}

} // namespace

cudaError_t wf_cuda_launch_tensor_product(cudaStream_t stream, const wf_tensor_product *p)
{
    return p->result.type == WF_BF16 ? launch_any<wf_bf16>(stream, p)
                                     : launch_any<float>(stream, p);
}

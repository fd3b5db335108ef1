/*
 * kernels/cuda/tensor_mma_internal.h - a block's part of a tensor product by mma.sync, which
 * every GPU from compute capability 8.0 on has. For .cu files.
 *
 * A block of WF_BLOCK threads makes 128 x 64 sums, each of its eight warps 32 x 32, from tiles
 * that come by stages, one after the other.
 */
#ifndef WF_KERNELS_CUDA_TENSOR_MMA_INTERNAL_H
#define WF_KERNELS_CUDA_TENSOR_MMA_INTERNAL_H

#include "kernels/cuda/tensor_fragment_internal.h"

enum {
    WF_MMA_DOWN = WF_TENSOR_TILE,
    WF_MMA_ACROSS = 64,
    WF_MMA_EDGE = 32, /* rows and columns of a warp */
    WF_MMA_AHEAD = 2, /* tiles that are on their way while one is multiplied */
    WF_MMA_STAGES = WF_MMA_AHEAD + 1,
    WF_MMA_TILE_A = WF_MMA_DOWN * WF_TILE_LINE,
    WF_MMA_STAGE = WF_MMA_TILE_A + WF_MMA_ACROSS * WF_TILE_LINE,
    WF_MMA_SHARED = WF_MMA_STAGES * WF_MMA_STAGE, /* bytes of a block */
    WF_MMA_SUMS = 32 /* sums of a thread: 2 x 4 fragments of 16 x 8 elements */
};

/* Sum i of thread t: of fragment (i / 16, i / 4 % 4) of the warp's rows and columns. */
struct wf_mma_slot {
    static __device__ __forceinline__ int row(int t, int i)
    {
        return t / WF_WARP / 2 * WF_MMA_EDGE + t % WF_WARP / 4 + i / 16 * 16 + i / 2 % 2 * 8;
    }

    static __device__ __forceinline__ int column(int t, int i)
    {
        return t / WF_WARP % 2 * WF_MMA_EDGE + t % 4 * 2 + i / 4 % 4 * 8 + i % 2;
    }
};

/* Adds 16 terms. */
template <bool A, bool B>
static __device__ __forceinline__ void wf_mma_multiply(float (&sum)[WF_MMA_SUMS], const char *a,
                                                       const char *b, int step)
{
    int warp = (int)threadIdx.x / WF_WARP, lane = (int)threadIdx.x % WF_WARP;
    int row = warp / 2 * WF_MMA_EDGE, column = warp % 2 * WF_MMA_EDGE;
    int term = step * WF_TILE_STEP;
    uint32_t x[2][4], y[8];

#pragma unroll
    for (int i = 0; i < 2; i++) {
        wf_load_fragment<A>(x[i], a, row + 16 * i, term, lane, true);
        wf_load_fragment<B>(y + 4 * i, b, column + 16 * i, term, lane, false);
    }
#pragma unroll
    for (int i = 0; i < 2; i++)
        wf_multiply_fragments<4>(sum + 16 * i, x[i], y);
}

/* Has the first tiles of a job brought, WF_MMA_AHEAD; load(stage): those that come next, and a
   group of copies, which is empty where there are none: waits count them. */
template <class LOAD>
static __device__ __forceinline__ void wf_mma_begin(char *stages, LOAD load)
{
    for (int s = 0; s < WF_MMA_AHEAD; s++)
        load(stages + s * WF_MMA_STAGE);
}

/* Adds the `terms` terms of the next tiles to the sums of warps that have some (`works`), while
   others are brought. */
template <bool A, bool B, class LOAD>
static __device__ __forceinline__ void wf_mma_add(float (&sum)[WF_MMA_SUMS], char *stages,
                                                  int *stage, int64_t terms, bool works,
                                                  LOAD load)
{
    const char *a = stages + *stage * WF_MMA_STAGE;

    wf_copy_wait<WF_MMA_AHEAD - 1>();
    __syncthreads();
    load(stages + (*stage + WF_MMA_AHEAD) % WF_MMA_STAGES * WF_MMA_STAGE);
#pragma unroll
    for (int step = 0; step < WF_TILE_DEPTH / WF_TILE_STEP; step++)
        if (works && step * WF_TILE_STEP < terms)
            wf_mma_multiply<A, B>(sum, a, a + WF_MMA_TILE_A, step);
    *stage = (*stage + 1) % WF_MMA_STAGES;
}

/* Puts all sums of a block into its shared memory, where wf_sum_at finds them, when no tile is
   needed there any more; sum i of thread t is at (AT::row(t, i), AT::column(t, i)). */
template <class AT>
static __device__ __forceinline__ void wf_mma_put(float *tile, const float (&sum)[WF_MMA_SUMS])
{
    int t = (int)threadIdx.x;

    asm volatile("" : "+r"(t)); /* else addresses are computed before the first job, and kept */
    wf_copy_wait<0>();
    __syncthreads();
#pragma unroll
    for (int i = 0; i < WF_MMA_SUMS; i++)
        *wf_sum_at<WF_MMA_ACROSS>(tile, AT::row(t, i), AT::column(t, i)) = sum[i];
    __syncthreads();
}

#endif

/*
 * kernels/cuda/tensor_mma_internal.h - shapes of products by mma.sync, which every GPU from
 * compute capability 8.0 on has (tensor_tile_internal.h). For .cu files.
 */
#ifndef WF_KERNELS_CUDA_TENSOR_MMA_INTERNAL_H
#define WF_KERNELS_CUDA_TENSOR_MMA_INTERNAL_H

#include "kernels/cuda/tensor_fragment_internal.h"

/* A shape of DOWN x ACROSS sums, of which a warp has WARP x WARP as fragments of 16 x 8. */
template <int DOWN_, int ACROSS_, int WARP_> struct wf_mma_shape {
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

    /* Returns the first row of a warp's sums; their first column. */
    static __device__ __forceinline__ int first_row(int warp)
    {
        return warp / SIDE * WARP;
    }
    static __device__ __forceinline__ int first_column(int warp)
    {
        return warp % SIDE * WARP;
    }

    /* Adds 16 terms: the four sums from 4 (COLUMNS i + j) on are fragment (i, j) of the
       warp's. */
    template <bool A, bool B>
    static __device__ __forceinline__ void multiply(float (&sum)[SUMS], const char *a,
                                                    const char *b, int step, int t)
    {
        int warp = t / WF_WARP, lane = t % WF_WARP, term = step * WF_TILE_STEP;
        uint32_t x[ROWS][4], y[4 * ROWS]; /* y has a fragment of 8 columns in every two */

#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            wf_load_fragment<A>(x[i], a, first_row(warp) + 16 * i, term, lane, true);
            wf_load_fragment<B>(y + 4 * i, b, first_column(warp) + 16 * i, term, lane, false);
        }
#pragma unroll
        for (int i = 0; i < ROWS; i++)
            wf_multiply_fragments<COLUMNS>(sum + 4 * COLUMNS * i, x[i], y);
    }
    template <bool A, bool B>
    static __device__ __forceinline__ void multiply_tiles(float (&sum)[SUMS], const char *a,
                                                          const char *b, int64_t left, int t)
    {
#pragma unroll
        for (int step = 0; step < WF_TILE_DEPTH / WF_TILE_STEP; step++)
            if (step * WF_TILE_STEP < left)
                multiply<A, B>(sum, a, b, step, t);
    }

    /* Returns the row of the block's part that a thread's sum i is of; its column. */
    static __device__ __forceinline__ int row_of(int t, int i)
    {
        return first_row(t / WF_WARP) + t % WF_WARP / 4 + i / (4 * COLUMNS) * 16 +
               i / 2 % 2 * 8;
    }
    static __device__ __forceinline__ int column_of(int t, int i)
    {
        return first_column(t / WF_WARP) + t % 4 * 2 + i / 4 % COLUMNS * 8 + i % 2;
    }
};

typedef wf_mma_shape<WF_TENSOR_TILE, 64, 32> wf_mma_many_rows;
typedef wf_mma_shape<16, 64, 16> wf_mma_few_rows;

#endif

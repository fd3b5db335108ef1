/*
 * kernels/cuda/hopper_shape_internal.h - a shape of products by wgmma whose tiles are loaded by
 * the threads of a block (tensor_tile_internal.h), where the tensor memory accelerator cannot:
 * rows that are gathered, numbers that are widened. For .cu files.
 */
#ifndef WF_KERNELS_CUDA_HOPPER_SHAPE_INTERNAL_H
#define WF_KERNELS_CUDA_HOPPER_SHAPE_INTERNAL_H

#include "kernels/cuda/hopper_internal.h"

/* GROUPS warpgroups, 64 x 64 sums each, one below the other: the fewest rows that the
   instruction has. */
template <int GROUPS> struct wf_group_shape {
    enum {
        GROUP = 128, /* threads of a warpgroup */
        ROWS = 64,   /* rows of its sums */
        DOWN = GROUPS * ROWS,
        ACROSS = 64,
        THREADS = GROUPS * GROUP,
        SUMS = WF_HOPPER_SUMS / 2,
        TILE_A = DOWN * WF_TILE_LINE,
        STAGE = TILE_A + ACROSS * WF_TILE_LINE,
        ALIGNED = 1024 /* a stage, as the swizzle wants it */
    };

    static __device__ __forceinline__ char *aligned(char *shared)
    {
        return shared + (ALIGNED - wf_shared_address(shared) % ALIGNED) % ALIGNED;
    }
    /* The instruction reads shared memory by another proxy than threads have written it. */
    static __device__ __forceinline__ void tiles_are_written(void)
    {
        wf_boxes_are_written();
    }

    /* Begins to add two tiles. Takes as many steps as tensor_product_hopper.cu; terms after the
       last one are zeros, which add nothing. */
    template <bool A, bool B>
    static __device__ __forceinline__ void begin_multiply(float (&sum)[SUMS], const char *a,
                                                          const char *b, int64_t left, int t)
    {
        const uint64_t x =
            wf_described<A>(wf_shared_address(a) + (uint32_t)(t / GROUP * WF_TILE_BLOCK));
        const uint64_t y = wf_described<B>(wf_shared_address(b));

        if (left > WF_TILE_DEPTH / 2)
            wf_multiply_steps<A, B, 4>(sum, x, y);
        else
            wf_multiply_steps<A, B, 2>(sum, x, y);
    }
    /* Adds them. */
    template <bool A, bool B>
    static __device__ __forceinline__ void multiply_tiles(float (&sum)[SUMS], const char *a,
                                                          const char *b, int64_t left, int t)
    {
        begin_multiply<A, B>(sum, a, b, left, t);
        wf_sums_wait<0>();
    }

    static __device__ __forceinline__ int row_of(int t, int i)
    {
        return t / WF_WARP * 16 + t % WF_WARP / 4 + i / 2 % 2 * 8;
    }
    static __device__ __forceinline__ int column_of(int t, int i)
    {
        return t % 4 * 2 + i / 4 * 8 + i % 2;
    }
};

#endif

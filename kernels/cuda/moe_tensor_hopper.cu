/*
 * kernels/cuda/moe_tensor_hopper.cu - grouped products of bf16 by wgmma, for compute capability
 * 9.0.
 *
 * A block is two warpgroups, 64 x 64 sums each, whose factors come from shared memory. Tiles
 * are brought by all threads, as in moe_tensor.cu, since rows of tokens are gathered: while the
 * tensor cores multiply one, the one after the next is asked for.
 */
#include "kernels/cuda/hopper_shape_internal.h"
#include "kernels/cuda/moe_tensor_rows_internal.h"
#include "kernels/cuda/moe_tensor_weights_internal.h"

namespace
{
struct group_wgmma {
    typedef wf_group_shape<2> shape;

    enum {
        /* the last tile that was multiplied may still be read while the next one is */
        STAGES = WF_TILE_STAGES + 1,
        SHARED = shape::ALIGNED + STAGES * shape::STAGE
    };
    static_assert((int)shape::DOWN == GROUP_DOWN && (int)shape::SUMS == GROUP_SUMS &&
                      (int)shape::TILE_A == GROUP_TILE_A && (int)shape::THREADS == WF_BLOCK,
                  "a block of mma.sync has as many sums");

    static __device__ __forceinline__ bool works(int64_t rows, int64_t)
    {
        return (int)threadIdx.x / shape::GROUP * shape::ROWS < rows;
    }

    /* Begins to add the next tiles, and waits for the ones before: these have been read by all
       when the block has met once more, and so more come into their stage then. */
    template <bool A, bool B, class LOAD>
    static __device__ __forceinline__ void add(float (&sum)[GROUP_SUMS], char *stages,
                                               int *stage, int64_t terms, bool works, LOAD load)
    {
        const char *a = stages + *stage * shape::STAGE;

        wf_copy_wait<WF_TILE_STAGES - 2>();
        shape::tiles_are_written();
        __syncthreads();
        if (works)
            shape::begin_multiply<A, B>(sum, a, a + shape::TILE_A, terms, (int)threadIdx.x);
        wf_sums_wait<1>();
        load(stages + (*stage + WF_TILE_STAGES - 1) % STAGES * shape::STAGE);
        *stage = (*stage + 1) % STAGES;
    }

    static __device__ __forceinline__ void finish()
    {
        wf_sums_wait<0>();
    }
};
} // namespace

const wf_moe_products wf_cuda_moe_wgmma = {launch_rows<group_wgmma>,
                                           launch_weights<group_wgmma>};

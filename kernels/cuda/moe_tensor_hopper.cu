/*
 * kernels/cuda/moe_tensor_hopper.cu - grouped products of bf16 by wgmma, for compute capability
 * 9.0.
 *
 * A block is two warpgroups, 64 x 64 sums each, whose factors come from shared memory. Tiles
 * are brought by all threads, as in moe_tensor.cu, since rows of tokens are gathered: while the
 * tensor cores multiply one, the one after the next is asked for.
 */
#include "kernels/cuda/hopper_internal.h"
#include "kernels/cuda/moe_tensor_rows_internal.h"
#include "kernels/cuda/moe_tensor_weights_internal.h"

namespace
{
struct group_wgmma {
    enum {
        GROUP = 128, /* threads of a warpgroup */
        ROWS = 64,   /* rows of its sums */
        /* the last tile that was multiplied may still be read while the next one is */
        STAGES = WF_MMA_AHEAD + 2,
        ALIGNED = 1024, /* a stage, as the swizzle wants it */
        SHARED = ALIGNED + STAGES * WF_MMA_STAGE
    };

    static __device__ __forceinline__ char *stages(char *shared)
    {
        return shared + (ALIGNED - wf_shared_address(shared) % ALIGNED) % ALIGNED;
    }

    static __device__ __forceinline__ bool works(int64_t rows, int64_t)
    {
        return (int)threadIdx.x / GROUP * ROWS < rows;
    }

    static __device__ __forceinline__ int row(int t, int i)
    {
        return t / WF_WARP * 16 + t % WF_WARP / 4 + i / 2 % 2 * 8;
    }

    static __device__ __forceinline__ int column(int t, int i)
    {
        return t % 4 * 2 + i / 4 * 8 + i % 2;
    }

    /* Begins to add STEPS times 16 terms of a tile. */
    template <bool A, bool B, int STEPS>
    static __device__ __forceinline__ void multiply(float (&sum)[WF_MMA_SUMS], const char *tile)
    {
        const uint32_t at = wf_shared_address(tile);
        const uint64_t a = wf_described<A>(at + (int)threadIdx.x / GROUP * WF_TILE_BLOCK);
        const uint64_t b = wf_described<B>(at + WF_MMA_TILE_A);

        wf_sums_begin();
#pragma unroll
        for (int step = 0; step < STEPS; step++)
            wf_multiply<A, B>(sum, a + wf_step_of<A>(step), b + wf_step_of<B>(step));
        wf_sums_commit();
    }

    /* A tile of few terms ends with zeros, which add nothing.
       What threads have put into shared memory is there for the tensor cores, too, before the
       block meets. The tile before the last one has been read by all when it has met. */
    template <bool A, bool B, class LOAD>
    static __device__ __forceinline__ void add(float (&sum)[WF_MMA_SUMS], char *stages,
                                               int *stage, int64_t terms, bool works, LOAD load)
    {
        wf_copy_wait<WF_MMA_AHEAD - 1>();
        wf_boxes_are_written();
        __syncthreads();
        if (works && terms > WF_TILE_DEPTH / 2)
            multiply<A, B, 4>(sum, stages + *stage * WF_MMA_STAGE);
        else if (works)
            multiply<A, B, 2>(sum, stages + *stage * WF_MMA_STAGE);
        wf_sums_wait<1>();
        load(stages + (*stage + WF_MMA_AHEAD) % STAGES * WF_MMA_STAGE);
        *stage = (*stage + 1) % STAGES;
    }

    static __device__ __forceinline__ void finish()
    {
        wf_sums_wait<0>();
    }

    static __device__ __forceinline__ void put(float *tile, const float (&sum)[WF_MMA_SUMS])
    {
        wf_mma_put<group_wgmma>(tile, sum);
    }
};
} // namespace

const wf_moe_products wf_cuda_moe_wgmma = {launch_rows<group_wgmma>,
                                           launch_weights<group_wgmma>};

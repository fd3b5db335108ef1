/*
 * kernels/cuda/moe_tensor_hopper.cu - grouped products of bf16 by wgmma, for compute capability
 * 9.0; on the emulated device, which is asked for them by WEFT_TENSOR_CORES, the same without
 * tensor cores.
 *
 * A block is two warpgroups, 64 x 64 sums each, whose factors come from shared memory. Tiles
 * are brought by all threads, as in moe_tensor.cu, since rows of tokens are gathered: while the
 * tensor cores multiply one, the one after the next is asked for.
 */
#include "kernels/cuda/moe_tensor_rows_internal.h"
#include "kernels/cuda/moe_tensor_weights_internal.h"
#ifndef WF_CUDA_EMULATED
#include "kernels/cuda/hopper_internal.h"
#endif

namespace
{
#ifndef WF_CUDA_EMULATED
/* d[64 x 64] += 16 terms of a b^T. */
template <bool A, bool B>
__device__ __forceinline__ void multiply_half(float (&d)[WF_MMA_SUMS], uint64_t a, uint64_t b)
{
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
        "%32, %33, 1, 1, 1, %34, %35;"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
          "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]),
          "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]),
          "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),
          "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]),
          "+f"(d[31])
        : "l"(a), "l"(b), "n"((int)!A), "n"((int)!B));
}
#endif

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
#ifdef WF_CUDA_EMULATED
        for (int step = 0; step < STEPS; step++)
            wf_emulated_multiply<group_wgmma, A, B>(sum, tile, tile + WF_MMA_TILE_A, step);
#else
        const uint32_t at = wf_shared_address(tile);
        const uint64_t a = wf_described<A>(at + (int)threadIdx.x / GROUP * WF_TILE_BLOCK);
        const uint64_t b = wf_described<B>(at + WF_MMA_TILE_A);

        wf_sums_begin();
#pragma unroll
        for (int step = 0; step < STEPS; step++)
            multiply_half<A, B>(sum, a + wf_step_of<A>(step), b + wf_step_of<B>(step));
        wf_sums_commit();
#endif
    }

    /* Waits until at most N tiles are being multiplied. */
    template <int N> static __device__ __forceinline__ void wait()
    {
#ifndef WF_CUDA_EMULATED
        wf_sums_wait<N>();
#endif
    }

    /* A tile of few terms ends with zeros, which add nothing.
       What threads have put into shared memory is there for the tensor cores, too, before the
       block meets. The tile before the last one has been read by all when it has met. */
    template <bool A, bool B, class LOAD>
    static __device__ __forceinline__ void add(float (&sum)[WF_MMA_SUMS], char *stages,
                                               int *stage, int64_t terms, bool works, LOAD load)
    {
        wf_copy_wait<WF_MMA_AHEAD - 1>();
#ifndef WF_CUDA_EMULATED
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
        __syncthreads();
        if (works && terms > WF_TILE_DEPTH / 2)
            multiply<A, B, 4>(sum, stages + *stage * WF_MMA_STAGE);
        else if (works)
            multiply<A, B, 2>(sum, stages + *stage * WF_MMA_STAGE);
        wait<1>();
        load(stages + (*stage + WF_MMA_AHEAD) % STAGES * WF_MMA_STAGE);
        *stage = (*stage + 1) % STAGES;
    }

    static __device__ __forceinline__ void finish()
    {
        wait<0>();
    }

    static __device__ __forceinline__ void put(float *tile, const float (&sum)[WF_MMA_SUMS])
    {
        wf_mma_put<group_wgmma>(tile, sum);
    }
};
} // namespace

const wf_moe_products wf_cuda_moe_wgmma = {launch_rows<group_wgmma>,
                                           launch_weights<group_wgmma>};

/*
 * kernels/cuda/nf4_product_hopper.cu - products by wgmma whose weights are nf4, for compute
 * capability 9.0 and few rows. The tensor memory accelerator copies tiles as they are, so all
 * threads of a warpgroup load them here (tensor_kernel_internal.h), and multiply them.
 */
#include "kernels/cuda/hopper_internal.h"
#include "kernels/cuda/tensor_kernel_internal.h"

namespace
{

/* A warpgroup's 64 x 64 elements, the fewest rows that the instruction has. */
struct group_shape {
    enum {
        DOWN = 64,
        ACROSS = 64,
        THREADS = 128,
        SUMS = WF_HOPPER_SUMS / 2,
        TILE_A = DOWN * WF_TILE_LINE,
        STAGE = TILE_A + ACROSS * WF_TILE_LINE,
        ALIGNED = 1024 /* as the swizzle wants it */
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
    template <bool A, bool B, int STEPS>
    static __device__ __forceinline__ void multiply_steps(float (&sum)[SUMS], const char *a,
                                                          const char *b)
    {
        const uint64_t x = wf_described<A>(wf_shared_address(a));
        const uint64_t y = wf_described<B>(wf_shared_address(b));

        wf_sums_begin();
#pragma unroll
        for (int step = 0; step < STEPS; step++)
            wf_multiply<A, B>(sum, x + wf_step_of<A>(step), y + wf_step_of<B>(step));
        wf_sums_commit();
        wf_sums_wait<0>();
    }
    /* Takes as many steps as tensor_product_hopper.cu; terms after the last one are zeros. */
    template <bool A, bool B>
    static __device__ __forceinline__ void multiply_tiles(float (&sum)[SUMS], const char *a,
                                                          const char *b, int64_t left, int)
    {
        if (left > WF_TILE_DEPTH / 2)
            multiply_steps<A, B, 4>(sum, a, b);
        else
            multiply_steps<A, B, 2>(sum, a, b);
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

template <class T> cudaError_t launch_any(cudaStream_t stream, const wf_tensor_product *p)
{
    typedef group_shape S;

    if (!p->a_along)
        return cudaErrorNotSupported; /* activations are, where weights are the other factor */
    return p->b_along ? launch<S, coded_bf16_weights<S, true>, true, T>(stream, p)
                      : launch<S, coded_bf16_weights<S, false>, true, T>(stream, p);
}

} // namespace

cudaError_t wf_cuda_launch_nf4_product_hopper(cudaStream_t stream, const wf_tensor_product *p)
{
    return p->result.type == WF_BF16 ? launch_any<wf_bf16>(stream, p)
                                     : launch_any<float>(stream, p);
}

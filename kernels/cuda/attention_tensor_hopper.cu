/*
 * kernels/cuda/attention_tensor_hopper.cu - attention of bf16 by wgmma, for compute capability
 * 9.0: the loads, loops and numbers of the kernels by mma.sync, and their bits.
 *
 * A block is two warpgroups, which multiply 64 tokens each: those of its own tile with a tile
 * of the other side, both from shared memory, then what became of these scores, from registers,
 * with a tile whose terms are tokens. While one warpgroup has its softmax the other may
 * multiply.
 */
#include "kernels/cuda/attention_tensor_forward_internal.h"
#include "kernels/cuda/attention_tensor_grad_internal.h"
#include "kernels/cuda/hopper_internal.h"

namespace
{

struct attention_wgmma {
    enum {
        GROUP = 128, /* threads of a warpgroup */
        GROUPS = 2,
        ROWS = 64, /* the fewest that the instruction has */
        OWN = GROUPS * ROWS,
        THREADS = GROUPS * GROUP,
        ALIGNED = 1024 /* a tile, as the swizzle wants it */
    };

    static constexpr __host__ __device__ int streamed(int)
    {
        return 32;
    }

    static __device__ __forceinline__ int part()
    {
        return (int)threadIdx.x / GROUP;
    }

    static __device__ __forceinline__ char *aligned(char *shared)
    {
        return shared + (ALIGNED - wf_shared_address(shared) % ALIGNED) % ALIGNED;
    }
    /* The instruction reads shared memory by another proxy than threads have written it. */
    static __device__ __forceinline__ void tiles_are_written()
    {
        wf_boxes_are_written();
    }
    static __device__ __forceinline__ void wait()
    {
        wf_sums_wait<0>();
    }

    /* Begins a product whose terms or features are the first three quarters of DIM where there
       are no more, else all: straight code, since the compiler makes instructions wait for each
       other that are in branches of their own. */
    template <int DIM, class BEGIN>
    static __device__ __forceinline__ void begin(int dim, BEGIN begin_of)
    {
        if (dim <= DIM / 4 * 3) {
            wf_sums_begin();
            begin_of(std::integral_constant<int, DIM / 4 * 3>());
            wf_sums_commit();
        } else {
            wf_sums_begin();
            begin_of(std::integral_constant<int, DIM>());
            wf_sums_commit();
        }
    }

    template <int N, int DIM>
    static __device__ __forceinline__ void multiply(float (&s)[N / 2], const char *own,
                                                    const char *other, int dim)
    {
        const uint32_t rows = wf_shared_address(own) + (uint32_t)(part() * WF_TILE_BLOCK);
        const uint32_t columns = wf_shared_address(other);

        begin<DIM>(dim, [&](auto terms) {
            wf_multiply<true, true, false>(s, wf_described<true>(rows),
                                           wf_described<true>(columns));
#pragma unroll
            for (int d = WF_TILE_STEP; d < decltype(terms)::value; d += WF_TILE_STEP) {
                const int line = d / WF_TILE_DEPTH * WF_TILE_LINE;
                const uint64_t step = wf_step_of<true>(d % WF_TILE_DEPTH / WF_TILE_STEP);

                wf_multiply<true, true>(s, wf_described<true>(rows + line * OWN) + step,
                                        wf_described<true>(columns + line * N) + step);
            }
        });
    }

    /* An instruction has up to 128 features. */
    template <int N, int DIM>
    static __device__ __forceinline__ void add(float (&sum)[DIM / 2],
                                               const uint32_t (&p)[N / 4], const char *tokens,
                                               int dim)
    {
        constexpr int FEATURES = DIM == 128 ? 128 : 64;
        const uint32_t tile = wf_shared_address(tokens);

        begin<DIM>(dim, [&](auto features) {
#pragma unroll
            for (int n = 0; n < N; n += WF_TILE_STEP)
#pragma unroll
                for (int d = 0; d < decltype(features)::value; d += FEATURES)
                    wf_multiply_rows<false>(
                        *(float(*)[FEATURES / 2])(sum + d / 2), p + n / 4,
                        wf_described<false, N>(tile + d / WF_TILE_DEPTH * N * WF_TILE_LINE) +
                            wf_step_of<false>(n / WF_TILE_STEP));
        });
    }
};

} // namespace

const wf_attention_kernels wf_cuda_attention_wgmma = {launch_outputs<attention_wgmma>,
                                                      launch_gradients<attention_wgmma>};

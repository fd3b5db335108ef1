/*
 * kernels/cuda/attention_mma_internal.h - the shape of attention's kernels by mma.sync, which
 * every GPU from compute capability 8.0 on has: four warps, which multiply 16 tokens each. For
 * .cu files.
 */
#ifndef WF_KERNELS_CUDA_ATTENTION_MMA_INTERNAL_H
#define WF_KERNELS_CUDA_ATTENTION_MMA_INTERNAL_H

#include "kernels/cuda/attention_tensor_internal.h"
#include "kernels/cuda/tensor_fragment_internal.h"

namespace
{

struct attention_mma {
    enum { ROWS = ROWS_OF_WARP, OWN = 64, THREADS = OWN / ROWS * WF_WARP, ALIGNED = 0 };

    /* Returns the tokens of a tile that a gradient streams: of more than 128 dims registers
       have room for the scores of 16. Groups of 16 are added one after the other, so bits do
       not depend on it. */
    static constexpr __host__ __device__ int streamed(int dim)
    {
        return dim > 128 ? 16 : 32;
    }

    static __device__ __forceinline__ int part()
    {
        return (int)threadIdx.x / WF_WARP;
    }

    static __device__ __forceinline__ char *aligned(char *shared)
    {
        return shared;
    }
    static __device__ __forceinline__ void tiles_are_written()
    {
    }
    static __device__ __forceinline__ void wait()
    {
    }

    /* s = the part's tokens of `own` times the N tokens of `other`, each over all features. */
    template <int N, int DIM>
    static __device__ __forceinline__ void multiply(float (&s)[N / 2], const char *own,
                                                    const char *other, int dim)
    {
        const int lane = (int)threadIdx.x % WF_WARP;

        wf_clear(s);
#pragma unroll 4 /* registers have no room for the fragments of all at once */
        for (int d = 0; d < DIM; d += WF_TILE_STEP) {
            uint32_t x[4], y[4];

            if (d >= dim)
                continue;
            wf_load_fragment<true>(x, block_of<OWN>(own, d), part() * ROWS, d % WF_TILE_DEPTH,
                                   lane, true);
#pragma unroll
            for (int n = 0; n < N; n += 16) {
                wf_load_fragment<true>(y, block_of<N>(other, d), n, d % WF_TILE_DEPTH, lane,
                                       false);
                wf_multiply_fragments<2>(s + n / 2, x, y);
            }
        }
    }

    /* sum += p times the features of N tokens, 16 tokens an instruction, in ascending order. */
    template <int N, int DIM>
    static __device__ __forceinline__ void add(float (&sum)[DIM / 2],
                                               const uint32_t (&p)[N / 4], const char *tokens,
                                               int dim)
    {
        const int lane = (int)threadIdx.x % WF_WARP;

#pragma unroll
        for (int n = 0; n < N; n += WF_TILE_STEP)
#pragma unroll
            for (int d = 0; d < DIM; d += 16) {
                uint32_t y[4];

                if (d >= dim)
                    continue;
                wf_load_fragment<false>(y, block_of<N>(tokens, d), d % WF_TILE_DEPTH, n, lane,
                                        false);
                wf_multiply_fragments<2>(sum + d / 2, p + n / 4, y);
            }
    }
};

} // namespace

#endif

/*
 * kernels/cuda/moe_tensor_internal.h - what grouped products of bf16 on tensor cores have in
 * common (moe_tensor_rows_internal.h, moe_tensor_weights_internal.h): their tiles, which are
 * those of tensor_tile_internal.h with lines that are gathered and need not be aligned, and how
 * their sums leave. For .cu files.
 *
 * As many blocks as a GPU runs at once take one job after the other, 128 x 64 sums of an
 * expert. A chunk is summed from its first term on, 16 terms by one instruction, so an element
 * depends on no other row, expert or layout.
 */
#ifndef WF_KERNELS_CUDA_MOE_TENSOR_INTERNAL_H
#define WF_KERNELS_CUDA_MOE_TENSOR_INTERNAL_H

#include "kernels/cuda/moe_internal.h"
#include "kernels/cuda/tensor_mma_internal.h"

namespace
{
enum {
    GROUP_SHARE = 8, /* elements of 16 bytes */
    GROUP_BAND = 16, /* rows of tiles that blocks side by side go through together */
    /* sums of a block and of a thread, and bytes of the first factor's tile, in any shape */
    GROUP_DOWN = wf_mma_many_rows::DOWN,
    GROUP_ACROSS = wf_mma_many_rows::ACROSS,
    GROUP_SUMS = wf_mma_many_rows::SUMS,
    GROUP_TILE_A = wf_mma_many_rows::TILE_A
};

/* Brings n of eight elements, or none, and zeros for the others. WIDE: they are aligned to 16
   bytes, and all there or none. */
template <bool WIDE>
__device__ __forceinline__ void bring_eight(char *to, const wf_bf16 *data, int64_t offset,
                                            int64_t n)
{
    const wf_bf16 *from = data + (n > 0 ? offset : 0);

    if (WIDE)
        wf_copy_unit(to, from, n > 0);
    else
        *(uint4 *)to = wf_read(from, n, false).raw;
}

/* Brings a thread's share of a tile: of its line i `left` elements from data[line(i)] on, or
   zeros where that is below 0. */
template <bool WIDE, class S, class LINE>
__device__ __forceinline__ void bring_share(char *tile, const S &s, const wf_bf16 *data,
                                            int64_t left, LINE line)
{
    char *to = s.in(tile);

#pragma unroll(WIDE ? (int)S::EACH : 1)
    for (int i = 0; i < S::EACH; i++) {
        const int64_t at = line(i);

        bring_eight<WIDE>(to + i * S::APART, data, at, at < 0 ? 0 : left);
    }
}

/* Returns the row of a factor that is row number `at` of all experts'; -1 from `end` on. */
__device__ __forceinline__ int group_row(const wf_moe_matrix &f, int64_t at, int64_t end)
{
    return at >= end ? -1 : f.token ? f.token[at] : (int)at;
}

/* The rows of a factor that a thread's lines of a tile are; found before they are needed where
   loads are WIDE, else when they are. */
template <class S, bool WIDE> struct group_rows {
    int row[WIDE ? (int)S::EACH : 1];

    __device__ __forceinline__ void find(const wf_moe_matrix &f, int64_t first, int64_t end)
    {
        const S s((int)threadIdx.x);

#pragma unroll
        for (int i = 0; WIDE && i < S::EACH; i++)
            row[i] = group_row(f, first + s.line + i * S::LINES, end);
    }

    __device__ __forceinline__ int at(int i, const wf_moe_matrix &f, int64_t first,
                                      int64_t end) const
    {
        const S s((int)threadIdx.x);

        return WIDE ? row[WIDE ? i : 0] : group_row(f, first + s.line + i * S::LINES, end);
    }
};

/* Puts out the sums of a tile, whose rows begin at begin(row), times a factor; a zero is +0
   (core/numerics/tree.h) before that. wide: packs of columns are aligned. */
template <class T, class BEGIN>
__device__ __forceinline__ void put_sums(float *tile, int64_t rows, int64_t columns,
                                         float scale, bool wide, BEGIN begin)
{
    constexpr int PACK = wf_pack<T>::N, PACKS = GROUP_ACROSS / PACK;

#pragma unroll 1
    for (int i = (int)threadIdx.x; i < GROUP_DOWN * PACKS; i += WF_BLOCK) {
        const int r = i / PACKS, c = i % PACKS * PACK;
        float x[PACK];
        T *to;

        if (r >= rows || c >= columns)
            continue;
#pragma unroll
        for (int k = 0; k < PACK; k += 4) {
            const float4 sum = *(float4 *)wf_sum_at<GROUP_ACROSS>(tile, r, c + k);

            x[k] = (sum.x + 0.0f) * scale;
            x[k + 1] = (sum.y + 0.0f) * scale;
            x[k + 2] = (sum.z + 0.0f) * scale;
            x[k + 3] = (sum.w + 0.0f) * scale;
        }
        to = begin(r) + c;
        if (wide) {
            wf_store_pack(to, x);
            continue;
        }
#pragma unroll
        for (int k = 0; k < PACK; k++)
            if (c + k < columns)
                wf_put(to + k, x[k]);
    }
}

/* The way products are made: by mma.sync, of every GPU. Another one is in
   moe_tensor_hopper.cu. */
struct group_mma {
    typedef wf_mma_many_rows shape;

    enum { SHARED = WF_TILE_STAGES * shape::STAGE }; /* bytes of a block */

    /* Returns true where the warps of a product have some of a tile's rows and columns. */
    static __device__ __forceinline__ bool works(int64_t rows, int64_t columns)
    {
        const int warp = (int)threadIdx.x / WF_WARP;

        return shape::first_row(warp) < rows && shape::first_column(warp) < columns;
    }

    template <bool A, bool B, class LOAD>
    static __device__ __forceinline__ void add(float (&sum)[GROUP_SUMS], char *stages,
                                               int *stage, int64_t terms, bool works, LOAD load)
    {
        wf_add_tiles<shape, A, B>(sum, stages, stage, terms, works, load);
    }

    /* Waits until all that was added is in the sums. */
    static __device__ __forceinline__ void finish()
    {
    }
};

/* ---- the host's side ---- */

/* Returns true where eight elements from a multiple of eight on are 16 aligned bytes. */
inline bool is_wide(const wf_moe_matrix &f)
{
    return (uintptr_t)f.data % 16 == 0 && (f.step == 1 ? f.row : f.step) % GROUP_SHARE == 0 &&
           f.each % GROUP_SHARE == 0;
}

template <class E, class... P, class... A>
cudaError_t launch_group(void (*kernel)(P...), int64_t jobs, int64_t most, cudaStream_t stream,
                         const A &...argument)
{
    const cudaError_t code =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, E::SHARED);

    return code == cudaSuccess ? wf_launch(kernel, (unsigned)(jobs < most ? jobs : most),
                                           WF_BLOCK, E::SHARED, stream, argument...)
                               : code;
}

} // namespace

#endif

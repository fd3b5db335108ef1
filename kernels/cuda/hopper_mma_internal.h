/*
 * kernels/cuda/hopper_mma_internal.h - products of a warpgroup of Hopper as functions (wgmma of
 * NVIDIA's PTX ISA). For .cu files of compute capability 9.0.
 */
#ifndef WF_KERNELS_CUDA_HOPPER_MMA_INTERNAL_H
#define WF_KERNELS_CUDA_HOPPER_MMA_INTERNAL_H

#include "kernels/cuda/tensor_tile_internal.h"

#ifndef WF_CUDA_EMULATED

enum { WF_HOPPER_SUMS = 64 }; /* sums of a thread: a warpgroup's 64 x 128 */

static __device__ __forceinline__ void wf_sums_begin(void)
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

static __device__ __forceinline__ void wf_sums_commit(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int N> static __device__ __forceinline__ void wf_sums_wait(void)
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

/* A tile as the instruction takes it: its address, the distance of blocks of 64 rows where
   terms do not lie along, that of eight lines, the swizzle of 128 bytes. All distances in units
   of 16 bytes. */
template <bool ALONG> static __device__ __forceinline__ uint64_t wf_described(uint32_t tile)
{
    return (uint64_t)((tile & 0x3ffff) >> 4) |
           (uint64_t)(ALONG ? 1 : WF_TILE_BLOCK / 16) << 16 |
           (uint64_t)(8 * WF_TILE_LINE / 16) << 32 | (uint64_t)1 << 62;
}

/* d[64 x 128] += 16 terms of a b^T. */
template <bool A, bool B>
static __device__ __forceinline__ void wf_multiply(float (&d)[WF_HOPPER_SUMS], uint64_t a,
                                                   uint64_t b)
{
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "%64, %65, 1, 1, 1, %66, %67;"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
          "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]),
          "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]),
          "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),
          "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]),
          "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]),
          "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]),
          "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]),
          "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]),
          "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]),
          "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
        : "l"(a), "l"(b), "n"((int)!A), "n"((int)!B));
}

/* d[64 x 64] += 16 terms of a b^T. */
template <bool A, bool B>
static __device__ __forceinline__ void wf_multiply_half(float (&d)[WF_HOPPER_SUMS / 2],
                                                        uint64_t a, uint64_t b)
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

/* Returns the distance of 16 terms, in units of 16 bytes. */
template <bool ALONG> static __device__ __forceinline__ uint64_t wf_step_of(int step)
{
    return (uint64_t)step * (ALONG ? 2 * WF_TILE_STEP : WF_TILE_STEP * WF_TILE_LINE) / 16;
}

#endif

#endif

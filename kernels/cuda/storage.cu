/*
 * kernels/cuda/storage.cu - floats as bf16 and back, with the bits of core/bf16.h: to nearest even,
 * denormals as zeros; and words to fill memory with.
 */
#include "kernels/cuda/launch.h"

namespace
{

static __device__ __forceinline__ uint32_t narrowed(float x)
{
    uint32_t bits = __float_as_uint(x), rounded = bits + 0x7fffu + (bits >> 16 & 1);

    rounded = (bits & 0x7fffffffu) > 0x7f800000u ? bits | 0x400000u : rounded;
    rounded = (bits & 0x7f800000u) == 0 ? bits & 0x80000000u : rounded;
    return rounded >> 16;
}

static __device__ __forceinline__ float widened(uint32_t half)
{
    uint32_t bits = half << 16;

    return __uint_as_float((bits & 0x7f800000u) == 0 ? bits & 0x80000000u : bits);
}

enum { EACH = 8 }; /* elements of a thread: 16 bytes of bf16, 32 of floats */

__global__ void __launch_bounds__(WF_BLOCK)
    narrow_kernel(const float *from, uint16_t *to, int64_t n, bool wide)
{
    const int64_t step = (int64_t)gridDim.x * WF_BLOCK * EACH;

    for (int64_t i = ((int64_t)blockIdx.x * WF_BLOCK + threadIdx.x) * EACH; i < n; i += step) {
        float x[EACH];

        wf_load(from + i, n - i, wide, x);
        wf_load(from + i + 4, n - i - 4, wide, x + 4);
        if (wide && n - i >= EACH) {
            *reinterpret_cast<uint4 *>(to + i) = make_uint4(
                narrowed(x[0]) | narrowed(x[1]) << 16, narrowed(x[2]) | narrowed(x[3]) << 16,
                narrowed(x[4]) | narrowed(x[5]) << 16, narrowed(x[6]) | narrowed(x[7]) << 16);
            continue;
        }
        for (int e = 0; e < EACH && i + e < n; e++)
            to[i + e] = (uint16_t)narrowed(x[e]);
    }
}

__global__ void __launch_bounds__(WF_BLOCK)
    widen_kernel(const uint16_t *from, float *to, int64_t n, bool wide)
{
    const int64_t step = (int64_t)gridDim.x * WF_BLOCK * EACH;

    for (int64_t i = ((int64_t)blockIdx.x * WF_BLOCK + threadIdx.x) * EACH; i < n; i += step) {
        if (wide && n - i >= EACH) {
            uint4 raw = *reinterpret_cast<const uint4 *>(from + i);
            const uint32_t word[4] = {raw.x, raw.y, raw.z, raw.w};
            float y[EACH];

#pragma unroll
            for (int k = 0; k < 4; k++) {
                y[2 * k] = widened(word[k] & 0xffffu);
                y[2 * k + 1] = widened(word[k] >> 16);
            }
            wf_store(to + i, 4, true, y);
            wf_store(to + i + 4, 4, true, y + 4);
            continue;
        }
        for (int e = 0; e < EACH && i + e < n; e++)
            to[i + e] = widened(from[i + e]);
    }
}

__global__ void __launch_bounds__(WF_BLOCK) fill_kernel(uint32_t *to, uint32_t word, int64_t n)
{
    const int64_t step = (int64_t)gridDim.x * WF_BLOCK;

    for (int64_t i = (int64_t)blockIdx.x * WF_BLOCK + threadIdx.x; i < n; i += step)
        to[i] = word;
}

static bool aligned(const void *a, const void *b)
{
    return (((uintptr_t)a | (uintptr_t)b) % 16) == 0;
}

} // namespace

cudaError_t wf_cuda_launch_narrow(cudaStream_t stream, const float *from, uint16_t *to,
                                  int64_t n)
{
    return wf_launch(narrow_kernel, wf_grid(n, WF_BLOCK * EACH), WF_BLOCK, 0, stream, from, to,
                     n, aligned(from, to));
}

cudaError_t wf_cuda_launch_widen(cudaStream_t stream, const uint16_t *from, float *to,
                                 int64_t n)
{
    return wf_launch(widen_kernel, wf_grid(n, WF_BLOCK * EACH), WF_BLOCK, 0, stream, from, to,
                     n, aligned(from, to));
}

cudaError_t wf_cuda_launch_fill(cudaStream_t stream, uint32_t *to, uint32_t word, int64_t n)
{
    return wf_launch(fill_kernel, wf_grid(n, WF_BLOCK), WF_BLOCK, 0, stream, to, word, n);
}

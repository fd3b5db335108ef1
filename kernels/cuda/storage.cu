/* kernels/cuda/storage.cu - floats as bf16 and back, and words that are filled in. */
#include "kernels/cuda/operands_internal.h"

namespace
{
enum { EACH = 8 }; /* elements of a thread: 16 bytes of bf16, 32 of floats */

/* Flushes denormals to zeros of their sign, as core/numerics/bf16.h, on every device. */
__device__ __forceinline__ float flushed(float x)
{
    return fabsf(x) < 0x1p-126f ? copysignf(0.0f, x) : x;
}

__device__ __forceinline__ void floats_at(const float *from, int64_t n, bool wide, float *x)
{
    wf_pack<float> low = wf_read(from, n, wide), high = wf_read(from + 4, n - 4, wide);

    wf_unpack(low, x);
    wf_unpack(high, x + 4);
}

__global__ void __launch_bounds__(WF_BLOCK)
    narrow_kernel(const float *from, wf_bf16 *to, int64_t n, bool wide)
{
    const int64_t step = (int64_t)gridDim.x * WF_BLOCK * EACH;

    for (int64_t i = ((int64_t)blockIdx.x * WF_BLOCK + threadIdx.x) * EACH; i < n; i += step) {
        float x[EACH];

        floats_at(from + i, n - i, wide, x);
        wf_store(to + i, n - i, wide, x);
    }
}

__global__ void __launch_bounds__(WF_BLOCK)
    widen_kernel(const wf_bf16 *from, float *to, int64_t n, bool wide)
{
    const int64_t step = (int64_t)gridDim.x * WF_BLOCK * EACH;

    for (int64_t i = ((int64_t)blockIdx.x * WF_BLOCK + threadIdx.x) * EACH; i < n; i += step) {
        float x[EACH];

        wf_load(from + i, n - i, wide, x);
#pragma unroll
        for (int k = 0; k < EACH; k++)
            x[k] = flushed(x[k]);
        wf_store(to + i, n - i, wide, x);
        if (n - i > 4)
            wf_store(to + i + 4, n - i - 4, wide, x + 4);
    }
}

__global__ void __launch_bounds__(WF_BLOCK) fill_kernel(uint32_t *to, uint32_t word, int64_t n)
{
    const int64_t step = (int64_t)gridDim.x * WF_BLOCK;

    for (int64_t i = (int64_t)blockIdx.x * WF_BLOCK + threadIdx.x; i < n; i += step)
        to[i] = word;
}

bool aligned(const void *a, const void *b)
{
    return ((uintptr_t)a | (uintptr_t)b) % 16 == 0;
}

unsigned grid(int64_t n)
{
    return wf_grid(wf_ceil(n, EACH), WF_BLOCK);
}
} // namespace

cudaError_t wf_cuda_launch_narrow(cudaStream_t stream, const float *from, uint16_t *to,
                                  int64_t n)
{
    return wf_launch(narrow_kernel, grid(n), WF_BLOCK, 0, stream, from, (wf_bf16 *)to, n,
                     aligned(from, to));
}

cudaError_t wf_cuda_launch_widen(cudaStream_t stream, const uint16_t *from, float *to,
                                 int64_t n)
{
    return wf_launch(widen_kernel, grid(n), WF_BLOCK, 0, stream, (const wf_bf16 *)from, to, n,
                     aligned(from, to));
}

cudaError_t wf_cuda_launch_fill(cudaStream_t stream, uint32_t *to, uint32_t word, int64_t n)
{
    return wf_launch(fill_kernel, wf_grid(n, WF_BLOCK), WF_BLOCK, 0, stream, to, word, n);
}

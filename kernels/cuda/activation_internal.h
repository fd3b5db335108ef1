/*
 * kernels/cuda/activation_internal.h - silu and gelu of one number, for the files that use
 * them. Both are x times a sigmoid, as on the CPU (kernels/cpu/simd/activation.c).
 */
#ifndef WF_KERNELS_CUDA_ACTIVATION_INTERNAL_H
#define WF_KERNELS_CUDA_ACTIVATION_INTERNAL_H

#include "kernels/cuda/launch_internal.h"

static __device__ __forceinline__ float wf_silu_of(float x)
{
    return x * wf_sigmoid(x);
}

static __device__ __forceinline__ float wf_silu_backward(float x, float dy)
{
    float s = wf_sigmoid(x);

    return dy * fmaf(x * s, 1.0f - s, s);
}

/* 2 u = x (A + B x^2), A = 2 sqrt(2/pi), B = 0.044715 A. gelu is x or 0 long before |x| = 100,
   and inf * 0 must not arise. */
static __device__ __forceinline__ float wf_gelu_square(float x)
{
    return fminf(1e4f, x * x);
}

static __device__ __forceinline__ float wf_gelu_sigmoid(float x, float square)
{
    return wf_sigmoid(x * fmaf(square, 0x1.2444f2p-4f, 0x1.988454p0f));
}

static __device__ __forceinline__ float wf_gelu_of(float x)
{
    return x * wf_gelu_sigmoid(x, wf_gelu_square(x));
}

static __device__ __forceinline__ float wf_gelu_backward(float x, float dy)
{
    float square = wf_gelu_square(x), s = wf_gelu_sigmoid(x, square);
    float t = fmaf(square, 0x1.b6676cp-3f, 0x1.988454p0f);

    return dy * fmaf(x * s * (1.0f - s), t, s);
}

#endif

/*
 * kernels/cuda/product_finish_internal.h - what happens to a sum of a product when it is
 * complete: it is added to what was there, rounded, and what is joined to the product is done.
 * For .cu files.
 */
#ifndef WF_KERNELS_CUDA_PRODUCT_FINISH_INTERNAL_H
#define WF_KERNELS_CUDA_PRODUCT_FINISH_INTERNAL_H

#include "kernels/cuda/activation_internal.h"
#include "kernels/cuda/launch_internal.h"
#include "kernels/cuda/matmul_internal.h"

/* x as it comes back from where it is stored. */
template <class T> static __device__ __forceinline__ float wf_stored(float x)
{
    T t;

    wf_put(&t, x);
    return wf_get(t);
}

/* An element of the result, with what is joined to it; to: where node 0 of a tree begins, or
   another. */
template <class T>
static __device__ __forceinline__ void wf_finish(const wf_cuda_result &r, T *to, int64_t row,
                                                 int64_t column, float sum)
{
    int64_t at = row * r.to_ld + column;
    wf_vector bias = {r.bias, r.bias_bf16}, residual = {r.residual, r.residual_bf16};
    float x = r.add ? wf_get(to[at]) + sum : sum, y = x;

    if (r.bias)
        y = wf_stored<T>(x) + wf_at(bias, column);
    if (r.residual)
        y = wf_at(residual, at) + wf_stored<T>(y);
    wf_put(to + at, r.gelu ? x : y);
    if (r.gate)
        wf_put((T *)r.gelu + at, wf_silu_of(wf_get(((const T *)r.gate)[at])) * wf_stored<T>(x));
    else if (r.gelu)
        wf_put((T *)r.gelu + at, wf_gelu_of(y));
}

static __device__ __forceinline__ void wf_put_four(float *at, const float *x)
{
    *(float4 *)at = make_float4(x[0], x[1], x[2], x[3]);
}

static __device__ __forceinline__ void wf_put_four(wf_bf16 *at, const float *x)
{
    *(uint2 *)at = make_uint2(wf_bf16_pair(x[0], x[1]), wf_bf16_pair(x[2], x[3]));
}

/* Reads four neighbours at an aligned address. */
static __device__ __forceinline__ void wf_four_at(wf_vector v, int64_t at, float *x)
{
    if (v.bf16) {
        const uint2 p = *(const uint2 *)((const wf_bf16 *)v.data + at);

        x[0] = __uint_as_float(p.x << 16);
        x[1] = __uint_as_float(p.x & 0xffff0000u);
        x[2] = __uint_as_float(p.y << 16);
        x[3] = __uint_as_float(p.y & 0xffff0000u);
    } else {
        const float4 p = *(const float4 *)((const float *)v.data + at);

        x[0] = p.x;
        x[1] = p.y;
        x[2] = p.z;
        x[3] = p.w;
    }
}

/* Four neighbours from a multiple of four on; in one store where r.fours says that they are
   aligned to it. */
template <class T>
static __device__ __forceinline__ void wf_finish_four(const wf_cuda_result &r, T *to,
                                                      int64_t row, int64_t column,
                                                      int64_t columns, float *x)
{
    int64_t at = row * r.to_ld + column;
    wf_vector bias = {r.bias, r.bias_bf16};
    float y[4];

    if (!r.fours || column + 4 > columns) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (column + i < columns)
                wf_finish(r, to, row, column + i, x[i]);
        return;
    }
    if (r.add) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            x[i] = wf_get(to[at + i]) + x[i];
    }
    if (r.bias) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            y[i] = wf_stored<T>(x[i]) + wf_at(bias, column + i);
        if (r.gelu) {
#pragma unroll
            for (int i = 0; i < 4; i++)
                y[i] = wf_gelu_of(y[i]);
            wf_put_four((T *)r.gelu + at, y);
        } else {
#pragma unroll
            for (int i = 0; i < 4; i++)
                x[i] = y[i];
        }
    }
    if (r.gate) {
        wf_four_at({r.gate, sizeof(T) == 2}, at, y);
#pragma unroll
        for (int i = 0; i < 4; i++)
            y[i] = wf_silu_of(y[i]) * wf_stored<T>(x[i]);
        wf_put_four((T *)r.gelu + at, y);
    }
    if (r.residual) {
        wf_four_at({r.residual, r.residual_bf16}, at, y);
#pragma unroll
        for (int i = 0; i < 4; i++)
            x[i] = y[i] + wf_stored<T>(x[i]);
    }
    wf_put_four(to + at, x);
}

#endif

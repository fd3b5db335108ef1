/*
 * kernels/cuda/product_finish_internal.h - what happens to a sum of a product when it is
 * complete: it is added to what was there, rounded, and what is joined to the product is done.
 * For .cu files.
 */
#ifndef WF_KERNELS_CUDA_PRODUCT_FINISH_INTERNAL_H
#define WF_KERNELS_CUDA_PRODUCT_FINISH_INTERNAL_H

#include "kernels/cuda/activation_internal.h"
#include "kernels/cuda/launch_internal.h"
#include "kernels/cuda/rotation_internal.h"
#include "kernels/cuda/tensor_product_internal.h"

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

/* Returns where the angles of a column begin, for a row of the result. */
static __device__ __forceinline__ int64_t wf_angles_at(const wf_cuda_rotation &a, int64_t row,
                                                       int64_t column)
{
    return (int64_t)((uint32_t)(a.row + (int32_t)row) % (uint32_t)a.tokens) * a.half +
           (int32_t)column % a.half;
}

/* Four neighbours of the first half of a head, x, and those of the second, z, which are rounded
   and rotated. Rows are aligned to it. */
template <class T>
static __device__ __forceinline__ void wf_finish_rotated(const wf_cuda_result &r, T *to,
                                                         int64_t row, int64_t column, float *x,
                                                         float *z)
{
    const wf_cuda_rotation &a = r.rotation;
    const int64_t at = row * r.to_ld + column, angles = wf_angles_at(a, row, column);
    float cosine[4], sine[4];

    wf_four_at({a.cosine, false}, angles, cosine);
    wf_four_at({a.sine, false}, angles, sine);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        x[i] = wf_stored<T>(x[i]);
        z[i] = wf_stored<T>(z[i]);
        wf_rotate(&x[i], &z[i], cosine[i], sine[i]);
    }
    wf_put_four(to + at, x);
    wf_put_four(to + at + a.half, z);
}

/* ---- sums on their way to the result, as rows of COLUMNS floats in shared memory ---- */

/* Returns where four columns of a row lie: at their number xor the row's lowest bits, so that
   neither writes of parts of eight rows nor reads of a row have bank conflicts. */
template <int COLUMNS>
static __device__ __forceinline__ float *wf_sum_at(float *tile, int row, int column)
{
    return tile + row * COLUMNS + ((column / 4) ^ (row % 8)) * 4 + column % 4;
}

/* Reads four sums. A chunk counts as chunk + 0, so that every zero of a tree is +0
   (core/numerics/tree.h): one addition of +0 after the tree gives that. */
template <int COLUMNS>
static __device__ __forceinline__ void wf_four_sums(float *tile, int row, int column, float *x)
{
    float4 sum = *(float4 *)wf_sum_at<COLUMNS>(tile, row, column);

    x[0] = sum.x + 0.0f;
    x[1] = sum.y + 0.0f;
    x[2] = sum.z + 0.0f;
    x[3] = sum.w + 0.0f;
}

/* The same as wf_finish_tile where heads are rotated, of which a tile has whole ones. */
template <class T, int ROWS, int COLUMNS, int THREADS>
static __device__ __forceinline__ void wf_rotate_tile(const wf_tensor_product &p, T *to,
                                                      float *tile, int64_t row, int64_t column,
                                                      int t)
{
    const int half = p.result.rotation.half;

#pragma unroll 1
    for (int i = t; i < ROWS * COLUMNS / 8; i += THREADS) {
        int r = i / (COLUMNS / 8), first = i % (COLUMNS / 8) * 4; /* among first halves */
        int c = first + first / half * half;
        float x[4], z[4];

        if (row + r < p.m && column + c < p.n) {
            wf_four_sums<COLUMNS>(tile, r, c, x);
            wf_four_sums<COLUMNS>(tile, r, c + half, z);
            wf_finish_rotated(p.result, to, row + r, column + c, x, z);
        }
    }
}

/* ROWS rows from (row, column) of the result on, by THREADS threads. */
template <class T, int ROWS, int COLUMNS, int THREADS, bool ROTATES = true>
static __device__ __forceinline__ void wf_finish_tile(const wf_tensor_product &p, T *to,
                                                      float *tile, int64_t row, int64_t column,
                                                      int t)
{
    if (ROTATES && p.result.rotation.cosine) {
        wf_rotate_tile<T, ROWS, COLUMNS, THREADS>(p, to, tile, row, column, t);
        return;
    }
#pragma unroll 1
    for (int i = t; i < ROWS * COLUMNS / 4; i += THREADS) {
        int r = i / (COLUMNS / 4), c = i % (COLUMNS / 4) * 4;
        float x[4];

        wf_four_sums<COLUMNS>(tile, r, c, x);
        if (row + r < p.m && column + c < p.n)
            wf_finish_four(p.result, to, row + r, column + c, p.n, x);
    }
}

#endif

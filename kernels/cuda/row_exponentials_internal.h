/*
 * kernels/cuda/row_exponentials_internal.h - softmax and sigmoids of a row in one thread, with
 * the CPU's bits, for the rows of routers (kernels/router_rows_internal.h). For .cu files.
 */
#ifndef WF_KERNELS_CUDA_ROW_EXPONENTIALS_INTERNAL_H
#define WF_KERNELS_CUDA_ROW_EXPONENTIALS_INTERNAL_H

#include "kernels/cuda/lanes_internal.h"
#include "kernels/lanes.h"

static __device__ __forceinline__ float exp_of(float x)
{
    return wf_lanes1_exp(x).v;
}

/* exp(x - max) * (1 / (sum of exp(x - max) in 16 lanes)) */
static __device__ inline void row_softmax(const void *, const float *x, float *y, int64_t n)
{
    float max = -INFINITY, lane[WF_LANES_OF_SUM], scale;

    for (int64_t i = 0; i < n; i++)
        max = wf_greater(max, x[i]);
    wf_clear_lanes(lane);
    for (int64_t i = 0; i < n; i += WF_LANES_OF_SUM) {
#pragma unroll
        for (int l = 0; l < WF_LANES_OF_SUM; l++)
            if (i + l < n)
                lane[l] += exp_of(x[i + l] - max);
    }
    scale = 1.0f / wf_sum_of_lanes(lane);
    for (int64_t i = 0; i < n; i++)
        y[i] = exp_of(x[i] - max) * scale;
}

/* With e = exp(-|x|): 1 / (1 + e), or e / (1 + e) below zero. */
static __device__ inline void row_sigmoid(const void *, const float *x, float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const float e = exp_of(-fabsf(x[i]));

        y[i] = (x[i] < 0 ? e : 1.0f) / (1.0f + e);
    }
}

#endif

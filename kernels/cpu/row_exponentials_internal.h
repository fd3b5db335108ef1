/*
 * kernels/cpu/row_exponentials_internal.h - softmax and sigmoids of a row on the CPU, for the
 * rows of routers (kernels/router_rows_internal.h).
 */
#ifndef WF_KERNELS_CPU_ROW_EXPONENTIALS_INTERNAL_H
#define WF_KERNELS_CPU_ROW_EXPONENTIALS_INTERNAL_H

#include "kernels/cpu/simd_internal.h"
#include <math.h>

/* Computes wf_softmax: exp(x - max) * (1 / (sum of exp(x - max) in 16 lanes)). */
static inline void row_softmax(const void *with, const float *x, float *y, int64_t n)
{
    const wf_simd *simd = with;
    float max = simd->row_max(x, n);

    simd->exp_scale(x, max, 1.0f / simd->sum_exp(x, max, n), y, n);
}

/* With e = exp(-|x|): 1 / (1 + e), or e / (1 + e) below zero. */
static inline void row_sigmoid(const void *with, const float *x, float *y, int64_t n)
{
    const wf_simd *simd = with;

    for (int64_t i = 0; i < n; i++)
        y[i] = -fabsf(x[i]);
    simd->exp_scale(y, 0, 1, y, n);
    for (int64_t i = 0; i < n; i++)
        y[i] = (x[i] < 0 ? y[i] : 1) / (1 + y[i]);
}

#endif

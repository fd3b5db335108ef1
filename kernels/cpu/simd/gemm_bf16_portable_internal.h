/*
 * kernels/cpu/simd/gemm_bf16_portable_internal.h - a block of bf16 terms in C alone, without
 * modes of a processor: those of ARM take a result for a denormal before it is rounded, those
 * of x86 after.
 */
#ifndef WF_KERNELS_CPU_SIMD_GEMM_BF16_PORTABLE_INTERNAL_H
#define WF_KERNELS_CPU_SIMD_GEMM_BF16_PORTABLE_INTERNAL_H

#include "core/numerics/bf16.h"
#include "kernels/cpu/simd/gemm_bf16_internal.h"
#include <float.h>
#include <math.h>

typedef struct gemm_modes {
    int none;
} gemm_modes;

INLINE gemm_modes gemm_flush(float *sum)
{
    (void)sum;
    return (gemm_modes){0};
}

INLINE void gemm_restore(gemm_modes modes, float *sum)
{
    (void)modes;
    (void)sum;
}

/* Returns a mask of results that may be denormals, or have been before rounding: 0 < |x| <=
   FLT_MIN. */
INLINE uint32_t may_be_denormal(float x)
{
    return fabsf(x) <= FLT_MIN && x != 0.0f;
}

/*
 * a b + c rounded to so many bits as if there were no smallest exponent, then zero if it is
 * below FLT_MIN. Only FLT_MIN itself may have been rounded up from what stays below: from half
 * a unit of the last of 24 bits on. The sum in double is exact there, since a b has 16 bits.
 */
static float fma_flushed(float a, float b, float c)
{
    const double least = FLT_MIN - 0x1p-151;
    float x = fmaf(a, b, c);

    if (may_be_denormal(x) && fabs((double)a * (double)b + (double)c) < least)
        return copysignf(0.0f, x);
    return x;
}

/* Sums of floats that are no denormals are exact near FLT_MIN. */
static float add_flushed(float a, float b)
{
    float x = a + b;

    return fabsf(x) < FLT_MIN ? copysignf(0.0f, x) : x;
}

static float add_terms(float sum, const float *a, int64_t along, const float *b, int pairs)
{
    float even = 0.0f, odd = 0.0f;

    for (int q = 0; q < pairs; q++) {
        even = fma_flushed(a[q * along], b[q * GEMM_NR], even);
        odd = fma_flushed(a[(GEMM_PAIRS + q) * along], b[(GEMM_PAIRS + q) * GEMM_NR], odd);
    }
    return add_flushed(sum, add_flushed(even, odd));
}

/* One row of a tile, for which denormals are exceptions: false where there may have been
   one. */
static bool add_row(float *sum, const float *a, int64_t along, const float *b, int pairs)
{
    float even[GEMM_NR] = {0}, odd[GEMM_NR] = {0};
    uint32_t found = 0;

    for (int q = 0; q < pairs; q++) {
        float x = a[q * along], y = a[(GEMM_PAIRS + q) * along];

        for (int j = 0; j < GEMM_NR; j++) {
            even[j] = fmaf(x, b[q * GEMM_NR + j], even[j]);
            odd[j] = fmaf(y, b[(GEMM_PAIRS + q) * GEMM_NR + j], odd[j]);
            found |= may_be_denormal(even[j]) | may_be_denormal(odd[j]);
        }
    }
    for (int j = 0; j < GEMM_NR; j++) {
        even[j] += odd[j];
        odd[j] = sum[j] + even[j];
        found |= may_be_denormal(even[j]) | may_be_denormal(odd[j]);
    }
    for (int j = 0; j < GEMM_NR && !found; j++)
        sum[j] = odd[j];
    return !found;
}

/* Adds to sum (even chain + odd chain) of a block, with the first one sum = +0 + that, for
   `rows` rows of GEMM_NR columns. Even term q of row i is a[i * across + q * along], that of
   column j b[q * GEMM_NR + j], and odd terms follow all GEMM_PAIRS even ones. Pairs from
   `pairs` on are zeros: they could only change the sign of a zero. */
INLINE void gemm_add_block(const int rows, const int across, const int along, bool first,
                           float *sum, const float *a, const float *b, int pairs)
{
    for (int j = 0; j < rows * GEMM_NR && first; j++)
        sum[j] = 0.0f;
    for (int i = 0; i < rows; i++, sum += GEMM_NR) {
        if (add_row(sum, a + i * across, along, b, pairs))
            continue;
        for (int j = 0; j < GEMM_NR; j++)
            sum[j] = add_terms(sum[j], a + i * across, along, b + j, pairs);
    }
}

#endif

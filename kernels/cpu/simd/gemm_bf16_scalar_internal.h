/*
 * kernels/cpu/simd/gemm_bf16_scalar_internal.h - an element of a block of bf16 terms in C
 * alone, where a result may be a denormal: it becomes zero, as x86's processors have it after
 * they have rounded. Those of Arm decide before.
 */
#ifndef WF_KERNELS_CPU_SIMD_GEMM_BF16_SCALAR_INTERNAL_H
#define WF_KERNELS_CPU_SIMD_GEMM_BF16_SCALAR_INTERNAL_H

#include "core/numerics/bf16.h"
#include "kernels/cpu/simd/gemm_bf16_internal.h"
#include <float.h>
#include <math.h>

/* Returns a mask of results that may be denormals, or have been before rounding: 0 < |x| <=
   FLT_MIN. */
INLINE uint32_t may_be_denormal(float x)
{
    return fabsf(x) <= FLT_MIN && x != 0.0f;
}

/*
 * Returns a b + c rounded to 24 bits as if there were no smallest exponent, then zero if it is
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

/* Adds, denormals being zeros: sums of floats that are no denormals are exact near FLT_MIN. */
static float add_flushed(float a, float b)
{
    float x = a + b;

    return fabsf(x) < FLT_MIN ? copysignf(0.0f, x) : x;
}

/* sum + (even chain + odd chain) of a block, as gemm_add_block has it. */
static float add_terms(float sum, const float *a, int64_t along, const float *b, int pairs)
{
    float even = 0.0f, odd = 0.0f;

    for (int q = 0; q < pairs; q++) {
        even = fma_flushed(a[q * along], b[q * GEMM_NR], even);
        odd = fma_flushed(a[(GEMM_PAIRS + q) * along], b[(GEMM_PAIRS + q) * GEMM_NR], odd);
    }
    return add_flushed(sum, add_flushed(even, odd));
}

#endif

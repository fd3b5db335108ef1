/*
 * kernels/cpu/vec_math.h - exp over the vectors of vec.h. wf_expf (core/math.c) is the same
 * expression for one float and gives the same bits.
 *
 *     exp(x) = 2^n (1 + r (1 + r q(r)))    n = round(x / ln 2), r = x - n ln 2 in two fmas,
 *                                          |r| <= 0.3466, q minimax of degree 4
 *
 * Within 1 ulp; rounded denormals, then +0 below; +inf above; a NaN of a NaN.
 */
#ifndef WF_KERNELS_CPU_VEC_MATH_H
#define WF_KERNELS_CPU_VEC_MATH_H

#include "kernels/cpu/vec.h"

static inline v16 v16_exp(v16 x)
{
    v16 one = v16_set1(1.0f), q = v16_set1(0x1.6d4e6cp-10f), n, r;
    v16 shift = v16_set1(0x1.8p23f); /* 1.5 * 2^23 leaves no bits below 1 */

    /* v16_max and v16_min give their second operand where one is a NaN. */
    x = v16_min(v16_set1(100.0f), v16_max(v16_set1(-110.0f), x));
    n = v16_sub(v16_fma(x, v16_set1(0x1.715476p0f), shift), shift);
    r = v16_fnma(n, v16_set1(0x1.62e43p-1f), x);
    r = v16_fma(n, v16_set1(0x1.05c61p-29f), r);
    q = v16_fma(q, r, v16_set1(0x1.120c1ep-7f));
    q = v16_fma(q, r, v16_set1(0x1.5554e8p-5f));
    q = v16_fma(q, r, v16_set1(0x1.5554dcp-3f));
    q = v16_fma(q, r, v16_set1(0.5f));
    q = v16_fma(q, r, one);
    return v16_scale2(v16_fma(q, r, one), n);
}

#endif

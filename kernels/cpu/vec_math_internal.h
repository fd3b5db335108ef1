/*
 * kernels/cpu/vec_math_internal.h - exp and log over the vectors of vec.h. wf_expf
 * (core/numerics/math.c) is the same expression for one float as v16_exp and gives the same
 * bits.
 *
 *     exp(x) = 2^n (1 + r (1 + r q(r)))    n = round(x / ln 2), r = x - n ln 2 in two fmas,
 *                                          |r| <= 0.3466, q minimax of degree 4
 *
 * Within 1 ulp; rounded denormals, then +0 below; +inf above; a NaN of a NaN.
 *
 *     tanh(x) = x + x^3 p(x^2), p of degree 4, where |x| < 0.55, else 1 - 2 / (exp(2 |x|) + 1)
 *                                          with the sign of x: the bits of wf_tanhf
 *
 *     log(x) = k ln 2 + 2 s + s^3 R(s^2)    x = 2^k (1 + f), |s| = |f / (2 + f)| <= 0.1716,
 *                                           R the series 2/3 + 2/5 s^2 + .. of 5 terms
 */
#ifndef WF_KERNELS_CPU_VEC_MATH_INTERNAL_H
#define WF_KERNELS_CPU_VEC_MATH_INTERNAL_H

#include "kernels/cpu/vec_internal.h"

/* exp for x of -110 .. 100 or a NaN */
static inline v16 v16_exp_in_range(v16 x)
{
    v16 one = v16_set1(1.0f), q = v16_set1(0x1.6d4e6cp-10f), n, r;
    v16 shift = v16_set1(0x1.8p23f); /* 1.5 * 2^23 leaves no bits below 1 */

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

/* v16_max and v16_min give their second operand where one is a NaN. */
static inline v16 v16_exp(v16 x)
{
    return v16_exp_in_range(v16_min(v16_set1(100.0f), v16_max(v16_set1(-110.0f), x)));
}

/* Returns exp for x up to 100, but +0 below -87: a softmax does not need smaller terms, and a
   result that is no normal float (all of a causal mask's) costs AVX-512 a trap of 200
   cycles. */
static inline v16 v16_exp_or_zero(v16 x)
{
    v16 least = v16_set1(-87.0f);

    return v16_select(v16_less(x, least), v16_zero(), v16_exp_in_range(v16_max(least, x)));
}

static inline v16 v16_tanh(v16 x)
{
    v16 one = v16_set1(1.0f), two = v16_set1(2.0f), a = v16_max(x, v16_neg(x)), far, near;
    v16 s = v16_mul(x, x), p = v16_set1(-0.0065950323f);

    far = v16_sub(one, v16_div(two, v16_add(v16_exp(v16_mul(a, two)), one)));
    p = v16_fma(p, s, v16_set1(0.0212983f));
    p = v16_fma(p, s, v16_set1(-0.05390669f));
    p = v16_fma(p, s, v16_set1(0.13333088f));
    p = v16_fma(p, s, v16_set1(-0.3333333f));
    near = v16_fma(v16_mul(p, s), a, a);
    a = v16_select(v16_less(a, v16_set1(0.55f)), near, far);
    return v16_select(v16_less(x, v16_zero()), v16_neg(a), a);
}

/* For normal x > 0, within 2 ulp of log or of 1. */
static inline v16 v16_log(v16 x)
{
    v16 one = v16_set1(1.0f), k, m = v16_split2(x, &k), f, s, t, y = v16_set1(0x1.745d18p-3f);
    v16m low = v16_less(m, v16_set1(0x1.6a09e6p0f));

    k = v16_select(low, k, v16_add(k, one));
    f = v16_sub(v16_select(low, m, v16_mul(m, v16_set1(0.5f))), one);
    s = v16_div(f, v16_add(f, v16_set1(2.0f)));
    t = v16_mul(s, s);
    y = v16_fma(y, t, v16_set1(0x1.c71c72p-3f));
    y = v16_fma(y, t, v16_set1(0x1.24924ap-2f));
    y = v16_fma(y, t, v16_set1(0x1.99999ap-2f));
    y = v16_fma(y, t, v16_set1(0x1.555556p-1f));
    y = v16_fma(v16_mul(y, t), s, v16_add(s, s));
    y = v16_fnma(k, v16_set1(0x1.05c61p-29f), y);
    return v16_fma(k, v16_set1(0x1.62e43p-1f), y);
}

#endif

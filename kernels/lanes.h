/*
 * kernels/lanes.h - the language of ops by expression (kernels/elementwise.h): + - * / and
 * comparisons of C, and the functions below, over doubles, over the vectors of each instruction
 * set, and on a GPU.
 *
 *     WF_EXP(x)  WF_LOG(x)  WF_SQRT(x)  WF_TANH(x)  WF_SIGMOID(x)  WF_ABS(x)  WF_SILU(x)
 *     WF_GELU(x)  WF_NORMAL_BELOW(x), which is (1 + erf(x / sqrt 2)) / 2 within 1e-7
 *     WF_SIN(x)  WF_COS(x)  WF_ERF(x)  WF_LOG1P(x)  WF_EXPM1(x)  WF_FLOOR(x)  WF_CEIL(x)
 *     WF_ROUND(x)                       the nearest whole number, of two the even one
 *     WF_MAX(a, b)  WF_MIN(a, b)        a NaN where one is
 *     WF_POW(x, y)                      1 where y is 0; below zero an integral y alone has a
 *                                       value
 *     WF_FMA(a, b, c)                   a * b + c, rounded once
 *     WF_WHERE(condition, a, b)         a condition is a comparison, or conditions joined by &
 *                                       and |
 *
 * Every operation is one of IEEE arithmetic in the order that the text says, and each function
 * one text for all widths (kernels/lanes_of.def), so portable C, AVX2, AVX-512 and a GPU have
 * the same bits; silu and gelu alone have bits of their own on GPUs. Constants are floats:
 * 0.1f; a double that is none is refused.
 */
#ifndef WF_KERNELS_LANES_H
#define WF_KERNELS_LANES_H

#include "core/numerics/math.h"
#include "kernels/arguments.h"
#include "kernels/lanes_double.h"
#include "kernels/lanes_far.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifndef __cplusplus
#if defined(__SSE2__)
#include <immintrin.h>
#endif

/* Nothing is joined to an fma but where it is written, whatever the compiler's options say. */
#if defined(__clang__)
#define WF_LANES_OPTIONS
#define WF_LANES_UNROLL       _Pragma("clang loop unroll(full)")
#define WF_LANES_UNROLL_TWICE _Pragma("clang loop unroll_count(2)")
#define WF_LANES_UNJOINED     _Pragma("clang fp contract(off)")
#else
#define WF_LANES_OPTIONS      optimize("fp-contract=off"),
#define WF_LANES_UNROLL       _Pragma("GCC unroll 8")
#define WF_LANES_UNROLL_TWICE _Pragma("GCC unroll 2")
#define WF_LANES_UNJOINED
#endif
#define WF_LANES_BODY(options) static inline __attribute__((WF_LANES_OPTIONS options unused))

/* The instruction set that functions on vectors of 4, 8 or 16 lanes are compiled for. The
   sanitizer of undefined behaviour checks those of 4, which are the same lines. */
#if defined(__clang__)
#define WF_LANES_UNCHECKED no_sanitize("undefined"),
#else
#define WF_LANES_UNCHECKED
#endif
#define WF_LANES_TARGET_4
#define WF_LANES_TARGET_8 WF_LANES_UNCHECKED target("avx2,fma"),
#define WF_LANES_TARGET_16                                                                     \
    WF_LANES_UNCHECKED target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma"),
/* Ends a function on wide vectors: code for SSE takes forty times as long on some processors
   while upper halves of registers are in use, and gcc clears them from -O2 on alone. */
#define WF_LANES_LEAVE_4
#define WF_LANES_LEAVE_8  __builtin_ia32_vzeroupper();
#define WF_LANES_LEAVE_16 __builtin_ia32_vzeroupper();
#define WF_LANES_FUNCTION                                                                      \
    static inline __attribute__((                                                              \
        WF_LANES_OPTIONS WF_JOIN(WF_LANES_TARGET_, WF_LANES) always_inline, unused))

#if defined(__clang__)
#pragma float_control(push)
#pragma STDC FP_CONTRACT OFF
#endif
#define WF_LANES 4
#include "kernels/lanes_of.def"
#undef WF_LANES
#if defined(__x86_64__)
#define WF_LANES_WIDE(do, a)                                                                   \
    do                                                                                         \
    (4, a) do(8, a) do(16, a)
#define WF_LANES 8
#include "kernels/lanes_of.def"
#undef WF_LANES
#define WF_LANES 16
#include "kernels/lanes_of.def"
#undef WF_LANES
#else
#define WF_LANES_WIDE(do, a)                                                                   \
    do                                                                                         \
    (4, a)
#endif
#if defined(__clang__)
#pragma float_control(pop)
#endif

/* The function for the type of x, and zero of the type that a condition chooses among. */
#if defined(__x86_64__)
#define WF_LANES_OF(x, f)                                                                      \
    _Generic((x), wf_lanes4                                                                    \
             : wf_lanes4_##f, wf_lanes8                                                        \
             : wf_lanes8_##f, wf_lanes16                                                       \
             : wf_lanes16_##f, wf_words4                                                       \
             : wf_lanes4_##f, wf_words8                                                        \
             : wf_lanes8_##f, wf_words16                                                       \
             : wf_lanes16_##f, default                                                         \
             : wf_double_##f)
#define WF_LANES_ZERO(c)                                                                       \
    _Generic((c), wf_words4                                                                    \
             : (wf_lanes4){0}, wf_words8                                                       \
             : (wf_lanes8){0}, wf_words16                                                      \
             : (wf_lanes16){0}, default                                                        \
             : (double)0)
#else
#define WF_LANES_OF(x, f)                                                                      \
    _Generic((x), wf_lanes4 : wf_lanes4_##f, wf_words4 : wf_lanes4_##f, default : wf_double_##f)
#define WF_LANES_ZERO(c) _Generic((c), wf_words4 : (wf_lanes4){0}, default : (double)0)
#endif
/* x as what `like` is: a constant becomes a vector. (x - 0 is x, also where that is -0.) */
#define WF_LANES_AS(like, x) ((x) - (__typeof__(like)){0})
#define WF_LANES_ONE(f, x)   WF_LANES_OF(x, f)(x)
#define WF_LANES_TWO(f, a, b)                                                                  \
    WF_LANES_OF((a) + (b), f)                                                                  \
    (WF_LANES_AS((a) + (b), a), WF_LANES_AS((a) + (b), b))
#define WF_LANES_THREE(f, a, b, c)                                                             \
    WF_LANES_OF((a) + (b) + (c), f)                                                            \
    (WF_LANES_AS((a) + (b) + (c), a), WF_LANES_AS((a) + (b) + (c), b),                         \
     WF_LANES_AS((a) + (b) + (c), c))
#define WF_WHERE(c, a, b) WF_LANES_OF(c, where)(c, (a)-WF_LANES_ZERO(c), (b)-WF_LANES_ZERO(c))

#else /* C++: one float of a GPU's thread. */
#include <math.h>
#include <string.h>

#if defined(__CUDACC__)
#define WF_LANES_FUNCTION             static __device__ __forceinline__
#define WF_LANES_ROUNDED(cuda, plain) cuda
#else
#define WF_LANES_FUNCTION             static inline
#define WF_LANES_ROUNDED(cuda, plain) plain
#endif
#if !defined(__device__) && !defined(__CUDACC__)
#define __device__
#endif

/** wf_lanes1 - a float whose operations are never joined to an fma, and which constants
 * become. */
struct wf_lanes1 {
    float v;

    wf_lanes1() = default;
    template <class T> __device__ wf_lanes1(T x) : v((float)x)
    {
    }
};
typedef int32_t wf_words1;
typedef uint32_t wf_unsigned1;

#define WF_LANES_OPERATOR(sign, cuda)                                                          \
    WF_LANES_FUNCTION wf_lanes1 operator sign(wf_lanes1 a, wf_lanes1 b)                        \
    {                                                                                          \
        return WF_LANES_ROUNDED(cuda(a.v, b.v), a.v sign b.v);                                 \
    }
WF_LANES_OPERATOR(+, __fadd_rn)
WF_LANES_OPERATOR(-, __fsub_rn)
WF_LANES_OPERATOR(*, __fmul_rn)
WF_LANES_OPERATOR(/, __fdiv_rn)
#undef WF_LANES_OPERATOR
#define WF_LANES_OPERATOR(sign)                                                                \
    WF_LANES_FUNCTION int operator sign(wf_lanes1 a, wf_lanes1 b)                              \
    {                                                                                          \
        return a.v sign b.v;                                                                   \
    }
WF_LANES_OPERATOR(<)
WF_LANES_OPERATOR(>)
WF_LANES_OPERATOR(<=)
WF_LANES_OPERATOR(>=)
WF_LANES_OPERATOR(==)
WF_LANES_OPERATOR(!=)
#undef WF_LANES_OPERATOR

WF_LANES_FUNCTION wf_lanes1 operator-(wf_lanes1 a)
{
    return -a.v;
}

WF_LANES_FUNCTION wf_lanes1 wf_lanes1_set(float x)
{
    return x;
}

WF_LANES_FUNCTION wf_words1 wf_lanes1_bits(wf_lanes1 x)
{
    wf_words1 bits;

    memcpy(&bits, &x.v, sizeof bits);
    return bits;
}

WF_LANES_FUNCTION wf_lanes1 wf_lanes1_of_bits(wf_words1 bits)
{
    wf_lanes1 x;

    memcpy(&x.v, &bits, sizeof bits);
    return x;
}

WF_LANES_FUNCTION wf_lanes1 wf_lanes1_of_words(wf_words1 x)
{
    return (float)x;
}

WF_LANES_FUNCTION wf_lanes1 wf_lanes1_where(int c, wf_lanes1 a, wf_lanes1 b)
{
    return c ? a : b;
}

WF_LANES_FUNCTION wf_lanes1 wf_lanes1_fma(wf_lanes1 a, wf_lanes1 b, wf_lanes1 c)
{
    return fmaf(a.v, b.v, c.v);
}

WF_LANES_FUNCTION wf_lanes1 wf_lanes1_sqrt(wf_lanes1 a)
{
    return WF_LANES_ROUNDED(__fsqrt_rn(a.v), sqrtf(a.v));
}

WF_LANES_FUNCTION wf_lanes1 wf_lanes1_greater(wf_lanes1 a, wf_lanes1 b)
{
    return a > b ? a : b;
}

WF_LANES_FUNCTION wf_lanes1 wf_lanes1_less(wf_lanes1 a, wf_lanes1 b)
{
    return a < b ? a : b;
}

#define WF_LANES 1
#include "kernels/lanes_of.def"
#undef WF_LANES

#define WF_LANES_ONE(f, x)         wf_lanes1_##f(x)
#define WF_LANES_TWO(f, a, b)      wf_lanes1_##f(a, b)
#define WF_LANES_THREE(f, a, b, c) wf_lanes1_##f(a, b, c)
#define WF_WHERE(c, a, b)          wf_lanes1_where(c, a, b)
#endif

#define WF_EXP(x)       WF_LANES_ONE(exp, x)
#define WF_LOG(x)       WF_LANES_ONE(log, x)
#define WF_SQRT(x)      WF_LANES_ONE(sqrt, x)
#define WF_TANH(x)      WF_LANES_ONE(tanh, x)
#define WF_ABS(x)       WF_LANES_ONE(abs, x)
#define WF_MAX(a, b)    WF_LANES_TWO(max, a, b)
#define WF_MIN(a, b)    WF_LANES_TWO(min, a, b)
#define WF_POW(x, y)    WF_LANES_TWO(pow, x, y)
#define WF_FMA(a, b, c) WF_LANES_THREE(fma, a, b, c)
#define WF_SIGMOID(x)   WF_LANES_ONE(sigmoid, x)
#define WF_SIN(x)       WF_LANES_ONE(sin, x)
#define WF_COS(x)       WF_LANES_ONE(cos, x)
#define WF_ERF(x)       WF_LANES_ONE(erf, x)
#define WF_LOG1P(x)     WF_LANES_ONE(log1p, x)
#define WF_EXPM1(x)     WF_LANES_ONE(expm1, x)
#define WF_FLOOR(x)     WF_LANES_ONE(floor, x)
#define WF_CEIL(x)      WF_LANES_ONE(ceil, x)
#define WF_ROUND(x)     WF_LANES_ONE(round, x)
/* 1 - erf(|x|) by Abramowitz & Stegun's 7.1.26, within 1.5e-7 */
#define WF_X_ERFC_T(x) (1 / (1 + 0.3275911f * WF_ABS(x)))
#define WF_X_ERFC(x)                                                                           \
    (((((1.061405429f * WF_X_ERFC_T(x) - 1.453152027f) * WF_X_ERFC_T(x) + 1.421413741f) *      \
           WF_X_ERFC_T(x) -                                                                    \
       0.284496736f) *                                                                         \
          WF_X_ERFC_T(x) +                                                                     \
      0.254829592f) *                                                                          \
     WF_X_ERFC_T(x) * WF_EXP(-((x) * (x))))
/* the share of a normal distribution that is below x */
#define WF_NORMAL_BELOW(x)                                                                     \
    WF_WHERE((x) < 0, 0.5f * WF_X_ERFC((x)*0.70710678f), 1 - 0.5f * WF_X_ERFC((x)*0.70710678f))
#if !defined(WF_SILU)
#define WF_SILU(x)          WF_LANES_ONE(silu, x)
#define WF_GELU(x)          WF_LANES_ONE(gelu, x)
#define WF_SILU_GRAD(x, dy) WF_LANES_TWO(silu_grad, x, dy)
#define WF_GELU_GRAD(x, dy) WF_LANES_TWO(gelu_grad, x, dy)
#endif

#endif

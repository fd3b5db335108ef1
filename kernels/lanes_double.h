/*
 * kernels/lanes_double.h - the language of kernels/lanes.h in double, for reference
 * loops.
 */
#ifndef WF_KERNELS_LANES_DOUBLE_H
#define WF_KERNELS_LANES_DOUBLE_H

#include "core/numerics/math.h"

#ifndef __cplusplus
static inline double wf_double_exp(double x)
{
    return wf_expd(x);
}

static inline double wf_double_log(double x)
{
    return wf_logd(x);
}

static inline double wf_double_pow(double x, double y)
{
    return wf_powd(x, y);
}

static inline double wf_double_sqrt(double x)
{
    return __builtin_sqrt(x);
}

static inline double wf_double_abs(double x)
{
    return __builtin_fabs(x);
}

/* x - x^3/3 + .. where 1 - 2 / (e^2x + 1) would cancel. */
static inline double wf_double_tanh(double x)
{
    double s = x * x;

    if (s < 1e-4)
        return x * (1 - s * (1.0 / 3 - s * (2.0 / 15 - s * (17.0 / 315))));
    return 1 - 2 / (wf_expd(2 * x) + 1);
}

static inline double wf_double_max(double a, double b)
{
    return a > b || a != a ? a : b;
}

static inline double wf_double_min(double a, double b)
{
    return a < b || a != a ? a : b;
}

static inline double wf_double_fma(double a, double b, double c)
{
    return __builtin_fma(a, b, c);
}

static inline double wf_double_where(int c, double a, double b)
{
    return c ? a : b;
}

/* 2 u of gelu (kernels/lanes_of.def). */
static inline double wf_double_gelu_argument(double x)
{
    return 2 * 0.79788456080286535588 * (x + 0.044715 * x * x * x);
}

static inline double wf_double_sigmoid(double x)
{
    return 1 / (1 + wf_expd(-x));
}

static inline double wf_double_silu(double x)
{
    return x * wf_double_sigmoid(x);
}

static inline double wf_double_silu_grad(double x, double dy)
{
    double s = wf_double_sigmoid(x);

    return dy * s * (1 + x * (1 - s));
}

static inline double wf_double_gelu(double x)
{
    return x * wf_double_sigmoid(wf_double_gelu_argument(x));
}

static inline double wf_double_gelu_grad(double x, double dy)
{
    double s = wf_double_sigmoid(wf_double_gelu_argument(x));
    double inner = 2 * 0.79788456080286535588 * (1 + 3 * 0.044715 * x * x);

    return dy * s * (1 + x * (1 - s) * inner);
}

static inline double wf_double_sin(double x)
{
    return wf_sind(x);
}

static inline double wf_double_cos(double x)
{
    return wf_cosd(x);
}

/* 2 / sqrt(pi) x e^(-x^2) (1 + 2 x^2 / 3 + (2 x^2)^2 / (3 5) + ..), whose terms have one
   sign. */
static inline double wf_double_erf(double x)
{
    double term = 1, sum = 1;

    if (!(x > -6 && x < 6))
        return x > 0 ? 1 : x < 0 ? -1 : x;
    for (int k = 1; k < 200 && term > sum * 1e-17; k++) {
        term *= 2 * x * x / (2 * k + 1);
        sum += term;
    }
    return 1.12837916709551257390 * x * wf_expd(-x * x) * sum;
}

/* log u x / (u - 1) with u = 1 + x, which has the error of that sum above and below. */
static inline double wf_double_log1p(double x)
{
    double u = 1 + x;

    return u == 1 || !(u > 0 && u < 1e300) ? (u == 1 ? x : wf_logd(u))
                                           : wf_logd(u) * (x / (u - 1));
}

static inline double wf_double_expm1(double x)
{
    double u = wf_expd(x);

    return u == 1 ? x : !(x > -30 && x < 30) ? u - 1 : (u - 1) * (x / wf_logd(u));
}

static inline double wf_double_floor(double x)
{
    return __builtin_floor(x);
}

static inline double wf_double_ceil(double x)
{
    return __builtin_ceil(x);
}

static inline double wf_double_round(double x)
{
    double a = __builtin_fabs(x);

    return a < 0x1p52 ? __builtin_copysign((a + 0x1p52) - 0x1p52, x) : x;
}
#endif

#endif

/*
 * core/numerics/math.h - elementary functions of our own: the same bits on every machine and
 * compiler, which no C library promises. They use + - * / sqrt and fma (each rounded once, in
 * software where the machine has none), comparisons and bits, and read no table and no mode.
 *
 * Floats are within 2 ulp of the true value and doubles within 1. Denormal arguments and
 * results are computed, not flushed. A NaN gives a NaN, of unspecified sign and payload; errno
 * and floating-point exceptions are not part of it.
 */
#ifndef WF_CORE_NUMERICS_MATH_H
#define WF_CORE_NUMERICS_MATH_H

#include "core/export.h"

WF_BEGIN_DECLS

/** wf_expf - returns e^x; bit for bit v16_exp of kernels/cpu/vec_math_internal.h. */
WF_API float wf_expf(float x);

/** wf_tanhf - returns the hyperbolic tangent. */
WF_API float wf_tanhf(float x);

/** wf_logf - returns the natural logarithm; -inf for a zero, NaN below it. */
WF_API float wf_logf(float x);

/** wf_sinf, wf_cosf - return wf_sind and wf_cosd, rounded to float. */
WF_API float wf_sinf(float x);
WF_API float wf_cosf(float x);

/** wf_expd - returns e^x. */
WF_API double wf_expd(double x);

/** wf_logd - returns the natural logarithm; -inf for a zero, NaN below it. */
WF_API double wf_logd(double x);

/**
 * wf_powd - returns x^y
 *
 * @param x  any; below zero only an integral y has a value, others give NaN
 * @param y  any; 0 gives 1 whatever x is, and so does x = 1 whatever y is
 */
WF_API double wf_powd(double x, double y);

/**
 * wf_sind, wf_cosd, wf_sincos - compute the sine and cosine of an angle in radians
 *
 * @param x  |x| <= 2^40; a NaN comes out beyond
 */
WF_API double wf_sind(double x);
WF_API double wf_cosd(double x);
WF_API void wf_sincos(double x, double *sine, double *cosine);

WF_END_DECLS

#endif

/*
 * kernels/elementwise_ops.h - functions of one element each, beside those of kernels/ops.h, as
 * PyTorch names them (docs/torch.md). A call's operands have shapes that wf_broadcast_all
 * (kernels/reshape.h) makes alike, and then one layout. An op of one's own:
 * kernels/elementwise.h.
 */
#ifndef WF_KERNELS_ELEMENTWISE_OPS_H
#define WF_KERNELS_ELEMENTWISE_OPS_H

#include "core/op.h"

WF_BEGIN_DECLS

/**
 * wf_exp - e^x; wf_log - natural logarithm, -inf of a zero, NaN below; wf_sqrt; wf_rsqrt - 1 /
 * sqrt(x)
 * wf_relu - max(x, 0), a NaN of a NaN; wf_tanh; wf_sigmoid - 1 / (1 + e^-x); wf_abs - |x|;
 * wf_neg - -x
 * wf_gelu_erf - x (1 + erf(x / sqrt 2)) / 2, its erf within 1.5e-7 (Abramowitz & Stegun
 * 7.1.26);
 * wf_softplus - log(1 + e^x)
 *
 * Layout:      "...->..."
 * Gradient:    to x; that of relu and abs at 0 is 0
 */
WF_API wf_tensor *wf_exp(wf_tensor *x);
WF_API wf_tensor *wf_log(wf_tensor *x);
WF_API wf_tensor *wf_sqrt(wf_tensor *x);
WF_API wf_tensor *wf_rsqrt(wf_tensor *x);
WF_API wf_tensor *wf_relu(wf_tensor *x);
WF_API wf_tensor *wf_tanh(wf_tensor *x);
WF_API wf_tensor *wf_sigmoid(wf_tensor *x);
WF_API wf_tensor *wf_gelu_erf(wf_tensor *x);
WF_API wf_tensor *wf_softplus(wf_tensor *x);
WF_API wf_tensor *wf_abs(wf_tensor *x);
WF_API wf_tensor *wf_neg(wf_tensor *x);

/** wf_tanh_grad - returns the gradient of wf_tanh to x, of that to its output. Layout:
 * "...,...->...". */
WF_API wf_tensor *wf_tanh_grad(wf_tensor *x, wf_tensor *dy);

/**
 * wf_sin, wf_cos - sine and cosine of an angle in radians, of any size; wf_erf - the error
 * function, within 2 ulp
 * wf_log1p - log(1 + x); wf_expm1 - e^x - 1; both without cancellation near 0
 * wf_leaky_relu - x above 0, leak x below; wf_elu - x above 0, alpha (e^x - 1) below
 *
 * Layout:      "...->..."
 * Gradient:    to x
 */
WF_API wf_tensor *wf_sin(wf_tensor *x);
WF_API wf_tensor *wf_cos(wf_tensor *x);
WF_API wf_tensor *wf_erf(wf_tensor *x);
WF_API wf_tensor *wf_log1p(wf_tensor *x);
WF_API wf_tensor *wf_expm1(wf_tensor *x);
WF_API wf_tensor *wf_leaky_relu(wf_tensor *x, float leak);
WF_API wf_tensor *wf_elu(wf_tensor *x, float alpha);

/**
 * wf_floor, wf_ceil - the nearest whole number at or below x, and at or above; wf_round - the
 * nearest, of two the even one
 * wf_sign - 1, 0 or -1; wf_is_nan - 1 where x is a NaN, else 0
 *
 * Layout:      "...->..."
 * Gradient:    none
 */
WF_API wf_tensor *wf_floor(wf_tensor *x);
WF_API wf_tensor *wf_ceil(wf_tensor *x);
WF_API wf_tensor *wf_round(wf_tensor *x);
WF_API wf_tensor *wf_sign(wf_tensor *x);
WF_API wf_tensor *wf_is_nan(wf_tensor *x);

/**
 * wf_pow - x^exponent: 1 where the exponent is 0; below zero an integral exponent alone has a
 * value
 *
 * Layout:      "...->..."
 * Gradient:    to x
 */
WF_API wf_tensor *wf_pow(wf_tensor *x, float exponent);

/**
 * wf_clamp - x, at least low and at most high; high where low > high
 *
 * Layout:      "...->..."
 * Gradient:    to x, where it is low .. high, as in PyTorch
 */
WF_API wf_tensor *wf_clamp(wf_tensor *x, float low, float high);

/**
 * wf_axpby - a x + b y, of which each product is rounded, and then the sum
 *
 * Layout:      "...,...->..."
 * Gradient:    to x and y
 */
WF_API wf_tensor *wf_axpby(float a, wf_tensor *x, float b, wf_tensor *y);

/**
 * wf_div - a / b; wf_maximum, wf_minimum - the greater and the lesser of two, a NaN where one
 * is
 *
 * Layout:      "...,...->..."
 * Gradient:    to a and b; half to each where they are equal
 */
WF_API wf_tensor *wf_div(wf_tensor *a, wf_tensor *b);
WF_API wf_tensor *wf_maximum(wf_tensor *a, wf_tensor *b);
WF_API wf_tensor *wf_minimum(wf_tensor *a, wf_tensor *b);

/**
 * wf_where - a where the condition is not 0, else b
 *
 * @param condition  numbers, as comparisons give them
 * Layout:      "...,...,...->..."
 * Gradient:    to a and b
 */
WF_API wf_tensor *wf_where(wf_tensor *condition, wf_tensor *a, wf_tensor *b);

/**
 * wf_greater, wf_greater_equal, wf_less, wf_less_equal, wf_equal - 1 where a > b, and so on,
 * else 0
 *
 * Layout:      "...,...->..."
 * Gradient:    none
 */
WF_API wf_tensor *wf_greater(wf_tensor *a, wf_tensor *b);
WF_API wf_tensor *wf_greater_equal(wf_tensor *a, wf_tensor *b);
WF_API wf_tensor *wf_less(wf_tensor *a, wf_tensor *b);
WF_API wf_tensor *wf_less_equal(wf_tensor *a, wf_tensor *b);
WF_API wf_tensor *wf_equal(wf_tensor *a, wf_tensor *b);

/**
 * wf_greater_than, wf_less_than, wf_equal_to - 1 where x > value, x < value, x == value, else 0
 *
 * Layout:      "...->..."
 * Gradient:    none
 */
WF_API wf_tensor *wf_greater_than(wf_tensor *x, float value);
WF_API wf_tensor *wf_less_than(wf_tensor *x, float value);
WF_API wf_tensor *wf_equal_to(wf_tensor *x, float value);

WF_END_DECLS

#endif

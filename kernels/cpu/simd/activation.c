/*
 * kernels/cpu/simd/activation.c - silu and gelu with their neighbours, as kernels of more than
 * an expression take them (alone: kernels/expressions.def, with the same bits). Both are x
 * times a sigmoid, since 1/2 (1 + tanh u) = 1 / (1 + exp(-2 u)): one exp and one division, and
 * small values keep their relative accuracy where 1 + tanh would cancel.
 */
#include "kernels/cpu/simd/kernels_internal.h"
#include "kernels/cpu/vec_math_internal.h"

/* 1 + exp(-z) */
static inline v16 one_plus_exp(v16 z)
{
    return v16_add(v16_set1(1.0f), v16_exp(v16_neg(z)));
}

/* y = x / (1 + exp(-x)) */
static inline v16 silu(v16 x)
{
    return v16_div(x, one_plus_exp(x));
}

/* s = 1 / (1 + exp(-x)); dx = dy * fma(x * s, 1 - s, s) */
static inline v16 silu_grad(v16 x, v16 dy)
{
    v16 one = v16_set1(1.0f), s = v16_div(one, one_plus_exp(x));

    return v16_mul(dy, v16_fma(v16_mul(x, s), v16_sub(one, s), s));
}

/* x^2, no more than 10^4: gelu is x or 0 long before |x| = 100, and inf * 0 must not arise. */
static inline v16 bounded_square(v16 x)
{
    return v16_min(v16_set1(1e4f), v16_mul(x, x));
}

/* 2 u = x * fma(x^2, B, A), A = 2 sqrt(2/pi) and B = 0.044715 A */
static const float GELU_A = 0x1.988454p0f, GELU_B = 0x1.2444f2p-4f, GELU_3B = 0x1.b6676cp-3f;

static inline v16 gelu_argument(v16 x, v16 square)
{
    return v16_mul(x, v16_fma(square, v16_set1(GELU_B), v16_set1(GELU_A)));
}

/* y = x / (1 + exp(-2 u)) */
static inline v16 gelu(v16 x)
{
    return v16_div(x, one_plus_exp(gelu_argument(x, bounded_square(x))));
}

/* s = 1 / (1 + exp(-2 u)), t = fma(x^2, 3 B, A); dx = dy * fma(x * s * (1 - s), t, s) */
static inline v16 gelu_grad(v16 x, v16 dy)
{
    v16 one = v16_set1(1.0f), square = bounded_square(x);
    v16 s = v16_div(one, one_plus_exp(gelu_argument(x, square)));
    v16 t = v16_fma(square, v16_set1(GELU_3B), v16_set1(GELU_A));

    return v16_mul(dy, v16_fma(v16_mul(v16_mul(x, s), v16_sub(one, s)), t, s));
}

void WF_ISA_NAME(wf_swiglu)(const float *gate, const float *up, float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i += V16) {
        v16 g = v16_load_n(gate + i, n - i), u = v16_load_n(up + i, n - i);

        v16_store_n(y + i, v16_mul(silu(g), u), n - i);
    }
}

void WF_ISA_NAME(wf_swiglu_grad)(const float *gate, const float *up, const float *dy,
                                 float *dgate, float *dup, int64_t n)
{
    for (int64_t i = 0; i < n; i += V16) {
        v16 g = v16_load_n(gate + i, n - i), u = v16_load_n(up + i, n - i);
        v16 d = v16_load_n(dy + i, n - i);

        v16_store_n(dgate + i, silu_grad(g, v16_mul(d, u)), n - i);
        v16_store_n(dup + i, v16_mul(d, silu(g)), n - i);
    }
}

void WF_ISA_NAME(wf_bias_gelu)(const float *x, const float *bias, float *y, int64_t rows,
                               int64_t d)
{
    for (int64_t r = 0; r < rows; r++, x += d, y += d) {
        for (int64_t i = 0; i < d; i += V16) {
            int64_t n = d - i;

            v16_store_n(y + i, gelu(v16_add(v16_load_n(x + i, n), v16_load_n(bias + i, n))), n);
        }
    }
}

void WF_ISA_NAME(wf_bias_gelu_grad)(const float *x, const float *bias, const float *dy,
                                    float *dx, int64_t rows, int64_t d)
{
    for (int64_t r = 0; r < rows; r++, x += d, dy += d, dx += d) {
        for (int64_t i = 0; i < d; i += V16) {
            int64_t n = d - i;
            v16 sum = v16_add(v16_load_n(x + i, n), v16_load_n(bias + i, n));

            v16_store_n(dx + i, gelu_grad(sum, v16_load_n(dy + i, n)), n);
        }
    }
}

/*
 * kernels/cpu/simd/norm.c - layernorm and rmsnorm over rows of d, and their gradients.
 *
 * Every sum over d is in 16 lanes (kernels/cpu/simd_internal.h); every sum over rows is a chain
 * from +0, one per column. A row is read two or three times, but from the first-level cache.
 */
#include "kernels/cpu/simd/kernels_internal.h"
#include "kernels/cpu/vec_internal.h"

/* 1 / sqrt(sum / d + eps) */
static inline float inverse_root(float sum, int64_t d, float eps)
{
    return 1.0f / __builtin_sqrtf(sum / (float)d + eps);
}

/*
 * mean = (sum of x) / d; rstd = 1 / sqrt((sum of fma(t, t, .), t = x - mean) / d + eps);
 * y = fma((x - mean) * rstd, gain, bias)
 */
void WF_ISA_NAME(wf_layernorm)(const float *x, const float *gain, const float *bias, float eps,
                               float *y, float *mean, float *rstd, int64_t rows, int64_t d)
{
    for (int64_t r = 0; r < rows; r++, x += d, y += d) {
        v16 sum = v16_zero(), square = v16_zero(), middle, scale;

        for (int64_t i = 0; i < d; i += V16)
            sum = v16_add(sum, v16_load_n(x + i, d - i));
        mean[r] = v16_sum(sum) / (float)d;
        middle = v16_set1(mean[r]);

        for (int64_t i = 0; i < d; i += V16) {
            v16 t = v16_sub(v16_load_n(x + i, d - i), middle);

            t = v16_select(v16m_first(d - i), t, v16_zero());
            square = v16_fma(t, t, square);
        }
        rstd[r] = inverse_root(v16_sum(square), d, eps);
        scale = v16_set1(rstd[r]);

        for (int64_t i = 0; i < d; i += V16) {
            int64_t n = d - i;
            v16 t = v16_mul(v16_sub(v16_load_n(x + i, n), middle), scale);

            t = v16_fma(t, v16_load_n(gain + i, n), v16_load_n(bias + i, n));
            v16_store_n(y + i, t, n);
        }
    }
}

/*
 * h = (x - mean) * rstd; g = dy * gain; a = (sum of g) / d; b = (sum of fma(g, h, .)) / d;
 * dx = rstd * fma(-h, b, g - a)
 */
void WF_ISA_NAME(wf_layernorm_grad)(const float *x, const float *gain, const float *mean,
                                    const float *rstd, const float *dy, float *dx, int64_t rows,
                                    int64_t d)
{
    for (int64_t r = 0; r < rows; r++, x += d, dy += d, dx += d) {
        v16 middle = v16_set1(mean[r]), scale = v16_set1(rstd[r]);
        v16 sum = v16_zero(), product = v16_zero(), a, b;

        for (int64_t i = 0; i < d; i += V16) {
            int64_t n = d - i;
            v16 h = v16_mul(v16_sub(v16_load_n(x + i, n), middle), scale);
            v16 g = v16_mul(v16_load_n(dy + i, n), v16_load_n(gain + i, n));

            /* Beyond the row g is 0, which leaves the lane of both sums as it is. */
            sum = v16_add(sum, g);
            product = v16_fma(g, h, product);
        }
        a = v16_set1(v16_sum(sum) / (float)d);
        b = v16_set1(v16_sum(product) / (float)d);
        for (int64_t i = 0; i < d; i += V16) {
            int64_t n = d - i;
            v16 h = v16_mul(v16_sub(v16_load_n(x + i, n), middle), scale);
            v16 g = v16_mul(v16_load_n(dy + i, n), v16_load_n(gain + i, n));

            v16_store_n(dx + i, v16_mul(scale, v16_fnma(h, b, v16_sub(g, a))), n);
        }
    }
}

/* rstd = 1 / sqrt((sum of fma(x, x, .)) / d + eps); y = (x * rstd) * gain */
void WF_ISA_NAME(wf_rmsnorm)(const float *x, const float *gain, float eps, float *y,
                             float *rstd, int64_t rows, int64_t d)
{
    for (int64_t r = 0; r < rows; r++, x += d, y += d) {
        v16 square = v16_zero(), scale;

        for (int64_t i = 0; i < d; i += V16) {
            v16 t = v16_load_n(x + i, d - i);

            square = v16_fma(t, t, square);
        }
        rstd[r] = inverse_root(v16_sum(square), d, eps);
        scale = v16_set1(rstd[r]);
        for (int64_t i = 0; i < d; i += V16) {
            int64_t n = d - i;
            v16 t = v16_mul(v16_load_n(x + i, n), scale);

            v16_store_n(y + i, v16_mul(t, v16_load_n(gain + i, n)), n);
        }
    }
}

/* h = x * rstd; g = dy * gain; b = (sum of fma(g, h, .)) / d; dx = rstd * fma(-h, b, g) */
void WF_ISA_NAME(wf_rmsnorm_grad)(const float *x, const float *gain, const float *rstd,
                                  const float *dy, float *dx, int64_t rows, int64_t d)
{
    for (int64_t r = 0; r < rows; r++, x += d, dy += d, dx += d) {
        v16 scale = v16_set1(rstd[r]), product = v16_zero(), b;

        for (int64_t i = 0; i < d; i += V16) {
            int64_t n = d - i;
            v16 h = v16_mul(v16_load_n(x + i, n), scale);
            v16 g = v16_mul(v16_load_n(dy + i, n), v16_load_n(gain + i, n));

            product = v16_fma(g, h, product);
        }
        b = v16_set1(v16_sum(product) / (float)d);
        for (int64_t i = 0; i < d; i += V16) {
            int64_t n = d - i;
            v16 h = v16_mul(v16_load_n(x + i, n), scale);
            v16 g = v16_mul(v16_load_n(dy + i, n), v16_load_n(gain + i, n));

            v16_store_n(dx + i, v16_mul(scale, v16_fnma(h, b, g)), n);
        }
    }
}

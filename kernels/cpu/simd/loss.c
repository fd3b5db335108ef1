/*
 * kernels/cpu/simd/loss.c - the pieces of softmax and cross-entropy over a row that may be
 * split: the greatest element, a chunk of the sum of exp, and exp scaled.
 */
#include "kernels/cpu/simd/kernels_internal.h"
#include "kernels/cpu/vec_math_internal.h"

/* Returns the greatest element in any order: a NaN wins, zeros are +0; -inf for an empty
   row. */
float WF_ISA_NAME(wf_row_max)(const float *x, int64_t n)
{
    v16 low = v16_set1(-__builtin_inff()), a = low, b = low, c = low, d = low;
    int64_t i = 0;

    for (; i + 4 * V16 <= n; i += 4 * V16) {
        a = v16_max_nan(a, v16_load(x + i));
        b = v16_max_nan(b, v16_load(x + i + V16));
        c = v16_max_nan(c, v16_load(x + i + 2 * V16));
        d = v16_max_nan(d, v16_load(x + i + 3 * V16));
    }
    for (; i < n; i += V16)
        a = v16_max_nan(a, v16_select(v16m_first(n - i), v16_load_n(x + i, n - i), low));
    return v16_max_lanes(v16_max_nan(v16_max_nan(a, b), v16_max_nan(c, d)));
}

/* Returns the sum of exp(x - max) in 16 lanes: one chunk. */
float WF_ISA_NAME(wf_sum_exp)(const float *x, float max, int64_t n)
{
    v16 sum = v16_zero(), top = v16_set1(max);

    for (int64_t i = 0; i < n; i += V16) {
        v16 e = v16_exp(v16_sub(v16_load_n(x + i, n - i), top));

        sum = v16_add(sum, v16_select(v16m_first(n - i), e, v16_zero()));
    }
    return v16_sum(sum);
}

/* Returns the sum of x in 16 lanes: one chunk. */
float WF_ISA_NAME(wf_row_sum)(const float *x, int64_t n)
{
    v16 sum = v16_zero();

    for (int64_t i = 0; i < n; i += V16)
        sum = v16_add(sum, v16_load_n(x + i, n - i));
    return v16_sum(sum);
}

/* y = exp(x - max) * s */
void WF_ISA_NAME(wf_exp_scale)(const float *x, float max, float s, float *y, int64_t n)
{
    v16 top = v16_set1(max), factor = v16_set1(s);

    for (int64_t i = 0; i < n; i += V16) {
        v16 e = v16_exp(v16_sub(v16_load_n(x + i, n - i), top));

        v16_store_n(y + i, v16_mul(e, factor), n - i);
    }
}

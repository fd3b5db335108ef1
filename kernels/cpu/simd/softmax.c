/* kernels/cpu/simd/softmax.c - the gradient of a softmax over rows of n, and a row's product
   with another. */
#include "kernels/cpu/simd/kernels_internal.h"
#include "kernels/cpu/vec_internal.h"

/* dot = sum of fma(y, dy, .) in 16 lanes; dx = y * (dy - dot) */
void WF_ISA_NAME(wf_softmax_grad)(const float *y, const float *dy, float *dx, int64_t rows,
                                  int64_t n)
{
    for (int64_t r = 0; r < rows; r++, y += n, dy += n, dx += n) {
        v16 sum = v16_zero(), dot;

        for (int64_t i = 0; i < n; i += V16)
            sum = v16_fma(v16_load_n(y + i, n - i), v16_load_n(dy + i, n - i), sum);
        dot = v16_set1(v16_sum(sum));
        for (int64_t i = 0; i < n; i += V16)
            v16_store_n(
                dx + i,
                v16_mul(v16_load_n(y + i, n - i), v16_sub(v16_load_n(dy + i, n - i), dot)),
                n - i);
    }
}

float WF_ISA_NAME(wf_dot)(const float *a, const float *b, int64_t n)
{
    v16 sum = v16_zero();

    for (int64_t i = 0; i < n; i += V16)
        sum = v16_fma(v16_load_n(a + i, n - i), v16_load_n(b + i, n - i), sum);
    return v16_sum(sum);
}

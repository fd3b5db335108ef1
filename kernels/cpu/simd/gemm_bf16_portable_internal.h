/*
 * kernels/cpu/simd/gemm_bf16_portable_internal.h - a block of bf16 terms in C alone, without
 * modes of a processor.
 */
#ifndef WF_KERNELS_CPU_SIMD_GEMM_BF16_PORTABLE_INTERNAL_H
#define WF_KERNELS_CPU_SIMD_GEMM_BF16_PORTABLE_INTERNAL_H

#include "kernels/cpu/simd/gemm_bf16_scalar_internal.h"

typedef struct gemm_modes {
    int none;
} gemm_modes;

INLINE gemm_modes gemm_flush(float *sum)
{
    (void)sum;
    return (gemm_modes){0};
}

INLINE void gemm_restore(gemm_modes modes, float *sum)
{
    (void)modes;
    (void)sum;
}

/* Adds one row of a tile, for which denormals are exceptions: false where there may have been
   one. */
static bool add_row(float *sum, const float *a, int64_t along, const float *b, int pairs)
{
    float even[GEMM_NR] = {0}, odd[GEMM_NR] = {0};
    uint32_t found = 0;

    for (int q = 0; q < pairs; q++) {
        float x = a[q * along], y = a[(GEMM_PAIRS + q) * along];

        for (int j = 0; j < GEMM_NR; j++) {
            even[j] = fmaf(x, b[q * GEMM_NR + j], even[j]);
            odd[j] = fmaf(y, b[(GEMM_PAIRS + q) * GEMM_NR + j], odd[j]);
            found |= may_be_denormal(even[j]) | may_be_denormal(odd[j]);
        }
    }
    for (int j = 0; j < GEMM_NR; j++) {
        even[j] += odd[j];
        odd[j] = sum[j] + even[j];
        found |= may_be_denormal(even[j]) | may_be_denormal(odd[j]);
    }
    for (int j = 0; j < GEMM_NR && !found; j++)
        sum[j] = odd[j];
    return !found;
}

/* Declared in gemm_bf16_block_internal.h. */
INLINE void gemm_add_block(const int rows, const int across, const int along, bool first,
                           float *sum, const float *a, const float *b, int pairs)
{
    for (int j = 0; j < rows * GEMM_NR && first; j++)
        sum[j] = 0.0f;
    for (int i = 0; i < rows; i++, sum += GEMM_NR) {
        if (add_row(sum, a + i * across, along, b, pairs))
            continue;
        for (int j = 0; j < GEMM_NR; j++)
            sum[j] = add_terms(sum[j], a + i * across, along, b + j, pairs);
    }
}

#endif

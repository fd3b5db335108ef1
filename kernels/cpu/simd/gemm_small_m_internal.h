/*
 * kernels/cpu/simd/gemm_small_m_internal.h - what the two files of a product of bf16 operands
 * with few rows share.
 */
#ifndef WF_KERNELS_CPU_SIMD_GEMM_SMALL_M_INTERNAL_H
#define WF_KERNELS_CPU_SIMD_GEMM_SMALL_M_INTERNAL_H

#include "kernels/cpu/simd/gemm_bf16_block_internal.h"
#include "kernels/cpu/simd/gemv_internal.h"
#include <string.h>

enum {
    MOST_LINED = 32768, /* terms of rows that go by lines, of all of them */
#if WF_ISA_LEVEL == WF_ISA_LEVEL_avx512
    MOST_ROWS = 8 /* rows of sums that are held in registers */
#else
    MOST_ROWS = 4
#endif
};

typedef struct small_m {
    const wf_gemm *g;
    int64_t chunks, each; /* all of them; those of a sequence */
    const float *lined;   /* A's rows in blocks of widen_row, where they go by lines; or NULL */
} small_m;

/* 1, 2, 4 or 8: as many as there are, and copies of the last one. */
static inline int64_t rows_of_tile(int64_t rows)
{
    int64_t power = 1;

    while (power < rows && power < MOST_ROWS)
        power *= 2;
    return power;
}

/* Widens one row of A's block: all even terms in front of all odd ones. */
INLINE void widen_row(float *to, const uint16_t *a, int64_t along, int64_t terms)
{
    uint32_t pairs[GEMM_PAIRS];
    uint16_t some[WF_GEMM_TERMS] = {0};
    v16u words;

    if (along == 1 && terms == WF_GEMM_TERMS) {
        memcpy(pairs, a, sizeof pairs);
    } else {
        for (int64_t p = 0; p < terms; p++)
            some[p] = a[p * along];
        memcpy(pairs, some, sizeof pairs);
    }
    words = v16u_load(pairs);
    v16_store(to, gemm_even(words));
    v16_store(to + GEMM_PAIRS, gemm_odd(words));
}

/* sum = older + sum; denormals are numbers here */
INLINE void merge(float *sum, const float *older, int64_t floats)
{
    for (int64_t i = 0; i < floats; i += V16)
        v16_store(sum + i, v16_add(v16_load(older + i), v16_load(sum + i)));
}

/* Returns true where a product of k terms in all is computed by lines: B's terms are
   neighbours, in whole blocks. */
bool WF_ISA_NAME(wf_gemm_small_m_by_lines)(const wf_gemm *g, int64_t k);

/* Lines up blocks of terms, in each of them the rows of A one after the other, at the end
   copies of the last one: `lined` of few. */
void WF_ISA_NAME(wf_gemm_small_m_line_up)(const wf_gemm *g, float *to);

/* Computes all rows of columns col .. col + 15. */
void WF_ISA_NAME(wf_gemm_small_m_lines)(const small_m *x, int64_t col);

#endif

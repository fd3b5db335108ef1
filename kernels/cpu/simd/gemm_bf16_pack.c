/*
 * kernels/cpu/simd/gemm_bf16_pack.c - panels of a product of bf16 operands: blocks of WF_GEMM_TERMS terms, the last of a
 * part filled up with zeros. A block is floats, all even terms before all odd ones, as a tile reads them.
 */
#include "kernels/cpu/simd/gemm_bf16_internal.h"
#include "kernels/cpu/task_size_internal.h"
#include <string.h>

static const uint16_t *term(const wf_gemm_operand *x, int64_t i, int64_t p)
{
    return (const uint16_t *)x->at + i * x->across + p * x->along;
}

/* Up to WF_GEMM_TERMS terms, zeros behind. */
INLINE v16 load_terms(const uint16_t *x, int64_t k)
{
#if WF_ISA_LEVEL == WF_ISA_LEVEL_avx512
    __mmask32 first = (__mmask32)(((uint64_t)1 << k) - 1);

    return _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(first, x));
#else
    float pairs[V16] = {0}; /* not numbers */

    if (k == WF_GEMM_TERMS)
        memcpy(pairs, x, sizeof pairs);
    else
        memcpy(pairs, x, (size_t)k * sizeof *x);
    return v16_load(pairs);
#endif
}

/* Terms of a row lie side by side: sixteen rows of pairs, turned. */
static void pairs_along(v16u word[GEMM_PAIRS], const wf_gemm_operand *x, int64_t count,
                        int64_t k)
{
    v16 row[V16];

    for (int i = 0; i < V16; i++)
        row[i] = load_terms(term(x, wf_least(i, count - 1), 0), k);
    v16_transpose(row);
    for (int q = 0; q < GEMM_PAIRS; q++)
        word[q] = v16u_of(row[q]);
}

/* Rows lie side by side: two terms of each are put together. */
static void pairs_across(v16u word[GEMM_PAIRS], const wf_gemm_operand *x, int64_t count,
                         int64_t k)
{
    for (int64_t q = 0; q < GEMM_PAIRS; q++) {
        word[q] = v16u_set1(0);
        if (2 * q < k)
            word[q] = v16u_load_half(term(x, 0, 2 * q), count);
        if (2 * q + 1 < k)
            word[q] =
                v16u_or(word[q], v16u_left(v16u_load_half(term(x, 0, 2 * q + 1), count), 16));
    }
}

void WF_ISA_NAME(wf_gemm_pairs)(v16u word[GEMM_PAIRS], const wf_gemm_operand *x, int64_t count,
                                int64_t k)
{
    uint16_t some[V16 * WF_GEMM_TERMS];
    wf_gemm_operand copy = {some, WF_GEMM_TERMS, 1, sizeof *some};

    if (x->across == 1) {
        pairs_across(word, x, count, k);
    } else if (x->along == 1) {
        pairs_along(word, x, count, k);
    } else {
        memset(some, 0, sizeof some);
        for (int64_t i = 0; i < count; i++) {
            for (int64_t p = 0; p < k; p++)
                some[i * WF_GEMM_TERMS + p] = *term(x, i, p);
        }
        pairs_along(word, &copy, count, WF_GEMM_TERMS);
    }
}

INLINE void pack_panel(float *to, const int width, const wf_gemm_operand *x, int64_t count,
                       int64_t k)
{
    for (int64_t p = 0; p < k; p += WF_GEMM_TERMS, to += WF_GEMM_TERMS * width) {
        wf_gemm_operand block = wf_gemm_from(*x, 0, p);

        gemm_pack_block(to, width, &block, count, wf_least(WF_GEMM_TERMS, k - p));
    }
}

void WF_ISA_NAME(wf_gemm_bf16_pack_rows)(void *panel, int height, const wf_gemm_operand *x,
                                         int64_t count, int64_t k)
{
    if (height == GEMM_MR) /* a constant is faster */
        pack_panel(panel, GEMM_MR, x, count, k);
    else
        pack_panel(panel, height, x, count, k);
}

void WF_ISA_NAME(wf_gemm_bf16_pack_cols)(void *panel, const wf_gemm_operand *x, int64_t count,
                                         int64_t k)
{
    pack_panel(panel, GEMM_NR, x, count, k);
}

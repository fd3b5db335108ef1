/*
 * kernels/cpu/amx/gemm_tiles_pack.c - panels of a product on a tile unit: a block of A is
 * packed as rows of WF_GEMM_TERMS terms, a block of B in pairs of terms, as the instruction
 * reads them.
 */
#include "kernels/cpu/amx/gemm_tiles_internal.h"
#include "kernels/cpu/task_size_internal.h"
#include <string.h>

/* Packs a block of terms of 32 columns, whose rows, or terms, lie side by side. */
static void pair_across(uint32_t *to, const wf_gemm_operand *x)
{
    const uint16_t *term = x->at;

    for (int q = 0; q < GEMM_PAIRS; q++, to += WIDE, term += 2 * x->along) {
        v16u pair[2];

        v16u_pair_rows(term, term + x->along, pair);
        v16u_store(to, pair[0]);
        v16u_store(to + V16, pair[1]);
    }
}

static void pair_along(uint32_t *to, const wf_gemm_operand *x)
{
    const int64_t stride = x->across * (int64_t)sizeof(uint16_t);

    for (int v = 0; v < WIDE; v += V16) {
        v16u word[GEMM_PAIRS];

        v16u_load_transposed(word, (const char *)x->at + v * stride, stride);
        for (int q = 0; q < GEMM_PAIRS; q++)
            v16u_store(to + q * WIDE + v, word[q]);
    }
}

/* Packs a block of k terms of some columns, or one at an edge. */
static void pairs_of(uint32_t *to, const wf_gemm_operand *x, int64_t count, int64_t k)
{
    for (int v = 0; v < WIDE; v += V16) {
        wf_gemm_operand some = wf_gemm_from(*x, v, 0);
        v16u word[GEMM_PAIRS];

        WF_ISA_NAME(wf_gemm_pairs)(word, &some, count - v, k);
        for (int q = 0; q < GEMM_PAIRS; q++)
            v16u_store(to + q * WIDE + v, word[q]);
    }
}

void WF_ISA_NAME(wf_gemm_tiles_pack_cols)(void *panel, const wf_gemm_operand *x, int64_t count,
                                          int64_t k)
{
    uint32_t *to = panel;

    for (int64_t p = 0; p < k; p += WF_GEMM_TERMS, to += GEMM_PAIRS * WIDE) {
        wf_gemm_operand block = wf_gemm_from(*x, 0, p);
        bool whole = count == WIDE && k - p >= WF_GEMM_TERMS;

        if (whole && x->across == 1)
            pair_across(to, &block);
        else if (whole && x->along == 1)
            pair_along(to, &block);
        else
            pairs_of(to, &block, count, wf_least(WF_GEMM_TERMS, k - p));
    }
}

/* Sixteen rows of a block whose terms do not lie side by side. */
static void transpose_tile(char *to, const wf_gemm_operand *x, int64_t count, int64_t k)
{
    v16u word[GEMM_PAIRS];
    v16 row[V16];

    WF_ISA_NAME(wf_gemm_pairs)(word, x, count, k);
    for (int q = 0; q < GEMM_PAIRS; q++)
        row[q] = v16_of(word[q]);
    v16_transpose(row);
    for (int i = 0; i < V16; i++)
        memcpy(to + i * LINE, &row[i], LINE);
}

static void copy(char *to, const wf_gemm_operand *x, int64_t count, int64_t k)
{
    for (int64_t i = 0; i < count; i++, to += LINE) {
        if (k < WF_GEMM_TERMS)
            memset(to, 0, LINE);
        if (k < WF_GEMM_TERMS)
            memcpy(to, wf_gemm_from(*x, i, 0).at, (size_t)k * sizeof(uint16_t));
        else
            memcpy(to, wf_gemm_from(*x, i, 0).at, LINE);
    }
}

void WF_ISA_NAME(wf_gemm_tiles_pack_rows)(void *panel, int height, const wf_gemm_operand *x,
                                          int64_t count, int64_t k)
{
    char *to = panel;

    for (int64_t p = 0; p < k; p += WF_GEMM_TERMS) {
        for (int i = 0; i < height; i += TILE, to += A_BLOCK) {
            wf_gemm_operand block = wf_gemm_from(*x, i, p);
            int64_t rows = wf_least(TILE, count - i), terms = wf_least(WF_GEMM_TERMS, k - p);

            if (rows < TILE)
                memset(to, 0, A_BLOCK);
            if (rows > 0 && x->along == 1)
                copy(to, &block, rows, terms);
            else if (rows > 0)
                transpose_tile(to, &block, rows, terms);
        }
    }
}

/*
 * kernels/cpu/simd/gemm_small_m_lines.c - products of bf16 operands with few rows whose columns
 * of B are cache lines: sixteen of them are transposed in registers and multiplied there, by
 * all rows, so that B passes no other memory. AVX-512 alone has the registers.
 */
#include "core/numerics/tree.h"
#include "kernels/cpu/simd/gemm_small_m_internal.h"
#include "kernels/cpu/task_size_internal.h"

#if WF_ISA_LEVEL == WF_ISA_LEVEL_avx512
bool WF_ISA_NAME(wf_gemm_small_m_by_lines)(const wf_gemm *g, int64_t k)
{
    for (int64_t i = 0; i < g->n_parts; i++)
        if (g->parts[i].b_k != 1 || g->parts[i].k % WF_GEMM_TERMS)
            return false;
    return g->m <= MOST_ROWS && k * rows_of_tile(g->m) <= MOST_LINED;
}

void WF_ISA_NAME(wf_gemm_small_m_line_up)(const wf_gemm *g, float *to)
{
    for (int64_t i = 0; i < g->n_parts; i++) {
        const wf_gemm_part *part = &g->parts[i];
        const uint16_t *a = part->a;

        for (int64_t p = 0; p < part->k; p += WF_GEMM_TERMS, a += WF_GEMM_TERMS * part->a_k)
            for (int64_t row = 0; row < rows_of_tile(g->m); row++, to += WF_GEMM_TERMS)
                widen_row(to, a + wf_least(row, g->m - 1) * part->a_row, part->a_k,
                          WF_GEMM_TERMS);
    }
}

/* Rows whose chains have registers beside a transposed line. */
enum { ROWS_BESIDE = 4 };

/* Is gemm_add_block of 16 columns, whose lines are transposed and used in registers. */
INLINE void add_line(const int rows, v16 *sum, const float *a, const char *b, int64_t column,
                     const char *ahead)
{
    const int some = rows < ROWS_BESIDE ? rows : ROWS_BESIDE;
    v16 word[V16];

    transpose_line_ahead(word, b, column, ahead);
    UNROLL
    for (int r = 0; r < rows; r += some, a += some * WF_GEMM_TERMS) {
        v16 even[ROWS_BESIDE], odd[ROWS_BESIDE];

        UNROLL
        for (int i = 0; i < some; i++)
            even[i] = odd[i] = v16_zero();
        UNROLL
        for (int q = 0; q < GEMM_PAIRS; q++) {
            v16 x = gemm_even(v16u_of(word[q])), y = gemm_odd(v16u_of(word[q]));

            UNROLL
            for (int i = 0; i < some; i++) {
                even[i] = v16_fma(v16_set1(a[i * WF_GEMM_TERMS + q]), x, even[i]);
                odd[i] = v16_fma(v16_set1(a[i * WF_GEMM_TERMS + GEMM_PAIRS + q]), y, odd[i]);
            }
            if (r == 0)
                prefetch_remaining(&odd[0], ahead, q);
        }
        UNROLL
        for (int i = 0; i < some; i++)
            sum[r + i] = v16_add(sum[r + i], v16_add(even[i], odd[i]));
    }
}

/* add_part of 16 columns. For each of their lines one of the next columns is prefetched, in the
   order in which they lie. */
INLINE void add_part_lines(const int rows, float *sum, const wf_gemm_part *part, const float *a,
                           int64_t col, const char **ahead)
{
    const int64_t column = part->b_col * (int64_t)sizeof(uint16_t);
    const char *b = (const char *)((const uint16_t *)part->b + col * part->b_col);
    gemm_modes modes = gemm_flush(sum);
    v16 all[MOST_ROWS];

    UNROLL
    for (int i = 0; i < rows; i++)
        all[i] = v16_load(sum + i * V16);
    for (int64_t p = 0; p < part->k; p += WF_GEMM_TERMS, b += LINE) {
        add_line(rows, all, a + rows * p, b, column, *ahead);
        *ahead += V16 * LINE;
    }
    UNROLL
    for (int i = 0; i < rows; i++)
        v16_store(sum + i * V16, all[i]);
    gemm_restore(modes, sum);
}

INLINE void tile(const int rows, const small_m *x, int64_t col)
{
    _Alignas(LINE) float node[WF_GEMM_LOCAL][MOST_ROWS * V16], sum[MOST_ROWS * V16];
    const wf_gemm *g = x->g;
    const wf_gemm_part *part = g->parts;
    const int64_t next = col + 2 * V16 <= g->n ? col + V16 : col, floats = rows * V16;
    const size_t bytes = (size_t)floats * sizeof *sum;
    const char *ahead = (const char *)((const uint16_t *)part->b + next * part->b_col);
    const float *a = x->lined;
    int64_t chunk = 0;
    int level = 0;

    memset(sum, 0, bytes);
    for (int64_t i = 0; i < g->n_parts; a += rows * part[i++].k) {
        add_part_lines(rows, sum, &part[i], a, col, &ahead);
        if (i + 1 < g->n_parts && !part[i + 1].chunk)
            continue;
        for (int merges = wf_tree_merges_each(x->chunks, x->each, chunk++); merges > 0;
             merges--)
            merge(sum, node[--level], floats);
        memcpy(node[level++], sum, bytes);
        memset(sum, 0, bytes);
    }
    if (level > 0)
        merge(sum, node[0], floats);
    WF_ISA_NAME(wf_gemm_put_edge)
    (g, sum, V16, g->m, V16,
     g->c_bf16 ? (void *)((uint16_t *)g->c + col) : (void *)((float *)g->c + col), g->c_row, 1);
}

void WF_ISA_NAME(wf_gemm_small_m_lines)(const small_m *x, int64_t col)
{
    switch (rows_of_tile(x->g->m)) {
    case 1:
        tile(1, x, col);
        break;
    case 2:
        tile(2, x, col);
        break;
    case 4:
        tile(4, x, col);
        break;
    default:
        tile(8, x, col);
    }
}
#else
bool WF_ISA_NAME(wf_gemm_small_m_by_lines)(const wf_gemm *g, int64_t k)
{
    (void)g, (void)k;
    return false;
}

void WF_ISA_NAME(wf_gemm_small_m_line_up)(const wf_gemm *g, float *to)
{
    (void)g, (void)to;
}

void WF_ISA_NAME(wf_gemm_small_m_lines)(const small_m *x, int64_t col)
{
    (void)x, (void)col;
}
#endif

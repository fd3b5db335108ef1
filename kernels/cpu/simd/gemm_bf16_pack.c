/*
 * kernels/cpu/simd/gemm_bf16_pack.c - panels of a product of bf16 operands: blocks of
 * WF_GEMM_TERMS terms, the last of a part filled up with zeros. A block is floats, all even
 * terms before all odd ones, as a tile reads them.
 */
#include "kernels/cpu/simd/gemm_bf16_internal.h"
#include "kernels/cpu/task_size_internal.h"
#include <string.h>

static const uint16_t *term(const wf_gemm_operand *x, int64_t i, int64_t p)
{
    return (const uint16_t *)x->at + i * x->across + p * x->along;
}

/* Loads up to WF_GEMM_TERMS terms, zeros after them. */
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

/* Packs pairs whose terms lie side by side in a row: sixteen rows, transposed. */
INLINE void pairs_along(v16u word[GEMM_PAIRS], const wf_gemm_operand *x, int64_t count,
                        int64_t k)
{
    v16 row[V16];

    for (int i = 0; i < V16; i++)
        row[i] = load_terms(term(x, wf_least(i, count - 1), 0), k);
    v16_transpose(row);
    for (int q = 0; q < GEMM_PAIRS; q++)
        word[q] = v16u_of(row[q]);
}

/* Packs pairs where rows lie side by side: two terms of each are put together. */
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

    count = wf_least(count, V16);
    if (count <= 0) {
        memset(word, 0, GEMM_PAIRS * sizeof *word);
    } else if (x->across == 1) {
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

/* A lane of a word is a row's pair: stores the first `lanes` of them as floats. */
#if WF_ISA_LEVEL == WF_ISA_LEVEL_avx2
INLINE void store_lanes(float *to, __m256i bits, const int lanes)
{
    const __m256i first =
        _mm256_cmpgt_epi32(_mm256_set1_epi32(lanes), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));

    if (lanes >= 8)
        _mm256_storeu_ps(to, _mm256_castsi256_ps(bits));
    else
        _mm256_maskstore_ps(to, first, _mm256_castsi256_ps(bits));
}

/* Widens four pairs of up to eight rows, transposed in registers. */
INLINE void widen_four(float *to, const int width, const int lanes, const char *const row[8],
                       int pair)
{
    const __m256i high = _mm256_set1_epi32((int)0xffff0000u);
    const int at = 4 * pair;
    __m256i word[4] = {_mm256_castps_si256(two_quads(row[0] + at, row[4] + at)),
                       _mm256_castps_si256(two_quads(row[1] + at, row[5] + at)),
                       _mm256_castps_si256(two_quads(row[2] + at, row[6] + at)),
                       _mm256_castps_si256(two_quads(row[3] + at, row[7] + at))};

    transpose4_half(&word[0], &word[1], &word[2], &word[3]);
    UNROLL
    for (int q = 0; q < 4; q++) {
        store_lanes(to + (pair + q) * width, _mm256_slli_epi32(word[q], 16), lanes);
        store_lanes(to + (GEMM_PAIRS + pair + q) * width, _mm256_and_si256(word[q], high),
                    lanes);
    }
}

/* Widens whole blocks of `lanes` rows, whose terms lie side by side; from `count` on they
   repeat the last row. */
INLINE void widen_lines(float *to, const int width, const int lanes, const wf_gemm_operand *x,
                        int64_t count)
{
    for (int h = 0; h < lanes; h += 8) {
        const char *row[8];

        for (int i = 0; i < 8; i++)
            row[i] = (const char *)term(x, wf_least(h + i, count - 1), 0);
        for (int pair = 0; pair < GEMM_PAIRS; pair += 4)
            widen_four(to + h, width, lanes - h < 8 ? lanes - h : 8, row, pair);
    }
}
#else
INLINE void widen_lines(float *to, const int width, const int lanes, const wf_gemm_operand *x,
                        int64_t count)
{
    v16u word[GEMM_PAIRS];

    (void)lanes;
    pairs_along(word, x, count, WF_GEMM_TERMS);
    gemm_widen(to, width, word);
}
#endif

/* Loads a term of up to `lanes` rows that lie side by side. */
INLINE v16u load_lanes(const uint16_t *x, const int lanes, int64_t count)
{
#if WF_ISA_LEVEL == WF_ISA_LEVEL_avx2
    if (lanes == GEMM_MR &&
        count >= GEMM_MR) { /* six, of which no more than those may be read */
        int32_t last;
        __m128i six;

        memcpy(&last, x + 4, sizeof last);
        six = _mm_insert_epi32(_mm_loadl_epi64((const __m128i *)(const void *)x), last, 2);
        return (v16u){_mm256_cvtepu16_epi32(six), _mm256_setzero_si256()};
    }
#endif
    (void)lanes;
    return v16u_load_half(x, count);
}

/* Widens where rows lie side by side: a term of sixteen of them is a vector already. */
INLINE void widen_across(float *to, const int width, const int lanes, const wf_gemm_operand *x,
                         int64_t count, int64_t k)
{
    for (int64_t p = 0; p < WF_GEMM_TERMS; p++) {
        float *at = to + (p / 2 + p % 2 * GEMM_PAIRS) * width;
        v16u bits = p < k ? load_lanes(term(x, 0, p), lanes, count) : v16u_set1(0);

        v16_store_n(at, gemm_even(bits), width);
    }
}

INLINE void pack_panel(float *to, const int width, const wf_gemm_operand *x, int64_t count,
                       int64_t k)
{
    for (int64_t p = 0; p < k; p += WF_GEMM_TERMS, to += WF_GEMM_TERMS * width) {
        int64_t terms = wf_least(WF_GEMM_TERMS, k - p);

        for (int v = 0; v < width; v += V16) {
            const int lanes = width - v < V16 ? width - v : V16;
            wf_gemm_operand block = wf_gemm_from(*x, v, p);

            if (v < count && x->across == 1)
                widen_across(to + v, width, lanes, &block, count - v, terms);
            else if (v < count && x->along == 1 && terms == WF_GEMM_TERMS)
                widen_lines(to + v, width, lanes, &block, count - v);
            else
                gemm_pack_some(to + v, width, &block, count - v, terms);
        }
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

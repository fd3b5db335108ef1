/*
 * kernels/cpu/simd/gemm_pack.c - panels of a product (gemm_internal.h). One is filled by one of
 * three methods: rows copied where the panel lies along the matrix's rows, 4 x 4 tiles
 * transposed where it lies across them, single elements at the edges and for other strides.
 */
#include "kernels/cpu/simd/gemm_internal.h"
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* to[p * width + i] = from[i * across + p] for 4 by 4 elements */
INLINE void transpose_tile(float *to, int width, const float *from, int64_t across)
{
#if WF_ISA_LEVEL >= WF_ISA_LEVEL_avx2
    __m128 r0 = _mm_loadu_ps(from), r1 = _mm_loadu_ps(from + across);
    __m128 r2 = _mm_loadu_ps(from + 2 * across), r3 = _mm_loadu_ps(from + 3 * across);
    __m128 low01 = _mm_unpacklo_ps(r0, r1), low23 = _mm_unpacklo_ps(r2, r3);
    __m128 high01 = _mm_unpackhi_ps(r0, r1), high23 = _mm_unpackhi_ps(r2, r3);

    _mm_storeu_ps(to, _mm_movelh_ps(low01, low23));
    _mm_storeu_ps(to + width, _mm_movehl_ps(low23, low01));
    _mm_storeu_ps(to + 2 * width, _mm_movelh_ps(high01, high23));
    _mm_storeu_ps(to + 3 * width, _mm_movehl_ps(high23, high01));
#elif WF_ISA_LEVEL == WF_ISA_LEVEL_neon
    uint32x4_t row[4];

    for (int i = 0; i < 4; i++)
        row[i] = vreinterpretq_u32_f32(vld1q_f32(from + i * across));
    transpose4_quad(&row[0], &row[1], &row[2], &row[3]);
    for (int p = 0; p < 4; p++)
        vst1q_f32(to + p * width, vreinterpretq_f32_u32(row[p]));
#else
    for (int p = 0; p < 4; p++) {
        for (int i = 0; i < 4; i++)
            to[p * width + i] = from[i * across + p];
    }
#endif
}

#if WF_ISA_LEVEL == WF_ISA_LEVEL_avx512
/* Loads rows i, i + 4, i + 8 and i + 12, four floats of each; what lies past the last row is
   that row. */
INLINE __m512 four_rows(const float *from, int64_t across, int i, const int last)
{
    const float *r1 = from + (i + 4 < last ? i + 4 : last) * across;
    const float *r2 = from + (i + 8 < last ? i + 8 : last) * across;
    const float *r3 = from + (i + 12 < last ? i + 12 : last) * across;
    __m512 x = _mm512_castps128_ps512(_mm_loadu_ps(from + (i < last ? i : last) * across));

    x = _mm512_insertf32x4(x, _mm_loadu_ps(r1), 1);
    x = _mm512_insertf32x4(x, _mm_loadu_ps(r2), 2);
    return _mm512_insertf32x4(x, _mm_loadu_ps(r3), 3);
}

/* to[p * width + i] = from[i * across + p] for p < 4 and i < rows, 9 .. 16 of them */
INLINE void transpose_rows(float *to, int width, const float *from, int64_t across,
                           const int rows)
{
    __m512 r0 = four_rows(from, across, 0, rows - 1), r1 = four_rows(from, across, 1, rows - 1);
    __m512 r2 = four_rows(from, across, 2, rows - 1), r3 = four_rows(from, across, 3, rows - 1);
    __m512d low01 = _mm512_castps_pd(_mm512_unpacklo_ps(r0, r1));
    __m512d low23 = _mm512_castps_pd(_mm512_unpacklo_ps(r2, r3));
    __m512d high01 = _mm512_castps_pd(_mm512_unpackhi_ps(r0, r1));
    __m512d high23 = _mm512_castps_pd(_mm512_unpackhi_ps(r2, r3));

    v16_store_n(to, _mm512_castpd_ps(_mm512_unpacklo_pd(low01, low23)), rows);
    v16_store_n(to + width, _mm512_castpd_ps(_mm512_unpackhi_pd(low01, low23)), rows);
    v16_store_n(to + 2 * width, _mm512_castpd_ps(_mm512_unpacklo_pd(high01, high23)), rows);
    v16_store_n(to + 3 * width, _mm512_castpd_ps(_mm512_unpackhi_pd(high01, high23)), rows);
}
#endif

INLINE void elements(float *panel, int width, const float *x, int64_t across, int64_t along,
                     int64_t count, int64_t k)
{
    for (int64_t p = 0; p < k; p++) {
        for (int64_t i = 0; i < width; i++)
            panel[p * width + i] = i < count ? x[i * across + p * along] : 0.0f;
    }
}

INLINE void pack(float *panel, const int width, const float *x, int64_t across, int64_t along,
                 int64_t count, int64_t k)
{
    int64_t p = 0;

    if (count == width && across == 1) {
        for (; p < k; p++)
            memcpy(panel + p * width, x + p * along, (size_t)width * sizeof *x);
    } else if (count == width && along == 1 && width >= 4) {
        for (; p + 4 <= k; p += 4) {
            float *to = panel + p * width;

#if WF_ISA_LEVEL == WF_ISA_LEVEL_avx512
            if (width > 12) {
                for (int i = 0; i < width; i += V16)
                    transpose_rows(to + i, width, x + i * across + p, across,
                                   width < V16 ? width : V16);
                continue;
            }
#endif
            for (int i = 0; i + 4 <= width; i += 4)
                transpose_tile(to + i, width, x + i * across + p, across);
            if (width % 4) /* the last four rows, some of them once more */
                transpose_tile(to + width - 4, width, x + (width - 4) * across + p, across);
        }
    }
    elements(panel + p * width, width, x + p * along, across, along, count, k - p);
}

void WF_ISA_NAME(wf_gemm_pack_rows)(void *panel, int height, const wf_gemm_operand *x,
                                    int64_t count, int64_t k)
{
    if (height == GEMM_MR)
        pack(panel, GEMM_MR, x->at, x->across, x->along, count, k); /* a constant is faster */
    else
        pack(panel, height, x->at, x->across, x->along, count, k);
}

void WF_ISA_NAME(wf_gemm_pack_cols)(void *panel, const wf_gemm_operand *x, int64_t count,
                                    int64_t k)
{
    pack(panel, GEMM_NR, x->at, x->across, x->along, count, k);
}

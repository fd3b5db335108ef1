/*
 * kernels/cpu/simd/gemv_internal.h - sixteen rows of weights transposed in registers, so that
 * lanes are rows: words of 32 bits, which are floats or pairs of bf16.
 */
#ifndef WF_KERNELS_CPU_SIMD_GEMV_INTERNAL_H
#define WF_KERNELS_CPU_SIMD_GEMV_INTERNAL_H

#include "core/numerics/bf16.h"
#include "kernels/cpu/vec_bf16_internal.h"
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

enum { LINE = 64 };

/* out[p], lane j: 32 bits, the p-th ones from row j of the weights, whose rows are `row` bytes
   apart. */
#if WF_ISA_LEVEL == WF_ISA_LEVEL_avx512
INLINE __m512 four_rows(const char *at, int64_t row)
{
    __m512 x = _mm512_castps128_ps512(_mm_loadu_ps((const float *)at));

    x = _mm512_insertf32x4(x, _mm_loadu_ps((const float *)(at + 4 * row)), 1);
    x = _mm512_insertf32x4(x, _mm_loadu_ps((const float *)(at + 8 * row)), 2);
    return _mm512_insertf32x4(x, _mm_loadu_ps((const float *)(at + 12 * row)), 3);
}

INLINE void transpose_tile(v16 out[4], const char *at, int64_t row)
{
    __m512 r0 = four_rows(at, row), r1 = four_rows(at + row, row);
    __m512 r2 = four_rows(at + 2 * row, row), r3 = four_rows(at + 3 * row, row);
    __m512d low01 = _mm512_castps_pd(_mm512_unpacklo_ps(r0, r1));
    __m512d low23 = _mm512_castps_pd(_mm512_unpacklo_ps(r2, r3));
    __m512d high01 = _mm512_castps_pd(_mm512_unpackhi_ps(r0, r1));
    __m512d high23 = _mm512_castps_pd(_mm512_unpackhi_ps(r2, r3));

    out[0] = _mm512_castpd_ps(_mm512_unpacklo_pd(low01, low23));
    out[1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low01, low23));
    out[2] = _mm512_castpd_ps(_mm512_unpacklo_pd(high01, high23));
    out[3] = _mm512_castpd_ps(_mm512_unpackhi_pd(high01, high23));
}

/* Transposes a cache line, 16 words, of each of four rows: square[p] has word p of each four
   words. */
INLINE void transpose_square(v16 square[4], const char *at, int64_t row)
{
    __m512 r0 = _mm512_loadu_ps((const float *)at);
    __m512 r1 = _mm512_loadu_ps((const float *)(at + row));
    __m512 r2 = _mm512_loadu_ps((const float *)(at + 2 * row));
    __m512 r3 = _mm512_loadu_ps((const float *)(at + 3 * row));
    __m512d low01 = _mm512_castps_pd(_mm512_unpacklo_ps(r0, r1));
    __m512d low23 = _mm512_castps_pd(_mm512_unpacklo_ps(r2, r3));
    __m512d high01 = _mm512_castps_pd(_mm512_unpackhi_ps(r0, r1));
    __m512d high23 = _mm512_castps_pd(_mm512_unpackhi_ps(r2, r3));

    square[0] = _mm512_castpd_ps(_mm512_unpacklo_pd(low01, low23));
    square[1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low01, low23));
    square[2] = _mm512_castpd_ps(_mm512_unpacklo_pd(high01, high23));
    square[3] = _mm512_castpd_ps(_mm512_unpackhi_pd(high01, high23));
}

/* Words p, 4 + p, 8 + p and 12 + p of sixteen rows, from the squares of four times four. */
INLINE void join_squares(v16 out[V16], const v16 square[V16], int p)
{
    __m512 even01 = _mm512_shuffle_f32x4(square[p], square[4 + p], 0x88);
    __m512 even23 = _mm512_shuffle_f32x4(square[8 + p], square[12 + p], 0x88);
    __m512 odd01 = _mm512_shuffle_f32x4(square[p], square[4 + p], 0xdd);
    __m512 odd23 = _mm512_shuffle_f32x4(square[8 + p], square[12 + p], 0xdd);

    out[p] = _mm512_shuffle_f32x4(even01, even23, 0x88);
    out[4 + p] = _mm512_shuffle_f32x4(odd01, odd23, 0x88);
    out[8 + p] = _mm512_shuffle_f32x4(even01, even23, 0xdd);
    out[12 + p] = _mm512_shuffle_f32x4(odd01, odd23, 0xdd);
}

/* Transposes a whole cache line of each row: squares of four rows by four words are transposed,
   then swapped. */
INLINE void transpose_line(v16 out[V16], const char *at, int64_t row)
{
    v16 square[V16];

    UNROLL
    for (int i = 0; i < V16; i += 4)
        transpose_square(square + i, at + i * row, row);
    UNROLL
    for (int p = 0; p < 4; p++)
        join_squares(out, square, p);
}

/* Prefetches a line after `known` is; left to itself a compiler prefetches all lines at
   once. */
INLINE void prefetch_after(v16 *known, const char *line)
{
    __asm__ volatile("prefetcht1 %1" : "+v"(*known) : "m"(*(const char(*)[LINE])line));
}

/* Transposes a line like transpose_line, and prefetches twelve of the sixteen lines from
   `ahead` on, at even distances: at once they would wait for each other, and the following ones
   for all. prefetch_remaining has the other four. */
INLINE void transpose_line_ahead(v16 out[V16], const char *at, int64_t row, const char *ahead)
{
    v16 square[V16];

    UNROLL
    for (int i = 0; i < V16; i += 4) {
        transpose_square(square + i, at + i * row, row);
        prefetch_after(&square[i], ahead + i / 2 * LINE);
        prefetch_after(&square[i + 2], ahead + (i / 2 + 1) * LINE);
    }
    UNROLL
    for (int p = 0; p < 4; p++) {
        join_squares(out, square, p);
        prefetch_after(&out[12 + p], ahead + (8 + p) * LINE);
    }
}

/* Prefetches the remaining lines of transpose_line_ahead; its word q has been added to
   `sum`. */
INLINE void prefetch_remaining(v16 *sum, const char *ahead, int q)
{
    if (q % 4 == 3)
        prefetch_after(sum, ahead + (12 + q / 4) * LINE);
}

/* Returns the bf16 in the low half of each lane as floats, as wf_bf16_value has them: too small
   ones are zeros. */
INLINE v16 widen(__m512i bits)
{
    __mmask16 small = _mm512_testn_epi32_mask(bits, _mm512_set1_epi32(0x7f800000));

    return _mm512_castsi512_ps(
        _mm512_mask_and_epi32(bits, small, bits, _mm512_set1_epi32((int)0x80000000u)));
}

INLINE v16 low_half(v16 pair)
{
    return widen(_mm512_slli_epi32(_mm512_castps_si512(pair), 16));
}

INLINE v16 high_half(v16 pair)
{
    return widen(
        _mm512_and_epi32(_mm512_castps_si512(pair), _mm512_set1_epi32((int)0xffff0000u)));
}
#elif WF_ISA_LEVEL == WF_ISA_LEVEL_avx2
INLINE __m256 two_rows(const char *at, int64_t row)
{
    return two_quads(at, at + 4 * row);
}

INLINE void transpose_half(__m256 out[4], const char *at, int64_t row)
{
    __m256 r0 = two_rows(at, row), r1 = two_rows(at + row, row);
    __m256 r2 = two_rows(at + 2 * row, row), r3 = two_rows(at + 3 * row, row);
    __m256d low01 = _mm256_castps_pd(_mm256_unpacklo_ps(r0, r1));
    __m256d low23 = _mm256_castps_pd(_mm256_unpacklo_ps(r2, r3));
    __m256d high01 = _mm256_castps_pd(_mm256_unpackhi_ps(r0, r1));
    __m256d high23 = _mm256_castps_pd(_mm256_unpackhi_ps(r2, r3));

    out[0] = _mm256_castpd_ps(_mm256_unpacklo_pd(low01, low23));
    out[1] = _mm256_castpd_ps(_mm256_unpackhi_pd(low01, low23));
    out[2] = _mm256_castpd_ps(_mm256_unpacklo_pd(high01, high23));
    out[3] = _mm256_castpd_ps(_mm256_unpackhi_pd(high01, high23));
}

INLINE void transpose_tile(v16 out[4], const char *at, int64_t row)
{
    __m256 low[4], high[4];

    transpose_half(low, at, row);
    transpose_half(high, at + 8 * row, row);
    UNROLL
    for (int p = 0; p < 4; p++)
        out[p] = (v16){low[p], high[p]};
}

INLINE __m256 widen(__m256i bits)
{
    __m256i exponent = _mm256_and_si256(bits, _mm256_set1_epi32(0x7f800000));
    __m256i small = _mm256_cmpeq_epi32(exponent, _mm256_setzero_si256());
    __m256i rest = _mm256_and_si256(small, _mm256_set1_epi32(0x7fffffff));

    return _mm256_castsi256_ps(_mm256_andnot_si256(rest, bits));
}

INLINE v16 low_half(v16 pair)
{
    return (v16){widen(_mm256_slli_epi32(_mm256_castps_si256(pair.lo), 16)),
                 widen(_mm256_slli_epi32(_mm256_castps_si256(pair.hi), 16))};
}

INLINE v16 high_half(v16 pair)
{
    const __m256i high = _mm256_set1_epi32((int)0xffff0000u);

    return (v16){widen(_mm256_and_si256(_mm256_castps_si256(pair.lo), high)),
                 widen(_mm256_and_si256(_mm256_castps_si256(pair.hi), high))};
}
#elif WF_ISA_LEVEL == WF_ISA_LEVEL_neon
/* Transposes four words of each of four rows: out[p] has word p of each. */
INLINE void transpose_four(uint32x4_t out[4], const char *at, int64_t row)
{
    UNROLL
    for (int i = 0; i < 4; i++)
        out[i] = vreinterpretq_u32_f32(vld1q_f32((const float *)(at + i * row)));
    transpose4_quad(&out[0], &out[1], &out[2], &out[3]);
}

INLINE void transpose_tile(v16 out[4], const char *at, int64_t row)
{
    uint32x4_t a[4], b[4], c[4], d[4];

    transpose_four(a, at, row);
    transpose_four(b, at + 4 * row, row);
    transpose_four(c, at + 8 * row, row);
    transpose_four(d, at + 12 * row, row);
    UNROLL
    for (int p = 0; p < 4; p++)
        out[p] = v16_of((v16u){a[p], b[p], c[p], d[p]});
}

INLINE v16 low_half(v16 pair)
{
    return v16_of_high_bf16(v16u_left(v16u_of(pair), 16));
}

INLINE v16 high_half(v16 pair)
{
    return v16_of_high_bf16(v16u_and(v16u_of(pair), v16u_set1(0xffff0000u)));
}
#else
INLINE void transpose_tile(v16 out[4], const char *at, int64_t row)
{
    for (int j = 0; j < V16; j++) {
        float four[4];

        memcpy(four, at + j * row, sizeof four);
        for (int p = 0; p < 4; p++)
            out[p].f[j] = four[p];
    }
}

INLINE v16 half_of(v16 pair, int shift)
{
    for (int j = 0; j < V16; j++) {
        uint32_t bits;

        memcpy(&bits, &pair.f[j], sizeof bits);
        pair.f[j] = wf_bf16_value((uint16_t)(bits >> shift));
    }
    return pair;
}

INLINE v16 low_half(v16 pair)
{
    return half_of(pair, 0);
}

INLINE v16 high_half(v16 pair)
{
    return half_of(pair, 16);
}
#endif

#if WF_ISA_LEVEL != WF_ISA_LEVEL_avx512
INLINE void transpose_line(v16 out[V16], const char *at, int64_t row)
{
    for (int p = 0; p < V16; p += 4)
        transpose_tile(out + p, at + 4 * p, row);
}
#endif

#endif

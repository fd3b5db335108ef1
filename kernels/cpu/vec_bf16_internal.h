/*
 * kernels/cpu/vec_bf16_internal.h - bf16 numbers and the vectors of vec_internal.h.
 *
 *   v16_load_bf16(p), v16_load_bf16_n(p, n)   sixteen, or the first n of them, widened; the
 *                                             other lanes are +0. Denormals stay what they are:
 *                                             the mode of denormals_internal.h takes them as
 *                                             zeros
 *   v16_round_bf16(a)                         rounded to the nearest bf16, ties to even, as
 *                                             core/numerics/bf16.h does; for a without
 *                                             denormals
 *   v16_narrow_bf16(a)                        the same for any a: denormals become zeros of
 *                                             their sign
 *   v16_of_high_bf16(bits)                    the upper halves of words, of which the lower are
 *                                             0, as floats: denormals become zeros of their
 *                                             sign
 *   v16_store_bf16_n(p, a, n)                 the upper halves of the first n lanes: of what is
 *                                             rounded
 *   v16_narrow_two(a, b)                      32 narrowed numbers, those of a first, as sixteen
 *                                             words
 */
#ifndef WF_KERNELS_CPU_VEC_BF16_INTERNAL_H
#define WF_KERNELS_CPU_VEC_BF16_INTERNAL_H

#include "kernels/cpu/vec_internal.h"
#include <string.h>

#if WF_ISA_LEVEL == WF_ISA_LEVEL_avx512
static inline v16 v16_load_bf16(const uint16_t *p)
{
    __m256i half = _mm256_loadu_si256((const __m256i_u *)p);

    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

static inline v16 v16_load_bf16_n(const uint16_t *p, int64_t n)
{
    __m256i half;

    if (n >= V16)
        return v16_load_bf16(p);
    half = _mm256_maskz_loadu_epi16(v16m_first(n), p);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

static inline void v16_store_bf16_n(uint16_t *p, v16 a, int64_t n)
{
    __m256i half = _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(a), 16));

    if (n >= V16)
        _mm256_storeu_si256((__m256i_u *)p, half);
    else
        _mm256_mask_storeu_epi16(p, v16m_first(n), half);
}
#else
#if WF_ISA_LEVEL == WF_ISA_LEVEL_avx2
static inline v16 v16_load_bf16(const uint16_t *p)
{
    __m256i low = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i_u *)p));
    __m256i high = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i_u *)(p + 8)));

    return (v16){_mm256_castsi256_ps(_mm256_slli_epi32(low, 16)),
                 _mm256_castsi256_ps(_mm256_slli_epi32(high, 16))};
}
#elif WF_ISA_LEVEL == WF_ISA_LEVEL_neon
static inline v16 v16_load_bf16(const uint16_t *p)
{
    uint16x8_t low = vld1q_u16(p), high = vld1q_u16(p + 8);

    return v16_of((v16u){vshll_n_u16(vget_low_u16(low), 16), vshll_high_n_u16(low, 16),
                         vshll_n_u16(vget_low_u16(high), 16), vshll_high_n_u16(high, 16)});
}
#else
static inline v16 v16_load_bf16(const uint16_t *p)
{
    uint32_t word[V16];

    for (int i = 0; i < V16; i++)
        word[i] = (uint32_t)p[i] << 16;
    return v16_of(v16u_load(word));
}
#endif

static inline v16 v16_load_bf16_n(const uint16_t *p, int64_t n)
{
    uint16_t half[V16] = {0};

    if (n >= V16)
        return v16_load_bf16(p);
    memcpy(half, p, (size_t)(n > 0 ? n : 0) * sizeof *p);
    return v16_load_bf16(half);
}

#if WF_ISA_LEVEL == WF_ISA_LEVEL_neon
static inline void v16_store_bf16_n(uint16_t *p, v16 a, int64_t n)
{
    v16u bits = v16u_of(a);
    uint16_t some[V16], *to = n < V16 ? some : p;

    vst1q_u16(to, vshrn_high_n_u32(vshrn_n_u32(bits.a, 16), bits.b, 16));
    vst1q_u16(to + 8, vshrn_high_n_u32(vshrn_n_u32(bits.c, 16), bits.d, 16));
    if (n < V16)
        memcpy(p, some, (size_t)(n > 0 ? n : 0) * sizeof *p);
}
#else
static inline void v16_store_bf16_n(uint16_t *p, v16 a, int64_t n)
{
    uint32_t word[V16];

    v16u_store(word, v16u_of(a));
    for (int i = 0; i < V16 && i < n; i++)
        p[i] = (uint16_t)(word[i] >> 16);
}
#endif
#endif

static inline v16 v16_of_high_bf16(v16u bits)
{
    v16u size = v16u_and(bits, v16u_set1(0x7fffffff));
    v16m normal = v16u_ge(size, v16u_set1(0x00800000));

    return v16_select(normal, v16_of(bits), v16_of(v16u_and(bits, v16u_set1(0x80000000u))));
}

static inline v16 v16_round_bf16(v16 a)
{
    v16u bits = v16u_of(a), odd = v16u_and(v16u_right(bits, 16), v16u_set1(1));
    v16u half = v16u_add(v16u_add(bits, v16u_set1(0x7fff)), odd);
    v16 rounded = v16_of(v16u_and(half, v16u_set1(0xffff0000u)));

    return v16_select(v16_unordered(a, a), v16_of(v16u_set1(0x7fc00000)), rounded);
}

static inline v16 v16_narrow_bf16(v16 a)
{
    v16u bits = v16u_of(a), size = v16u_and(bits, v16u_set1(0x7fffffff));
    v16m normal = v16u_ge(size, v16u_set1(0x00800000));

    return v16_select(normal, v16_round_bf16(a),
                      v16_of(v16u_and(bits, v16u_set1(0x80000000u))));
}

static inline v16u v16_narrow_any_two(v16 a, v16 b)
{
    uint16_t half[2 * V16];
    uint32_t word[V16];

    v16_store_bf16_n(half, v16_narrow_bf16(a), V16);
    v16_store_bf16_n(half + V16, v16_narrow_bf16(b), V16);
    memcpy(word, half, sizeof word);
    return v16u_load(word);
}

#if WF_ISA_LEVEL == WF_ISA_LEVEL_avx512 && defined(__AVX512BF16__)
/* Returns the instruction rounds so and takes denormals as zeros, but keeps what a NaN says. */
static inline v16u v16_narrow_two(v16 a, v16 b)
{
    __mmask16 nan =
        _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q) | _mm512_cmp_ps_mask(b, b, _CMP_UNORD_Q);

    return __builtin_expect(nan != 0, 0) ? v16_narrow_any_two(a, b)
                                         : (v16u)_mm512_cvtne2ps_pbh(b, a);
}
#else
static inline v16u v16_narrow_two(v16 a, v16 b)
{
    return v16_narrow_any_two(a, b);
}
#endif
#endif

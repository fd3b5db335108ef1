/* kernels/cpu/vec_avx512_internal.h - the vectors of vec.h in 512-bit registers (AVX-512 F,
   DQ). */
#ifndef WF_KERNELS_CPU_VEC_AVX512_INTERNAL_H
#define WF_KERNELS_CPU_VEC_AVX512_INTERNAL_H

#include <immintrin.h>
#include <stdint.h>

typedef __m512 v16;
typedef __m512i v16u;
typedef __mmask16 v16m;
typedef __m512d v8d;

static inline v16m v16m_first(int64_t n)
{
    uint32_t lanes = n < 16 ? (1u << (unsigned)n) - 1u : 0xFFFFu;

    return (v16m)lanes;
}

static inline v16 v16_zero(void)
{
    return _mm512_setzero_ps();
}

static inline v16 v16_set1(float x)
{
    return _mm512_set1_ps(x);
}

static inline v16 v16_load(const float *p)
{
    return _mm512_loadu_ps(p);
}

static inline void v16_store(float *p, v16 a)
{
    _mm512_storeu_ps(p, a);
}

static inline void v16_store_non_temporal(float *p, v16 a)
{
    _mm512_stream_ps(p, a);
}

static inline void v16_non_temporal_end(void)
{
    _mm_sfence();
}

static inline v16 v16_load_n(const float *p, int64_t n)
{
    return n < 16 ? _mm512_maskz_loadu_ps(v16m_first(n), p) : _mm512_loadu_ps(p);
}

static inline void v16_store_n(float *p, v16 a, int64_t n)
{
    if (n < 16)
        _mm512_mask_storeu_ps(p, v16m_first(n), a);
    else
        _mm512_storeu_ps(p, a);
}

static inline v16 v16_add(v16 a, v16 b)
{
    return _mm512_add_ps(a, b);
}

static inline v16 v16_sub(v16 a, v16 b)
{
    return _mm512_sub_ps(a, b);
}

static inline v16 v16_mul(v16 a, v16 b)
{
    return _mm512_mul_ps(a, b);
}

static inline v16 v16_div(v16 a, v16 b)
{
    return _mm512_div_ps(a, b);
}

static inline v16 v16_sqrt(v16 a)
{
    return _mm512_sqrt_ps(a);
}

static inline v16 v16_neg(v16 a)
{
    return _mm512_xor_ps(a, _mm512_set1_ps(-0.0f));
}

static inline v16 v16_fma(v16 a, v16 b, v16 c)
{
    return _mm512_fmadd_ps(a, b, c);
}

static inline v16 v16_fnma(v16 a, v16 b, v16 c)
{
    return _mm512_fnmadd_ps(a, b, c);
}

static inline v16 v16_max(v16 a, v16 b)
{
    return _mm512_max_ps(a, b);
}

static inline v16 v16_min(v16 a, v16 b)
{
    return _mm512_min_ps(a, b);
}

static inline v16 v16_scale2(v16 a, v16 n)
{
    return _mm512_scalef_ps(a, n);
}

static inline v16 v16_split2(v16 a, v16 *n)
{
    *n = _mm512_getexp_ps(a);
    return _mm512_getmant_ps(a, _MM_MANT_NORM_1_2, _MM_MANT_SIGN_src);
}

static inline v16m v16_less(v16 a, v16 b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ);
}

static inline v16m v16_unordered(v16 a, v16 b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q);
}

static inline v16 v16_select(v16m m, v16 a, v16 b)
{
    return _mm512_mask_blend_ps(m, b, a);
}

static inline float v16_sum(v16 a)
{
    __m256 x = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 y = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));

    y = _mm_add_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_add_ss(y, _mm_movehdup_ps(y)));
}

static inline v16u v16u_set1(uint32_t x)
{
    return _mm512_set1_epi32((int)x);
}

static inline v16u v16u_load(const uint32_t *p)
{
    return _mm512_loadu_si512(p);
}

static inline v16u v16u_load_half(const uint16_t *p, int64_t n)
{
    __mmask16 first = (__mmask16)(n < 16 ? (1u << n) - 1 : 0xffffu);

    return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(first, p));
}

static inline void v16u_store(uint32_t *p, v16u a)
{
    _mm512_storeu_si512(p, a);
}

static inline v16u v16u_add(v16u a, v16u b)
{
    return _mm512_add_epi32(a, b);
}

static inline v16u v16u_xor(v16u a, v16u b)
{
    return _mm512_xor_si512(a, b);
}

static inline v16u v16u_and(v16u a, v16u b)
{
    return _mm512_and_si512(a, b);
}

static inline v16u v16u_or(v16u a, v16u b)
{
    return _mm512_or_si512(a, b);
}

static inline v16u v16u_left(v16u a, unsigned n)
{
    return _mm512_slli_epi32(a, n);
}

static inline v16u v16u_right(v16u a, unsigned n)
{
    return _mm512_srli_epi32(a, n);
}

static inline v16 v16_of_int(v16u a)
{
    return _mm512_cvtepi32_ps(a);
}

static inline v16 v16_of_bits(v16u a)
{
    return _mm512_castsi512_ps(a);
}

static inline v16u v16u_of_bits(v16 a)
{
    return _mm512_castps_si512(a);
}

static inline v16m v16u_ge(v16u a, v16u b)
{
    return _mm512_cmpge_epu32_mask(a, b);
}

static inline v16u v16u_mul(v16u a, v16u b, v16u *high)
{
    v16u even = _mm512_mul_epu32(a, b);
    v16u odd = _mm512_mul_epu32(_mm512_srli_epi64(a, 32), _mm512_srli_epi64(b, 32));

    *high = _mm512_mask_blend_epi32(0xAAAA, _mm512_srli_epi64(even, 32), odd);
    return _mm512_mask_blend_epi32(0xAAAA, even, _mm512_slli_epi64(odd, 32));
}

static inline void v16u_transpose4(v16u a[4])
{
    v16u x = _mm512_unpacklo_epi32(a[0], a[1]), y = _mm512_unpacklo_epi32(a[2], a[3]);
    v16u z = _mm512_unpackhi_epi32(a[0], a[1]), w = _mm512_unpackhi_epi32(a[2], a[3]);

    a[0] = _mm512_unpacklo_epi64(x, y);
    a[1] = _mm512_unpackhi_epi64(x, y);
    a[2] = _mm512_unpacklo_epi64(z, w);
    a[3] = _mm512_unpackhi_epi64(z, w);
}

static inline v16u v16u_of(v16 a)
{
    return _mm512_castps_si512(a);
}

static inline v16 v16_of(v16u a)
{
    return _mm512_castsi512_ps(a);
}

static inline void v16_transpose_quads(v16 a[4])
{
    v16 x = _mm512_shuffle_f32x4(a[0], a[1], 0x44), y = _mm512_shuffle_f32x4(a[2], a[3], 0x44);
    v16 z = _mm512_shuffle_f32x4(a[0], a[1], 0xEE), w = _mm512_shuffle_f32x4(a[2], a[3], 0xEE);

    a[0] = _mm512_shuffle_f32x4(x, y, 0x88);
    a[1] = _mm512_shuffle_f32x4(x, y, 0xDD);
    a[2] = _mm512_shuffle_f32x4(z, w, 0x88);
    a[3] = _mm512_shuffle_f32x4(z, w, 0xDD);
}

static inline v16u v16u_load_quarters(const void *from, int64_t stride)
{
    const char *row = from;
    __m512i x = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i_u *)row));

    x = _mm512_inserti32x4(x, _mm_loadu_si128((const __m128i_u *)(row + 4 * stride)), 1);
    x = _mm512_inserti32x4(x, _mm_loadu_si128((const __m128i_u *)(row + 8 * stride)), 2);
    return _mm512_inserti32x4(x, _mm_loadu_si128((const __m128i_u *)(row + 12 * stride)), 3);
}

static inline void v16u_load_transposed(v16u a[16], const void *from, int64_t stride)
{
    for (int g = 0; g < 4; g++) {
        for (int i = 0; i < 4; i++)
            a[4 * g + i] = v16u_load_quarters((const char *)from + i * stride + g * 16, stride);
        v16u_transpose4(a + 4 * g);
    }
}

/* Low and high halves of the words of two sets of 16 columns, from two rows of 32 halves. */
static inline void v16u_pair_rows(const uint16_t *even, const uint16_t *odd, v16u pair[2])
{
    const __m512i low =
        _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7,
                         38, 6, 37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
    __m512i x = _mm512_loadu_si512(even), y = _mm512_loadu_si512(odd);

    pair[0] = _mm512_permutex2var_epi16(x, low, y);
    pair[1] = _mm512_permutex2var_epi16(x, high, y);
}

static inline v8d v8d_zero(void)
{
    return _mm512_setzero_pd();
}

static inline v8d v8d_add(v8d a, v8d b)
{
    return _mm512_add_pd(a, b);
}

static inline v8d v8d_mul(v8d a, v8d b)
{
    return _mm512_mul_pd(a, b);
}

static inline v8d v8d_low(v16 a)
{
    return _mm512_cvtps_pd(_mm512_castps512_ps256(a));
}

static inline v8d v8d_high(v16 a)
{
    return _mm512_cvtps_pd(_mm512_extractf32x8_ps(a, 1));
}

static inline double v8d_sum(v8d a)
{
    __m256d x = _mm256_add_pd(_mm512_castpd512_pd256(a), _mm512_extractf64x4_pd(a, 1));
    __m128d y = _mm_add_pd(_mm256_castpd256_pd128(x), _mm256_extractf128_pd(x, 1));

    return _mm_cvtsd_f64(_mm_add_sd(y, _mm_unpackhi_pd(y, y)));
}

#endif

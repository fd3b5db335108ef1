/* kernels/cpu/vec_avx2_internal.h - the vectors of vec.h in pairs of 256-bit registers (AVX2,
   FMA). */
#ifndef WF_KERNELS_CPU_VEC_AVX2_INTERNAL_H
#define WF_KERNELS_CPU_VEC_AVX2_INTERNAL_H

#include <immintrin.h>
#include <stdint.h>

typedef struct v16 {
    __m256 lo, hi;
} v16;

typedef struct v16u {
    __m256i lo, hi;
} v16u;

typedef struct v16m {
    __m256 lo, hi; /* all ones or all zeros in a lane */
} v16m;

typedef struct v8d {
    __m256d lo, hi;
} v8d;

static inline v16m v16m_first(int64_t n)
{
    __m256i count = _mm256_set1_epi32(n < 16 ? (int)n : 16);
    __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    __m256i next = _mm256_add_epi32(lane, _mm256_set1_epi32(8));

    return (v16m){_mm256_castsi256_ps(_mm256_cmpgt_epi32(count, lane)),
                  _mm256_castsi256_ps(_mm256_cmpgt_epi32(count, next))};
}

static inline v16 v16_zero(void)
{
    return (v16){_mm256_setzero_ps(), _mm256_setzero_ps()};
}

static inline v16 v16_set1(float x)
{
    return (v16){_mm256_set1_ps(x), _mm256_set1_ps(x)};
}

static inline v16 v16_load(const float *p)
{
    return (v16){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}

static inline void v16_store(float *p, v16 a)
{
    _mm256_storeu_ps(p, a.lo);
    _mm256_storeu_ps(p + 8, a.hi);
}

static inline void v16_store_non_temporal(float *p, v16 a)
{
    _mm256_stream_ps(p, a.lo);
    _mm256_stream_ps(p + 8, a.hi);
}

static inline void v16_non_temporal_end(void)
{
    _mm_sfence();
}

static inline v16 v16_load_n(const float *p, int64_t n)
{
    v16m m;

    if (n >= 16)
        return v16_load(p);
    m = v16m_first(n);
    if (n <= 8)
        return (v16){_mm256_maskload_ps(p, _mm256_castps_si256(m.lo)), _mm256_setzero_ps()};
    return (v16){_mm256_loadu_ps(p), _mm256_maskload_ps(p + 8, _mm256_castps_si256(m.hi))};
}

static inline void v16_store_n(float *p, v16 a, int64_t n)
{
    if (n >= 16) {
        v16_store(p, a);
    } else {
        v16m m = v16m_first(n);

        _mm256_maskstore_ps(p, _mm256_castps_si256(m.lo), a.lo);
        if (n > 8)
            _mm256_maskstore_ps(p + 8, _mm256_castps_si256(m.hi), a.hi);
    }
}

static inline v16 v16_add(v16 a, v16 b)
{
    return (v16){_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}

static inline v16 v16_sub(v16 a, v16 b)
{
    return (v16){_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}

static inline v16 v16_mul(v16 a, v16 b)
{
    return (v16){_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}

static inline v16 v16_div(v16 a, v16 b)
{
    return (v16){_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
}

static inline v16 v16_sqrt(v16 a)
{
    return (v16){_mm256_sqrt_ps(a.lo), _mm256_sqrt_ps(a.hi)};
}

static inline v16 v16_neg(v16 a)
{
    __m256 sign = _mm256_set1_ps(-0.0f);

    return (v16){_mm256_xor_ps(a.lo, sign), _mm256_xor_ps(a.hi, sign)};
}

static inline v16 v16_fma(v16 a, v16 b, v16 c)
{
    return (v16){_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}

static inline v16 v16_fnma(v16 a, v16 b, v16 c)
{
    return (v16){_mm256_fnmadd_ps(a.lo, b.lo, c.lo), _mm256_fnmadd_ps(a.hi, b.hi, c.hi)};
}

static inline v16 v16_max(v16 a, v16 b)
{
    return (v16){_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
}

static inline v16 v16_min(v16 a, v16 b)
{
    return (v16){_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)};
}

/* Scales in two steps, since 2^n itself may be out of range: only the second one can round. */
static inline __m256 scale2_half(__m256 a, __m256 n)
{
    __m256i e = _mm256_cvtps_epi32(n), first = _mm256_srai_epi32(e, 1);
    __m256i bias = _mm256_set1_epi32(127), second = _mm256_sub_epi32(e, first);
    __m256i x = _mm256_slli_epi32(_mm256_add_epi32(first, bias), 23);
    __m256i y = _mm256_slli_epi32(_mm256_add_epi32(second, bias), 23);

    return _mm256_mul_ps(_mm256_mul_ps(a, _mm256_castsi256_ps(x)), _mm256_castsi256_ps(y));
}

static inline v16 v16_scale2(v16 a, v16 n)
{
    return (v16){scale2_half(a.lo, n.lo), scale2_half(a.hi, n.hi)};
}

static inline __m256 split2_half(__m256 a, __m256 *n)
{
    __m256i bits = _mm256_castps_si256(a), one = _mm256_set1_epi32(127 << 23);
    __m256i e = _mm256_sub_epi32(_mm256_srli_epi32(bits, 23), _mm256_set1_epi32(127));

    *n = _mm256_cvtepi32_ps(e);
    bits = _mm256_and_si256(bits, _mm256_set1_epi32(0x7FFFFF));
    return _mm256_castsi256_ps(_mm256_or_si256(bits, one));
}

static inline v16 v16_split2(v16 a, v16 *n)
{
    v16 m;

    m.lo = split2_half(a.lo, &n->lo);
    m.hi = split2_half(a.hi, &n->hi);
    return m;
}

static inline v16m v16_less(v16 a, v16 b)
{
    return (v16m){_mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ)};
}

static inline v16m v16_unordered(v16 a, v16 b)
{
    return (v16m){_mm256_cmp_ps(a.lo, b.lo, _CMP_UNORD_Q),
                  _mm256_cmp_ps(a.hi, b.hi, _CMP_UNORD_Q)};
}

static inline v16 v16_select(v16m m, v16 a, v16 b)
{
    return (v16){_mm256_blendv_ps(b.lo, a.lo, m.lo), _mm256_blendv_ps(b.hi, a.hi, m.hi)};
}

static inline float v16_sum(v16 a)
{
    __m256 x = _mm256_add_ps(a.lo, a.hi);
    __m128 y = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));

    y = _mm_add_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_add_ss(y, _mm_movehdup_ps(y)));
}

static inline v16u v16u_set1(uint32_t x)
{
    return (v16u){_mm256_set1_epi32((int)x), _mm256_set1_epi32((int)x)};
}

static inline v16u v16u_load(const uint32_t *p)
{
    return (v16u){_mm256_loadu_si256((const __m256i *)p),
                  _mm256_loadu_si256((const __m256i *)(p + 8))};
}

static inline v16u v16u_load_quarters(const void *from, int64_t stride)
{
    const char *row = from;

    return (v16u){
        _mm256_loadu2_m128i((const __m128i *)(row + 4 * stride), (const __m128i *)row),
        _mm256_loadu2_m128i((const __m128i *)(row + 12 * stride),
                            (const __m128i *)(row + 8 * stride))};
}

static inline v16u v16u_load_half(const uint16_t *p, int64_t n)
{
    uint16_t some[16] = {0};

    if (n < 16) {
        for (int64_t i = 0; i < n; i++)
            some[i] = p[i];
        p = some;
    }
    return (v16u){
        _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)),
        _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)(p + 8)))};
}

static inline void v16u_store(uint32_t *p, v16u a)
{
    _mm256_storeu_si256((__m256i *)p, a.lo);
    _mm256_storeu_si256((__m256i *)(p + 8), a.hi);
}

static inline v16u v16u_add(v16u a, v16u b)
{
    return (v16u){_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)};
}

static inline v16u v16u_xor(v16u a, v16u b)
{
    return (v16u){_mm256_xor_si256(a.lo, b.lo), _mm256_xor_si256(a.hi, b.hi)};
}

static inline v16u v16u_and(v16u a, v16u b)
{
    return (v16u){_mm256_and_si256(a.lo, b.lo), _mm256_and_si256(a.hi, b.hi)};
}

static inline v16u v16u_or(v16u a, v16u b)
{
    return (v16u){_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)};
}

static inline v16u v16u_left(v16u a, unsigned n)
{
    return (v16u){_mm256_slli_epi32(a.lo, (int)n), _mm256_slli_epi32(a.hi, (int)n)};
}

static inline v16u v16u_right(v16u a, unsigned n)
{
    return (v16u){_mm256_srli_epi32(a.lo, (int)n), _mm256_srli_epi32(a.hi, (int)n)};
}

static inline v16 v16_of_int(v16u a)
{
    return (v16){_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)};
}

static inline v16 v16_of_bits(v16u a)
{
    return (v16){_mm256_castsi256_ps(a.lo), _mm256_castsi256_ps(a.hi)};
}

static inline v16u v16u_of_bits(v16 a)
{
    return (v16u){_mm256_castps_si256(a.lo), _mm256_castps_si256(a.hi)};
}

/* a >= b is max(a, b) == a: AVX2 compares signed words only. */
static inline v16m v16u_ge(v16u a, v16u b)
{
    __m256i lo = _mm256_cmpeq_epi32(_mm256_max_epu32(a.lo, b.lo), a.lo);
    __m256i hi = _mm256_cmpeq_epi32(_mm256_max_epu32(a.hi, b.hi), a.hi);

    return (v16m){_mm256_castsi256_ps(lo), _mm256_castsi256_ps(hi)};
}

static inline __m256i mul_half(__m256i a, __m256i b, __m256i *high)
{
    __m256i even = _mm256_mul_epu32(a, b);
    __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), _mm256_srli_epi64(b, 32));

    *high = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA);
    return _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA);
}

static inline v16u v16u_mul(v16u a, v16u b, v16u *high)
{
    v16u low;

    low.lo = mul_half(a.lo, b.lo, &high->lo);
    low.hi = mul_half(a.hi, b.hi, &high->hi);
    return low;
}

/* Loads four words from each of two addresses. */
static inline __m256 two_quads(const char *low, const char *high)
{
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps((const float *)low)),
                                _mm_loadu_ps((const float *)high), 1);
}

static inline void transpose4_half(__m256i *a, __m256i *b, __m256i *c, __m256i *d)
{
    __m256i x = _mm256_unpacklo_epi32(*a, *b), y = _mm256_unpacklo_epi32(*c, *d);
    __m256i z = _mm256_unpackhi_epi32(*a, *b), w = _mm256_unpackhi_epi32(*c, *d);

    *a = _mm256_unpacklo_epi64(x, y);
    *b = _mm256_unpackhi_epi64(x, y);
    *c = _mm256_unpacklo_epi64(z, w);
    *d = _mm256_unpackhi_epi64(z, w);
}

static inline void v16u_transpose4(v16u a[4])
{
    transpose4_half(&a[0].lo, &a[1].lo, &a[2].lo, &a[3].lo);
    transpose4_half(&a[0].hi, &a[1].hi, &a[2].hi, &a[3].hi);
}

static inline v16u v16u_of(v16 a)
{
    return (v16u){_mm256_castps_si256(a.lo), _mm256_castps_si256(a.hi)};
}

static inline v16 v16_of(v16u a)
{
    return (v16){_mm256_castsi256_ps(a.lo), _mm256_castsi256_ps(a.hi)};
}

static inline void v16_transpose_quads(v16 a[4])
{
    v16 x = a[0], y = a[1], z = a[2], w = a[3];

    a[0] = (v16){_mm256_permute2f128_ps(x.lo, y.lo, 0x20),
                 _mm256_permute2f128_ps(z.lo, w.lo, 0x20)};
    a[1] = (v16){_mm256_permute2f128_ps(x.lo, y.lo, 0x31),
                 _mm256_permute2f128_ps(z.lo, w.lo, 0x31)};
    a[2] = (v16){_mm256_permute2f128_ps(x.hi, y.hi, 0x20),
                 _mm256_permute2f128_ps(z.hi, w.hi, 0x20)};
    a[3] = (v16){_mm256_permute2f128_ps(x.hi, y.hi, 0x31),
                 _mm256_permute2f128_ps(z.hi, w.hi, 0x31)};
}

static inline v8d v8d_zero(void)
{
    return (v8d){_mm256_setzero_pd(), _mm256_setzero_pd()};
}

static inline v8d v8d_add(v8d a, v8d b)
{
    return (v8d){_mm256_add_pd(a.lo, b.lo), _mm256_add_pd(a.hi, b.hi)};
}

static inline v8d v8d_mul(v8d a, v8d b)
{
    return (v8d){_mm256_mul_pd(a.lo, b.lo), _mm256_mul_pd(a.hi, b.hi)};
}

static inline v8d v8d_low(v16 a)
{
    return (v8d){_mm256_cvtps_pd(_mm256_castps256_ps128(a.lo)),
                 _mm256_cvtps_pd(_mm256_extractf128_ps(a.lo, 1))};
}

static inline v8d v8d_high(v16 a)
{
    return (v8d){_mm256_cvtps_pd(_mm256_castps256_ps128(a.hi)),
                 _mm256_cvtps_pd(_mm256_extractf128_ps(a.hi, 1))};
}

static inline double v8d_sum(v8d a)
{
    __m256d x = _mm256_add_pd(a.lo, a.hi);
    __m128d y = _mm_add_pd(_mm256_castpd256_pd128(x), _mm256_extractf128_pd(x, 1));

    return _mm_cvtsd_f64(_mm_add_sd(y, _mm_unpackhi_pd(y, y)));
}

#endif

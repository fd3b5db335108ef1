/* kernels/cpu/vec_neon_internal.h - the vectors of vec_internal.h in four 128-bit registers
   (Advanced SIMD, which every AArch64 processor has). */
#ifndef WF_KERNELS_CPU_VEC_NEON_INTERNAL_H
#define WF_KERNELS_CPU_VEC_NEON_INTERNAL_H

#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

typedef struct v16 {
    float32x4_t a, b, c, d;
} v16;

typedef struct v16u {
    uint32x4_t a, b, c, d;
} v16u;

typedef struct v16m {
    uint32x4_t a, b, c, d; /* all ones or all zeros in a lane */
} v16m;

typedef struct v8d {
    float64x2_t a, b, c, d;
} v8d;

static inline v16m v16m_first(int64_t n)
{
    static const uint32_t lane[4] = {0, 1, 2, 3};
    uint32x4_t count = vdupq_n_u32(n < 0 ? 0 : n < 16 ? (uint32_t)n : 16);
    uint32x4_t at = vld1q_u32(lane);

    return (v16m){vcgtq_u32(count, at), vcgtq_u32(count, vaddq_u32(at, vdupq_n_u32(4))),
                  vcgtq_u32(count, vaddq_u32(at, vdupq_n_u32(8))),
                  vcgtq_u32(count, vaddq_u32(at, vdupq_n_u32(12)))};
}

static inline v16 v16_set1(float x)
{
    float32x4_t q = vdupq_n_f32(x);

    return (v16){q, q, q, q};
}

static inline v16 v16_zero(void)
{
    return v16_set1(0.0f);
}

static inline v16 v16_load(const float *p)
{
    return (v16){vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)};
}

static inline void v16_store(float *p, v16 x)
{
    vst1q_f32(p, x.a);
    vst1q_f32(p + 4, x.b);
    vst1q_f32(p + 8, x.c);
    vst1q_f32(p + 12, x.d);
}

static inline void v16_store_non_temporal(float *p, v16 x)
{
    v16_store(p, x);
}

static inline void v16_non_temporal_end(void)
{
}

static inline v16 v16_load_n(const float *p, int64_t n)
{
    float some[16] = {0};

    if (n >= 16)
        return v16_load(p);
    memcpy(some, p, (size_t)(n > 0 ? n : 0) * sizeof *p);
    return v16_load(some);
}

static inline void v16_store_n(float *p, v16 x, int64_t n)
{
    float some[16];

    if (n >= 16) {
        v16_store(p, x);
        return;
    }
    v16_store(some, x);
    memcpy(p, some, (size_t)(n > 0 ? n : 0) * sizeof *p);
}

static inline v16 v16_add(v16 x, v16 y)
{
    return (v16){vaddq_f32(x.a, y.a), vaddq_f32(x.b, y.b), vaddq_f32(x.c, y.c),
                 vaddq_f32(x.d, y.d)};
}

static inline v16 v16_sub(v16 x, v16 y)
{
    return (v16){vsubq_f32(x.a, y.a), vsubq_f32(x.b, y.b), vsubq_f32(x.c, y.c),
                 vsubq_f32(x.d, y.d)};
}

static inline v16 v16_mul(v16 x, v16 y)
{
    return (v16){vmulq_f32(x.a, y.a), vmulq_f32(x.b, y.b), vmulq_f32(x.c, y.c),
                 vmulq_f32(x.d, y.d)};
}

static inline v16 v16_div(v16 x, v16 y)
{
    return (v16){vdivq_f32(x.a, y.a), vdivq_f32(x.b, y.b), vdivq_f32(x.c, y.c),
                 vdivq_f32(x.d, y.d)};
}

static inline v16 v16_sqrt(v16 x)
{
    return (v16){vsqrtq_f32(x.a), vsqrtq_f32(x.b), vsqrtq_f32(x.c), vsqrtq_f32(x.d)};
}

static inline v16 v16_neg(v16 x)
{
    return (v16){vnegq_f32(x.a), vnegq_f32(x.b), vnegq_f32(x.c), vnegq_f32(x.d)};
}

static inline v16 v16_fma(v16 x, v16 y, v16 z)
{
    return (v16){vfmaq_f32(z.a, x.a, y.a), vfmaq_f32(z.b, x.b, y.b), vfmaq_f32(z.c, x.c, y.c),
                 vfmaq_f32(z.d, x.d, y.d)};
}

static inline v16 v16_fnma(v16 x, v16 y, v16 z)
{
    return (v16){vfmsq_f32(z.a, x.a, y.a), vfmsq_f32(z.b, x.b, y.b), vfmsq_f32(z.c, x.c, y.c),
                 vfmsq_f32(z.d, x.d, y.d)};
}

static inline v16 v16_select(v16m m, v16 x, v16 y)
{
    return (v16){vbslq_f32(m.a, x.a, y.a), vbslq_f32(m.b, x.b, y.b), vbslq_f32(m.c, x.c, y.c),
                 vbslq_f32(m.d, x.d, y.d)};
}

static inline v16m v16_less(v16 x, v16 y)
{
    return (v16m){vcltq_f32(x.a, y.a), vcltq_f32(x.b, y.b), vcltq_f32(x.c, y.c),
                  vcltq_f32(x.d, y.d)};
}

/* Returns the instructions for a maximum and a minimum have rules of their own for NaNs and
   zeros. */
static inline v16 v16_max(v16 x, v16 y)
{
    return v16_select(v16_less(y, x), x, y);
}

static inline v16 v16_min(v16 x, v16 y)
{
    return v16_select(v16_less(x, y), x, y);
}

/* Scales in two steps, since 2^n itself may be out of range: only the second one can round. */
static inline float32x4_t scale2_quad(float32x4_t x, float32x4_t n)
{
    int32x4_t e = vcvtnq_s32_f32(n), first = vshrq_n_s32(e, 1), bias = vdupq_n_s32(127);
    int32x4_t low = vshlq_n_s32(vaddq_s32(first, bias), 23);
    int32x4_t high = vshlq_n_s32(vaddq_s32(vsubq_s32(e, first), bias), 23);

    return vmulq_f32(vmulq_f32(x, vreinterpretq_f32_s32(low)), vreinterpretq_f32_s32(high));
}

static inline v16 v16_scale2(v16 x, v16 n)
{
    return (v16){scale2_quad(x.a, n.a), scale2_quad(x.b, n.b), scale2_quad(x.c, n.c),
                 scale2_quad(x.d, n.d)};
}

static inline float32x4_t split2_quad(float32x4_t x, float32x4_t *n)
{
    uint32x4_t bits = vreinterpretq_u32_f32(x), one = vdupq_n_u32(127u << 23);
    int32x4_t e = vreinterpretq_s32_u32(vshrq_n_u32(bits, 23));

    *n = vcvtq_f32_s32(vsubq_s32(e, vdupq_n_s32(127)));
    return vreinterpretq_f32_u32(vorrq_u32(vandq_u32(bits, vdupq_n_u32(0x7FFFFF)), one));
}

static inline v16 v16_split2(v16 x, v16 *n)
{
    v16 m;

    m.a = split2_quad(x.a, &n->a);
    m.b = split2_quad(x.b, &n->b);
    m.c = split2_quad(x.c, &n->c);
    m.d = split2_quad(x.d, &n->d);
    return m;
}

/* Returns a number is equal to itself. */
static inline uint32x4_t unordered_quad(float32x4_t x, float32x4_t y)
{
    return vmvnq_u32(vandq_u32(vceqq_f32(x, x), vceqq_f32(y, y)));
}

static inline v16m v16_unordered(v16 x, v16 y)
{
    return (v16m){unordered_quad(x.a, y.a), unordered_quad(x.b, y.b), unordered_quad(x.c, y.c),
                  unordered_quad(x.d, y.d)};
}

static inline float v16_sum(v16 x)
{
    float32x4_t four = vaddq_f32(vaddq_f32(x.a, x.c), vaddq_f32(x.b, x.d));
    float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));

    return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}

static inline void v16_transpose_quads(v16 x[4])
{
    v16 from[4] = {x[0], x[1], x[2], x[3]};

    x[0] = (v16){from[0].a, from[1].a, from[2].a, from[3].a};
    x[1] = (v16){from[0].b, from[1].b, from[2].b, from[3].b};
    x[2] = (v16){from[0].c, from[1].c, from[2].c, from[3].c};
    x[3] = (v16){from[0].d, from[1].d, from[2].d, from[3].d};
}

static inline v8d v8d_zero(void)
{
    float64x2_t q = vdupq_n_f64(0.0);

    return (v8d){q, q, q, q};
}

static inline v8d v8d_add(v8d x, v8d y)
{
    return (v8d){vaddq_f64(x.a, y.a), vaddq_f64(x.b, y.b), vaddq_f64(x.c, y.c),
                 vaddq_f64(x.d, y.d)};
}

static inline v8d v8d_mul(v8d x, v8d y)
{
    return (v8d){vmulq_f64(x.a, y.a), vmulq_f64(x.b, y.b), vmulq_f64(x.c, y.c),
                 vmulq_f64(x.d, y.d)};
}

static inline v8d v8d_low(v16 x)
{
    return (v8d){vcvt_f64_f32(vget_low_f32(x.a)), vcvt_high_f64_f32(x.a),
                 vcvt_f64_f32(vget_low_f32(x.b)), vcvt_high_f64_f32(x.b)};
}

static inline v8d v8d_high(v16 x)
{
    return (v8d){vcvt_f64_f32(vget_low_f32(x.c)), vcvt_high_f64_f32(x.c),
                 vcvt_f64_f32(vget_low_f32(x.d)), vcvt_high_f64_f32(x.d)};
}

static inline double v8d_sum(v8d x)
{
    float64x2_t two = vaddq_f64(vaddq_f64(x.a, x.c), vaddq_f64(x.b, x.d));

    return vgetq_lane_f64(two, 0) + vgetq_lane_f64(two, 1);
}

#include "kernels/cpu/vec_neon_int_internal.h"

#endif

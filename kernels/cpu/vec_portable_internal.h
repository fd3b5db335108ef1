/* kernels/cpu/vec_portable_internal.h - the vectors of vec_internal.h as arrays, in C alone. */
#ifndef WF_KERNELS_CPU_VEC_PORTABLE_INTERNAL_H
#define WF_KERNELS_CPU_VEC_PORTABLE_INTERNAL_H

#include <stdint.h>
#include <string.h>

typedef struct v16 {
    float f[16];
} v16;

typedef struct v16u {
    uint32_t u[16];
} v16u;

typedef struct v16m {
    uint32_t b[16]; /* 1 or 0 */
} v16m;

typedef struct v8d {
    double d[8];
} v8d;

static inline v16m v16m_first(int64_t n)
{
    v16m y;

    for (int i = 0; i < 16; i++)
        y.b[i] = i < n;
    return y;
}

static inline v16 v16_zero(void)
{
    v16 y;

    for (int i = 0; i < 16; i++)
        y.f[i] = 0.0f;
    return y;
}

static inline v16 v16_set1(float x)
{
    v16 y;

    for (int i = 0; i < 16; i++)
        y.f[i] = x;
    return y;
}

static inline v16 v16_load(const float *p)
{
    v16 y;

    memcpy(y.f, p, sizeof(y.f));
    return y;
}

static inline void v16_store(float *p, v16 a)
{
    memcpy(p, a.f, sizeof(a.f));
}

static inline void v16_store_non_temporal(float *p, v16 a)
{
    v16_store(p, a);
}

static inline void v16_non_temporal_end(void)
{
}

static inline v16 v16_load_n(const float *p, int64_t n)
{
    v16 y;

    for (int i = 0; i < 16; i++)
        y.f[i] = i < n ? p[i] : 0.0f;
    return y;
}

static inline void v16_store_n(float *p, v16 a, int64_t n)
{
    for (int i = 0; i < 16 && i < n; i++)
        p[i] = a.f[i];
}

static inline v16 v16_add(v16 a, v16 b)
{
    v16 y;

    for (int i = 0; i < 16; i++)
        y.f[i] = a.f[i] + b.f[i];
    return y;
}

static inline v16 v16_sub(v16 a, v16 b)
{
    v16 y;

    for (int i = 0; i < 16; i++)
        y.f[i] = a.f[i] - b.f[i];
    return y;
}

static inline v16 v16_mul(v16 a, v16 b)
{
    v16 y;

    for (int i = 0; i < 16; i++)
        y.f[i] = a.f[i] * b.f[i];
    return y;
}

static inline v16 v16_div(v16 a, v16 b)
{
    v16 y;

    for (int i = 0; i < 16; i++)
        y.f[i] = a.f[i] / b.f[i];
    return y;
}

static inline v16 v16_sqrt(v16 a)
{
    v16 y;

    for (int i = 0; i < 16; i++)
        y.f[i] = __builtin_sqrtf(a.f[i]);
    return y;
}

static inline v16 v16_neg(v16 a)
{
    v16 y;

    for (int i = 0; i < 16; i++)
        y.f[i] = -a.f[i];
    return y;
}

static inline v16 v16_fma(v16 a, v16 b, v16 c)
{
    v16 y;

    for (int i = 0; i < 16; i++)
        y.f[i] = __builtin_fmaf(a.f[i], b.f[i], c.f[i]);
    return y;
}

static inline v16 v16_fnma(v16 a, v16 b, v16 c)
{
    v16 y;

    for (int i = 0; i < 16; i++)
        y.f[i] = __builtin_fmaf(-a.f[i], b.f[i], c.f[i]);
    return y;
}

static inline v16 v16_max(v16 a, v16 b)
{
    v16 y;

    for (int i = 0; i < 16; i++)
        y.f[i] = a.f[i] > b.f[i] ? a.f[i] : b.f[i];
    return y;
}

static inline v16 v16_min(v16 a, v16 b)
{
    v16 y;

    for (int i = 0; i < 16; i++)
        y.f[i] = a.f[i] < b.f[i] ? a.f[i] : b.f[i];
    return y;
}

/* Scales in two steps, since 2^n itself may be out of range: only the second one can round. The
   low bits of 1.5 * 2^23 + n are the integer n (whatever they are for a NaN, a NaN comes
   out). */
static inline float scale2_lane(float a, float n)
{
    float shifted = n + 0x1.8p23f, x, y;
    uint32_t bits;

    memcpy(&bits, &shifted, sizeof(bits));
    int32_t e = (int32_t)(bits - 0x4B400000u), first = e >> 1;
    uint32_t low = ((uint32_t)first + 127u) << 23, high = ((uint32_t)(e - first) + 127u) << 23;

    memcpy(&x, &low, sizeof(x));
    memcpy(&y, &high, sizeof(y));
    return a * x * y;
}

static inline v16 v16_scale2(v16 a, v16 n)
{
    v16 y;

    for (int i = 0; i < 16; i++)
        y.f[i] = scale2_lane(a.f[i], n.f[i]);
    return y;
}

static inline v16 v16_split2(v16 a, v16 *n)
{
    for (int i = 0; i < 16; i++) {
        uint32_t bits;

        memcpy(&bits, &a.f[i], sizeof(bits));
        n->f[i] = (float)((int32_t)(bits >> 23) - 127);
        bits = (bits & 0x7FFFFFu) | 127u << 23;
        memcpy(&a.f[i], &bits, sizeof(bits));
    }
    return a;
}

static inline v16m v16_less(v16 a, v16 b)
{
    v16m y;

    for (int i = 0; i < 16; i++)
        y.b[i] = a.f[i] < b.f[i];
    return y;
}

static inline v16m v16_unordered(v16 a, v16 b)
{
    v16m y;

    for (int i = 0; i < 16; i++)
        y.b[i] = a.f[i] != a.f[i] || b.f[i] != b.f[i];
    return y;
}

static inline v16 v16_select(v16m m, v16 a, v16 b)
{
    v16 y;

    for (int i = 0; i < 16; i++)
        y.f[i] = m.b[i] ? a.f[i] : b.f[i];
    return y;
}

static inline float v16_sum(v16 a)
{
    for (int step = 8; step > 0; step /= 2) {
        for (int i = 0; i < step; i++)
            a.f[i] = a.f[i] + a.f[i + step];
    }
    return a.f[0];
}

static inline v8d v8d_zero(void)
{
    v8d y;

    for (int i = 0; i < 8; i++)
        y.d[i] = 0.0;
    return y;
}

static inline v8d v8d_add(v8d a, v8d b)
{
    v8d y;

    for (int i = 0; i < 8; i++)
        y.d[i] = a.d[i] + b.d[i];
    return y;
}

static inline v8d v8d_mul(v8d a, v8d b)
{
    v8d y;

    for (int i = 0; i < 8; i++)
        y.d[i] = a.d[i] * b.d[i];
    return y;
}

static inline v8d v8d_low(v16 a)
{
    v8d y;

    for (int i = 0; i < 8; i++)
        y.d[i] = (double)a.f[i];
    return y;
}

static inline v8d v8d_high(v16 a)
{
    v8d y;

    for (int i = 0; i < 8; i++)
        y.d[i] = (double)a.f[i + 8];
    return y;
}

static inline double v8d_sum(v8d a)
{
    for (int step = 4; step > 0; step /= 2) {
        for (int i = 0; i < step; i++)
            a.d[i] = a.d[i] + a.d[i + step];
    }
    return a.d[0];
}

#include "kernels/cpu/vec_portable_int_internal.h"

#endif

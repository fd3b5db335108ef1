/*
 * core/numerics/draw.h - random numbers of each distribution from their random words
 * (core/numerics/random.h): for core's own file, and for GPU kernels, which have the same bits
 * by the same operations. Constants are in decimal with as many digits as the float needs,
 * since C++ before 2017 has no hexadecimal ones.
 */
#ifndef WF_CORE_NUMERICS_DRAW_H
#define WF_CORE_NUMERICS_DRAW_H

#include "core/numerics/random.h"
#include <math.h>
#include <string.h>

WF_HOST_DEVICE static inline void wf_draw_round(uint32_t c[4], uint32_t k0, uint32_t k1)
{
    uint64_t a = (uint64_t)c[0] * 0xD2511F53u, b = (uint64_t)c[2] * 0xCD9E8D57u;

    c[0] = (uint32_t)(b >> 32) ^ c[1] ^ k0;
    c[1] = (uint32_t)b;
    c[2] = (uint32_t)(a >> 32) ^ c[3] ^ k1;
    c[3] = (uint32_t)a;
}

WF_HOST_DEVICE static inline void wf_draw_words(const uint32_t counter[4], uint64_t key,
                                                uint32_t out[4])
{
    uint32_t c[4] = {counter[0], counter[1], counter[2], counter[3]};
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);

    for (int i = 0; i < 10; i++) {
        wf_draw_round(c, k0, k1);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    for (int i = 0; i < 4; i++)
        out[i] = c[i];
}

/* Returns a uniform number in [0, 1), a multiple of 2^-24. */
WF_HOST_DEVICE static inline float wf_draw_uniform(uint32_t word)
{
    return (float)(word >> 8) * 5.9604645e-08f;
}

/*
 * The functions that follow are those of kernels/cpu/simd/random.c for one number, with
 * the same bits. Polynomials are minimax, after exact reductions:
 *
 *     log(2^k (1 + f)) = k log 2 + f + f^2 p(f), sqrt(1/2) <= 1 + f < sqrt(2)
 *     sin r = r + r^3 p(r^2), cos r = 1 + r^2 p(r^2), |r| <= pi / 4
 */
WF_HOST_DEVICE static inline float wf_draw_float_of(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

WF_HOST_DEVICE static inline uint32_t wf_draw_bits_of(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* Returns word + 1/2, rounded once. */
WF_HOST_DEVICE static inline float wf_draw_centre(uint32_t word)
{
    return fmaf((float)(word >> 16), 65536.0f, (float)(word & 0xFFFFu) + 0.5f);
}

WF_HOST_DEVICE static inline float wf_draw_log_of(float k, float f)
{
    float p = -0.07634493f;

    p = fmaf(p, f, 0.12761575f);
    p = fmaf(p, f, -0.13160183f);
    p = fmaf(p, f, 0.14201759f);
    p = fmaf(p, f, -0.16623357f);
    p = fmaf(p, f, 0.20001227f);
    p = fmaf(p, f, -0.2500082f);
    p = fmaf(p, f, 0.3333333f);
    p = fmaf(p, f, -0.5f);
    return fmaf(k, 0.6931472f, fmaf(f * f, p, f));
}

/* Splits x > 0 into 2^k (1 + f). */
WF_HOST_DEVICE static inline float wf_draw_split(float x, float *f)
{
    uint32_t shifted = wf_draw_bits_of(x) + (0x3F800000u - 0x3F3504F3u);

    *f = wf_draw_float_of((shifted & 0x7FFFFFu) + 0x3F3504F3u) - 1.0f;
    return (float)(shifted >> 23) - 127.0f;
}

/* Returns log of (word + 1/2) / 2^32: near 1 from the exact distance to it. */
WF_HOST_DEVICE static inline float wf_draw_log_word(uint32_t word)
{
    float f, k = wf_draw_split(wf_draw_centre(word), &f);

    if (k == 32.0f)
        f = wf_draw_centre(~word) * -2.3283064e-10f;
    return wf_draw_log_of(k - 32.0f, f);
}

/*
 * Draws two normal numbers (Box and Muller): radius sqrt(-2 log u) with u = (first word + 1/2)
 * / 2^32, angle (second word) / 2^32 full circles, as the nearest quarter circle and the
 * remainder, which integers give exactly.
 */
WF_HOST_DEVICE static inline void wf_draw_normals(uint32_t first, uint32_t second, float out[2])
{
    float radius = sqrtf(wf_draw_log_word(first) * -2.0f), r, z, x, y;
    uint32_t shifted = second + 0x20000000u, quarter = shifted >> 30;
    float s = -0.00019515282f, c = 2.4433157e-05f;

    r = (float)((int32_t)(shifted & 0x3FFFFFFFu) - 0x20000000) * 1.4629181e-09f;
    z = r * r;
    s = fmaf(s, z, 0.00833216f);
    s = fmaf(s, z, -0.16666655f);
    s = fmaf(r * z, s, r);
    c = fmaf(c, z, -0.0013887316f);
    c = fmaf(c, z, 0.041666646f);
    c = fmaf(c, z, -0.5f);
    c = fmaf(c, z, 1.0f);
    x = radius * (quarter & 1 ? s : c);
    y = radius * (quarter & 1 ? c : s);
    out[0] = quarter == 1 || quarter == 2 ? -x : x;
    out[1] = quarter & 2 ? -y : y;
}

/* Returns the normal quantile of half of 1 + y, where 1 + y = low and 1 - y = high. */
WF_HOST_DEVICE static inline float wf_draw_quantile(float y, float low, float high)
{
    float k, f, w, t, p;

    k = wf_draw_split(low * high, &f);
    w = -wf_draw_log_of(k, f);
    w = w > 0.0f ? w : 0.0f;
    if (w >= 5.0f) {
        p = 2.9214638e-05f;
        t = sqrtf(w) - 3.75f;
        p = fmaf(p, t, -0.00017116744f);
        p = fmaf(p, t, 0.00034691487f);
        p = fmaf(p, t, -0.00036329805f);
        p = fmaf(p, t, 0.00063628145f);
        p = fmaf(p, t, -0.0018148156f);
        p = fmaf(p, t, 0.0029563063f);
        p = fmaf(p, t, 1.4264847f);
        p = fmaf(p, t, 5.073494f);
        return y * p;
    }
    p = 4.035571e-08f;
    t = w - 2.5f;
    p = fmaf(p, t, 4.8610195e-07f);
    p = fmaf(p, t, -4.990581e-06f);
    p = fmaf(p, t, -6.217967e-06f);
    p = fmaf(p, t, 0.0003091503f);
    p = fmaf(p, t, -0.0017730102f);
    p = fmaf(p, t, -0.005908171f);
    p = fmaf(p, t, 0.34880266f);
    p = fmaf(p, t, 2.1233137f);
    return y * p;
}

WF_HOST_DEVICE static inline float wf_draw_truncated(const wf_truncated *t, uint32_t word)
{
    float u = wf_draw_centre(word) * 2.3283064e-10f,
          rest = wf_draw_centre(~word) * 2.3283064e-10f;
    float x = wf_draw_quantile(fmaf(u, t->span, t->first), fmaf(u, t->span, t->below),
                               fmaf(rest, t->span, t->above));

    x = t->mean + t->deviation * x;
    x = x > t->low ? x : t->low;
    return x < t->high ? x : t->high;
}

#endif

/*
 * core/random.c - Philox4x32-10 and the distributions made of it.
 */
#include "core/random.h"
#include "core/bits.h"
#include "core/math.h"
#include <string.h>

static inline void philox_round(uint32_t c[4], uint32_t k0, uint32_t k1)
{
    uint64_t a = (uint64_t)c[0] * 0xD2511F53u, b = (uint64_t)c[2] * 0xCD9E8D57u;

    c[0] = (uint32_t)(b >> 32) ^ c[1] ^ k0;
    c[1] = (uint32_t)b;
    c[2] = (uint32_t)(a >> 32) ^ c[3] ^ k1;
    c[3] = (uint32_t)a;
}

void wf_philox(const uint32_t counter[4], uint64_t key, uint32_t out[4])
{
    uint32_t c[4] = {counter[0], counter[1], counter[2], counter[3]};
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);

    for (int i = 0; i < 10; i++) {
        philox_round(c, k0, k1);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    for (int i = 0; i < 4; i++)
        out[i] = c[i];
}

static void block(uint64_t key, uint64_t stream, uint64_t index, uint32_t word[4])
{
    uint32_t counter[4] = {(uint32_t)index, (uint32_t)(index >> 32), (uint32_t)stream,
                           (uint32_t)(stream >> 32)};

    wf_philox(counter, key, word);
}

uint64_t wf_random_key(uint64_t seed, uint32_t purpose)
{
    return wf_mix64(wf_mix64(seed) + purpose);
}

static void uniform_block(uint64_t key, uint64_t stream, uint64_t index, float out[4])
{
    uint32_t word[4];

    block(key, stream, index, word);
    for (int i = 0; i < 4; i++)
        out[i] = (float)(word[i] >> 8) * 0x1p-24f;
}

/*
 * The functions down to `quantile` are those of kernels/cpu/simd/random.c for one number, with
 * the same bits. Polynomials are minimax, after exact reductions:
 *
 *     log(2^k (1 + f)) = k log 2 + f + f^2 p(f), sqrt(1/2) <= 1 + f < sqrt(2)
 *     sin r = r + r^3 p(r^2), cos r = 1 + r^2 p(r^2), |r| <= pi / 4
 */
static float float_of_bits(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint32_t bits_of_float(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static float fused(float a, float b, float c)
{
    return __builtin_fmaf(a, b, c);
}

/* word + 1/2, rounded once. */
static float centre(uint32_t word)
{
    return fused((float)(word >> 16), 0x1p16f, (float)(word & 0xFFFFu) + 0.5f);
}

static float log_of(float k, float f)
{
    float p = -0x1.38b576p-4f;

    p = fused(p, f, 0x1.055b68p-3f);
    p = fused(p, f, -0x1.0d8542p-3f);
    p = fused(p, f, 0x1.22da1ep-3f);
    p = fused(p, f, -0x1.547244p-3f);
    p = fused(p, f, 0x1.99a008p-3f);
    p = fused(p, f, -0x1.000226p-2f);
    p = fused(p, f, 0x1.555554p-2f);
    p = fused(p, f, -0.5f);
    return fused(k, 0x1.62e43p-1f, fused(f * f, p, f));
}

/* x > 0 is 2^k (1 + f). */
static float split(float x, float *f)
{
    uint32_t shifted = bits_of_float(x) + (0x3F800000u - 0x3F3504F3u);

    *f = float_of_bits((shifted & 0x7FFFFFu) + 0x3F3504F3u) - 1.0f;
    return (float)(shifted >> 23) - 127.0f;
}

/* log of (word + 1/2) / 2^32: near 1 from the exact distance to it */
static float log_word(uint32_t word)
{
    float f, k = split(centre(word), &f);

    if (k == 32.0f)
        f = centre(~word) * -0x1p-32f;
    return log_of(k - 32.0f, f);
}

/*
 * Radius sqrt(-2 log u) with u = (first word + 1/2) / 2^32, angle (second word) / 2^32 turns,
 * as the nearest quarter turn and the rest, which integers give exactly.
 */
static void normal_pair(uint32_t first, uint32_t second, float out[2])
{
    float radius = __builtin_sqrtf(log_word(first) * -2.0f), r, z, x, y;
    uint32_t shifted = second + 0x20000000u, quarter = shifted >> 30;
    float s = -0x1.9943ep-13f, c = 0x1.99eb9cp-16f;

    r = (float)((int32_t)(shifted & 0x3FFFFFFFu) - 0x20000000) * 0x1.921fb6p-30f;
    z = r * r;
    s = fused(s, z, 0x1.11073ap-7f);
    s = fused(s, z, -0x1.555546p-3f);
    s = fused(r * z, s, r);
    c = fused(c, z, -0x1.6c0c34p-10f);
    c = fused(c, z, 0x1.55554ap-5f);
    c = fused(c, z, -0.5f);
    c = fused(c, z, 1.0f);
    x = radius * (quarter & 1 ? s : c);
    y = radius * (quarter & 1 ? c : s);
    out[0] = quarter == 1 || quarter == 2 ? -x : x;
    out[1] = quarter & 2 ? -y : y;
}

/* The normal number below which lies half of 1 + y, where 1 + y = low and 1 - y = high. */
static float quantile(float y, float low, float high)
{
    float k, f, w, t, p;

    k = split(low * high, &f);
    w = -log_of(k, f);
    w = w > 0.0f ? w : 0.0f;
    if (w >= 5.0f) {
        p = 0x1.ea23eap-16f;
        t = __builtin_sqrtf(w) - 3.75f;
        p = fused(p, t, -0x1.66f6d2p-13f);
        p = fused(p, t, 0x1.6bc44p-12f);
        p = fused(p, t, -0x1.7cf214p-12f);
        p = fused(p, t, 0x1.4d984p-11f);
        p = fused(p, t, -0x1.dbbe36p-10f);
        p = fused(p, t, 0x1.837d2ep-9f);
        p = fused(p, t, 0x1.6d2e1ap+0f);
        p = fused(p, t, 0x1.44b42p+2f);
        return y * p;
    }
    p = 0x1.5aa726p-25f;
    t = w - 2.5f;
    p = fused(p, t, 0x1.04f958p-21f);
    p = fused(p, t, -0x1.4ee988p-18f);
    p = fused(p, t, -0x1.a147dcp-18f);
    p = fused(p, t, 0x1.442ae6p-12f);
    p = fused(p, t, -0x1.d0c8b4p-10f);
    p = fused(p, t, -0x1.8332aap-8f);
    p = fused(p, t, 0x1.652c86p-2f);
    p = fused(p, t, 0x1.0fc8bep+1f);
    return y * p;
}

/*
 * The share of the normal distribution below x: 1/2 + density(x) (x + x^3/3 + x^5/(3 5) + ...)
 * (Marsaglia, "Evaluating the Normal Distribution", Journal of Statistical Software 11, 2004).
 */
static double share_below(double x)
{
    double term = x, sum = x, last = 0.0;

    if (!(x > -8.5))
        return 0.0;
    if (x > 8.5)
        return 1.0;
    for (double n = 3.0; sum != last; n += 2.0) {
        last = sum;
        term = term * x * x / n;
        sum += term;
    }
    return 0.5 + sum * 0x1.9884533d43651p-2 * wf_exp(-0.5 * x * x);
}

bool wf_truncate(wf_truncated *t, float mean, float deviation, float low, float high)
{
    double a = ((double)low - (double)mean) / (double)deviation;
    double b = ((double)high - (double)mean) / (double)deviation;
    double below = 2.0 * share_below(a), above = 2.0 * share_below(-b);

    *t = (wf_truncated){.mean = mean,
                        .deviation = deviation,
                        .low = low,
                        .high = high,
                        .below = (float)below,
                        .above = (float)above,
                        .span = (float)(2.0 - below - above),
                        .first = (float)(below - 1.0)};
    return deviation > 0.0f && low < high && t->span >= 0.002f;
}

static float truncated(const wf_truncated *t, uint32_t word)
{
    float u = centre(word) * 0x1p-32f, rest = centre(~word) * 0x1p-32f;
    float x = quantile(fused(u, t->span, t->first), fused(u, t->span, t->below),
                       fused(rest, t->span, t->above));

    x = t->mean + t->deviation * x;
    x = x > t->low ? x : t->low;
    return x < t->high ? x : t->high;
}

float wf_random_truncated(const wf_truncated *t, uint64_t key, uint64_t stream, uint64_t index)
{
    uint32_t word[4];

    block(key, stream, index / 4, word);
    return truncated(t, word[index % 4]);
}

static void normal_block(uint64_t key, uint64_t stream, uint64_t index, float out[4])
{
    uint32_t word[4];

    block(key, stream, index, word);
    normal_pair(word[0], word[1], out);
    normal_pair(word[2], word[3], out + 2);
}

float wf_random_uniform(uint64_t key, uint64_t stream, uint64_t index)
{
    float out[4];

    uniform_block(key, stream, index / 4, out);
    return out[index % 4];
}

float wf_random_normal(uint64_t key, uint64_t stream, uint64_t index)
{
    float out[4];

    normal_block(key, stream, index / 4, out);
    return out[index % 4];
}

uint64_t wf_random_below(uint64_t key, uint64_t stream, uint64_t index, uint64_t n)
{
    uint32_t word[4];
    uint64_t low, high;

    /* The upper half of x * n, x of 64 bits: of 32-bit halves, none of the sums overflows. */
    block(key, stream, index, word);
    low = (uint64_t)word[0] * (n & 0xFFFFFFFFu);
    high = (uint64_t)word[0] * (n >> 32) + (low >> 32);
    low = (uint64_t)word[1] * (n & 0xFFFFFFFFu) + (high & 0xFFFFFFFFu);
    return (uint64_t)word[1] * (n >> 32) + (high >> 32) + (low >> 32);
}

static void fill(float *dst, int64_t n, uint64_t key, uint64_t stream, uint64_t first,
                 void (*make)(uint64_t key, uint64_t stream, uint64_t index, float out[4]))
{
    float out[4];
    int64_t i = 0;

    while (i < n) {
        uint64_t index = first + (uint64_t)i;

        if (index % 4 == 0 && n - i >= 4) {
            make(key, stream, index / 4, dst + i);
            i += 4;
        } else {
            make(key, stream, index / 4, out);
            for (uint64_t k = index % 4; k < 4 && i < n; k++)
                dst[i++] = out[k];
        }
    }
}

void wf_random_fill_uniform(float *dst, int64_t n, uint64_t key, uint64_t stream,
                            uint64_t first)
{
    fill(dst, n, key, stream, first, uniform_block);
}

void wf_random_fill_normal(float *dst, int64_t n, uint64_t key, uint64_t stream, uint64_t first)
{
    fill(dst, n, key, stream, first, normal_block);
}

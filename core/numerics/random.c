/*
 * core/numerics/random.c - Philox4x32-10 and the distributions made of it.
 */
#include "core/numerics/random.h"
#include "core/numerics/bits.h"
#include "core/numerics/draw.h"
#include "core/numerics/math.h"

void wf_philox(const uint32_t counter[4], uint64_t key, uint32_t out[4])
{
    wf_draw_words(counter, key, out);
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
        out[i] = wf_draw_uniform(word[i]);
}

/*
 * Returns the share of the normal distribution below x: 1/2 + density(x) (x + x^3/3 + x^5/(3 5)
 * + ...) (Marsaglia, "Evaluating the Normal Distribution", Journal of Statistical Software 11,
 * 2004).
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
    return 0.5 + sum * 0x1.9884533d43651p-2 * wf_expd(-0.5 * x * x);
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

float wf_random_truncated(const wf_truncated *t, uint64_t key, uint64_t stream, uint64_t index)
{
    uint32_t word[4];

    block(key, stream, index / 4, word);
    return wf_draw_truncated(t, word[index % 4]);
}

static void normal_block(uint64_t key, uint64_t stream, uint64_t index, float out[4])
{
    uint32_t word[4];

    block(key, stream, index, word);
    wf_draw_normals(word[0], word[1], out);
    wf_draw_normals(word[2], word[3], out + 2);
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

/*
 * core/random.c - Philox4x32-10 and the distributions made of it.
 */
#include "core/random.h"
#include "core/bits.h"
#include "core/math.h"

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
 * Radius sqrt(-2 log u) with u = (first word + 1/2) / 2^32, angle (second word) / 2^32 turns,
 * as the nearest quarter turn and the rest, which integers give exactly.
 */
static void normal_pair(uint32_t first, uint32_t second, float out[2])
{
    double radius = __builtin_sqrt(-2.0 * wf_log(((double)first + 0.5) * 0x1p-32));
    uint32_t shifted = second + 0x20000000u, quarter = shifted >> 30;
    double turn = ((double)(shifted & 0x3FFFFFFFu) - 0x1p29) * 0x1p-32, sine, cosine, x, y;

    wf_sincos(turn * 0x1.921fb54442d18p2, &sine, &cosine);
    x = quarter & 1 ? -sine : cosine;
    y = quarter & 1 ? cosine : sine;
    out[0] = (float)(quarter & 2 ? -radius * x : radius * x);
    out[1] = (float)(quarter & 2 ? -radius * y : radius * y);
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

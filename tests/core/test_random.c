/*
 * tests/core/test_random.c - Philox against the known answers of its authors, and what is made
 * of it: ranges, moments, frequencies, and bulk forms equal to single ones.
 */
#include "core/numerics/random.h"
#include "tests/harness.h"
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* From kat_vectors of Random123: "philox4x32 10". */
static void known_answers(void)
{
    static const struct {
        uint32_t counter[4];
        uint64_t key;
        uint32_t right[4];
    } kat[] = {
        {{0, 0, 0, 0}, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         0xffffffffffffffff,
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         0x299f31d0a4093822,
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };

    for (int i = 0; i < 3; i++) {
        uint32_t out[4];

        wf_philox(kat[i].counter, kat[i].key, out);
        CU_ASSERT_EQUAL(memcmp(out, kat[i].right, sizeof(out)), 0);
    }
}

static void keys_differ(void)
{
    uint64_t key[64];
    int bits = 0;

    for (uint64_t i = 0; i < 64; i++) {
        key[i] = wf_random_key(i / 4, (uint32_t)(i % 4));
        for (uint64_t j = 0; j < i; j++) {
            CU_ASSERT_NOT_EQUAL(key[i], key[j]);
            bits += __builtin_popcountll((unsigned long long)(key[i] ^ key[j]));
        }
    }
    /* 64 * 63 / 2 pairs of 64 bits: half of 129024 differ, sigma is 180. */
    CU_ASSERT_TRUE(abs(bits - 64512) < 1000);
}

enum { MANY = 1 << 20 };

static float value[MANY];

static void uniform_is_uniform(void)
{
    int64_t bin[256] = {0};
    double chi = 0.0;

    wf_random_fill_uniform(value, MANY, 11, 0, 0);
    for (int i = 0; i < MANY; i++) {
        CU_ASSERT_TRUE_FATAL(value[i] >= 0.0f && value[i] < 1.0f);
        bin[(int)(value[i] * 256.0f)]++;
    }
    for (int i = 0; i < 256; i++) {
        double off = (double)bin[i] - MANY / 256.0;

        chi += off * off / (MANY / 256.0);
    }
    /* 255 degrees of freedom: sigma is 22.6. */
    CU_ASSERT_TRUE(fabs(chi - 255.0) < 90.0);
}

static void normal_is_normal(void)
{
    double moment[5] = {0}, neighbours = 0.0, beyond = 0.0;

    wf_random_fill_normal(value, MANY, 12, 0, 0);
    for (int i = 0; i < MANY; i++) {
        double power = 1.0;

        for (int k = 0; k < 5; k++, power *= (double)value[i])
            moment[k] += power / MANY;
        neighbours += (double)value[i] * (double)value[i ^ 1] / MANY;
        beyond += fabs((double)value[i]) > 1.959964 ? 1.0 / MANY : 0.0;
    }
    /* Five standard deviations each; one is sqrt(1, 2, 15, 96, 2 and 0.0475) / 1024. */
    CU_ASSERT_DOUBLE_EQUAL(moment[1], 0.0, 0.0049);
    CU_ASSERT_DOUBLE_EQUAL(moment[2], 1.0, 0.0069);
    CU_ASSERT_DOUBLE_EQUAL(moment[3], 0.0, 0.0189);
    CU_ASSERT_DOUBLE_EQUAL(moment[4], 3.0, 0.0479);
    CU_ASSERT_DOUBLE_EQUAL(neighbours, 0.0, 0.0069);
    CU_ASSERT_DOUBLE_EQUAL(beyond, 0.05, 0.0011);
}

/* Each normal by the C library's functions, from the words themselves. */
static void normal_is_box_muller(void)
{
    const double turn = 6.283185307179586 * 0x1p-32;

    for (uint32_t i = 0; i < 4000; i++) {
        uint32_t counter[4] = {i / 4, 0, 77, 0}, word[4];
        unsigned pair = i % 4 / 2 * 2;
        double radius, right;

        wf_philox(counter, 13, word);
        radius = sqrt(-2.0 * log((word[pair] + 0.5) * 0x1p-32));
        right = radius * (i % 2 ? sin(word[pair + 1] * turn) : cos(word[pair + 1] * turn));
        CU_ASSERT_DOUBLE_EQUAL((double)wf_random_normal(13, 77, i), right, 1e-6);
    }
}

/* The share of the cut distribution below each number is what its word says, by the C
   library. */
static void truncated_is_the_inverse(void)
{
    static const float range[][4] = {{0, 1, -2, 2},    {0, 0.02f, -0.06f, 0.06f},
                                     {1, 3, -1e9f, 7}, {0, 1, 0.5f, 0.6f},
                                     {0, 1, 3, 9},     {-1, 2, -12, 12}};
    wf_truncated t;

    for (uint64_t k = 0; k < sizeof range / sizeof *range; k++) {
        double m = (double)range[k][0], d = (double)range[k][1], off = 0, moment = 0;
        double a = erfc(((double)range[k][2] - m) / d / sqrt(2)); /* twice the share above */
        double b = erfc(((double)range[k][3] - m) / d / sqrt(2));

        CU_ASSERT_TRUE_FATAL(
            wf_truncate(&t, range[k][0], range[k][1], range[k][2], range[k][3]));
        for (uint32_t i = 0; i < 20000; i++) {
            uint32_t counter[4] = {i / 4, 0, (uint32_t)k, 0}, word[4];
            float x = wf_random_truncated(&t, 19, k, i);
            double z = ((double)x - m) / d, right, density;

            wf_philox(counter, 19, word);
            right = a + (b - a) * ((double)word[i % 4] + 0.5) * 0x1p-32;
            density = sqrt(2 / 3.141592653589793) * exp(-z * z / 2);
            off = fmax(off, fabs(erfc(z / sqrt(2)) - right) / density / (1 + fabs(z)));
            CU_ASSERT_TRUE(x >= range[k][2] && x <= range[k][3]);
            moment +=
                (right - (a + b) / 2) / (a - b) / 20000; /* the moment of a uniform number */
        }
        CU_ASSERT_TRUE(off < 3e-6);
        CU_ASSERT_DOUBLE_EQUAL(moment, 0.0, 5 * sqrt(1.0 / 12 / 20000));
    }
    CU_ASSERT_FALSE(wf_truncate(&t, 0, 1, 4, 5));
    CU_ASSERT_FALSE(wf_truncate(&t, 0, 1, 1, 1));
    CU_ASSERT_FALSE(wf_truncate(&t, 0, 1, NAN, 1));
    CU_ASSERT_FALSE(wf_truncate(&t, 0, NAN, -1, 1));
    CU_ASSERT_FALSE(wf_truncate(&t, 0, -1, -1, 1));
}

/* A fill that begins and ends anywhere is the slice of the whole, and leaves the rest alone. */
static void bulk_equals_single(void)
{
    const uint64_t base = ((uint64_t)1 << 34) - 6; /* the counter's low word overflows inside */

    for (uint64_t first = 0; first < 5; first++) {
        for (int64_t n = 0; n < 12; n++) {
            float u[14], g[14];

            for (int i = 0; i < 14; i++)
                u[i] = g[i] = -99.0f;
            wf_random_fill_uniform(u + 1, n, 14, 3, base + first);
            wf_random_fill_normal(g + 1, n, 14, 3, base + first);
            for (int64_t i = 0; i < n; i++) {
                uint64_t at = base + first + (uint64_t)i;

                CU_ASSERT_EQUAL(u[i + 1], wf_random_uniform(14, 3, at));
                CU_ASSERT_EQUAL(g[i + 1], wf_random_normal(14, 3, at));
            }
            CU_ASSERT_TRUE(u[0] == -99.0f && u[n + 1] == -99.0f);
            CU_ASSERT_TRUE(g[0] == -99.0f && g[n + 1] == -99.0f);
        }
    }
}

static void streams_are_apart(void)
{
    int same = 0;

    for (uint64_t i = 0; i < 1000; i++) {
        same += wf_random_uniform(15, 0, i) == wf_random_uniform(15, 1, i);
        same += wf_random_uniform(15, 0, i) == wf_random_uniform(15, (uint64_t)1 << 32, i);
        same += wf_random_uniform(15, 0, i) == wf_random_uniform(16, 0, i);
        same += wf_random_uniform(15, 0, i) == wf_random_uniform(15, 0, i + 1000);
    }
    CU_ASSERT_TRUE(same <= 2);
}

static void below_is_below(void)
{
    static const uint64_t limit[] = {1, 2, 3, 1000003, (uint64_t)1 << 32, UINT64_MAX};
    int64_t bin[7] = {0};

    for (int k = 0; k < 6; k++) {
        double mean = 0.0;

        for (uint64_t i = 0; i < 10000; i++) {
            uint64_t x = wf_random_below(17, 5, i, limit[k]);

            CU_ASSERT_TRUE_FATAL(x < limit[k]);
            mean += (double)x / (double)limit[k] / 10000.0;
        }
        /* Near 1/2 less half a step; sigma is at most 0.005. */
        CU_ASSERT_DOUBLE_EQUAL(mean, 0.5 - 0.5 / (double)limit[k], 0.025);
    }
    for (uint64_t i = 0; i < 70000; i++)
        bin[wf_random_below(18, 0, i, 7)]++;
    for (int i = 0; i < 7; i++)
        CU_ASSERT_TRUE(llabs(bin[i] - 10000) < 500);
}

static uint32_t bits_of(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

/* The same numbers on every machine and compiler, forever: models depend on them. */
static void bits_are_fixed(void)
{
    wf_truncated t;
    uint64_t key = wf_random_key(2024, WF_RANDOM_INIT), hash = key;

    wf_random_fill_normal(value, 100000, key, 3, 5);
    wf_random_fill_uniform(value + 100000, 100000, key, 4, 7);
    for (int i = 0; i < 200000; i++)
        hash = (hash ^ bits_of(value[i])) * 0x100000001B3u;
    wf_truncate(&t, 0.0f, 1.0f, -3.0f, 2.0f);
    for (uint64_t i = 0; i < 100000; i++)
        hash = (hash ^ bits_of(wf_random_truncated(&t, key, 6, i))) * 0x100000001B3u;
    hash ^= wf_random_below(key, 5, 9, UINT64_MAX);
    CU_ASSERT_EQUAL(hash, 0x59780ff671a25193u);
}

int main(void)
{
    static const wf_test tests[] = {{"known answers", known_answers},
                                    {"keys differ", keys_differ},
                                    {"uniform", uniform_is_uniform},
                                    {"normal", normal_is_normal},
                                    {"normal is Box-Muller", normal_is_box_muller},
                                    {"truncated is the inverse", truncated_is_the_inverse},
                                    {"bulk equals single", bulk_equals_single},
                                    {"streams are apart", streams_are_apart},
                                    {"below", below_is_below},
                                    {"bits are the same everywhere", bits_are_fixed},
                                    {NULL, NULL}};

    return wf_test_main("random", tests);
}

/*
 * tests/core/test_dynamic8.c - 8 bits a number against a plain oracle: codes, scales and
 * numbers, whatever part of a row is here, and that storing what was read changes nothing.
 */
#include "core/numerics/dynamic8.h"
#include "tests/core/core_harness.h"
#include <math.h>
#include <stdlib.h>

enum { SIZE = 5000 };

static uint32_t chance(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* The nearest of levels in ascending order, by looking at all means of neighbours. */
static int code_of(const float *level, float x)
{
    int code = 0;

    for (int i = 0; i + 1 < WF_DYNAMIC8_LEVELS; i++)
        code += (level[i] + level[i + 1]) / 2 < x;
    return code;
}

/* Ascending, from -0.99 or 0 to 1, with as many levels between powers of ten as a dynamic
   exponent leaves, and all bits those of bitsandbytes' create_dynamic_map, by a hash (FNV-1a
   over words). */
static void levels(void)
{
    static const float *const maps[] = {wf_dynamic8_signed, wf_dynamic8_unsigned};
    static const uint64_t theirs[] = {0x690ca6ad558a2475, 0xa9aaf4b4f33a51e3};

    for (int u = 0; u < 2; u++) {
        uint64_t hash = 14695981039346656037u;
        int above[8] = {0};

        for (int i = 0; i < WF_DYNAMIC8_LEVELS; i++) {
            uint32_t bits;

            memcpy(&bits, &maps[u][i], sizeof bits);
            hash = (hash ^ bits) * 1099511628211u;
            CU_ASSERT(i == 0 || maps[u][i - 1] < maps[u][i]);
            for (int k = 0; k < 7; k++)
                above[k] += (double)maps[u][i] > pow(10, -1 - k);
        }
        for (int k = 0; k < 7; k++)
            CU_ASSERT_EQUAL(above[k], (u ? 256 : 128) - (1 << (u ? 7 - k : 6 - k)) + 1);
        CU_ASSERT_EQUAL(hash, theirs[u]);
        CU_ASSERT_EQUAL(maps[u][WF_DYNAMIC8_LEVELS - 1], 1);
        CU_ASSERT_EQUAL(maps[u][u ? 0 : 127], 0);
    }
    CU_ASSERT_EQUAL(wf_dynamic8_signed[126], -wf_dynamic8_signed[128]);
}

/* Means and their neighbours, every power of two and numbers of any size: the code is the
   nearest level's, the lower one's at a mean. */
static void codes(void)
{
    static const float *const maps[] = {wf_dynamic8_signed, wf_dynamic8_unsigned};

    for (int u = 0; u < 2; u++) {
        wf_dynamic8_map map;
        uint32_t state = 5;
        int wrong = 0;

        wf_dynamic8_map_make(&map, maps[u]);
        for (int i = 0; i + 1 < WF_DYNAMIC8_LEVELS; i++)
            for (int k = 0; k < 3; k++) {
                float mean = (maps[u][i] + maps[u][i + 1]) / 2, x = mean;

                x = k ? nextafterf(mean, k == 1 ? -2.0f : 2.0f) : mean;
                wrong += wf_dynamic8_code(&map, x) != code_of(maps[u], x);
                wrong += wf_dynamic8_code(&map, x) != i + (k == 2);
            }
        for (int i = 0; i < 200000; i++) {
            float x = (float)chance(&state) * 0x1p-24f * ldexpf(1, -(int)(chance(&state) % 40));

            x = !u && chance(&state) % 2 ? -x : x;
            wrong += wf_dynamic8_code(&map, x) != code_of(maps[u], x);
        }
        wrong += wf_dynamic8_code(&map, -0.0f) != code_of(maps[u], 0);
        wrong += wf_dynamic8_code(&map, 1) != 255;
        CU_ASSERT_EQUAL(wrong, 0);
    }
}

static void fill(float *x, int64_t n, bool positive)
{
    uint32_t state = 9;

    for (int64_t i = 0; i < n; i++) {
        float magnitude = (float)chance(&state) * ldexpf(1, -24 - (int)(chance(&state) % 30));

        x[i] = positive || chance(&state) % 2 ? magnitude : -magnitude;
    }
    for (int64_t i = 0; i < n && i < 40; i++)
        x[i] = i % 2 && !positive ? -0.0f : 0; /* nothing but zeros, where rows are short */
    if (n > 60)
        x[50] = positive ? 2 : -2, x[51] = 2; /* the positive one is the scale */
    if (n > 400)
        x[300] = 1e-38f;
}

/* A row as the rule says it: blocks of at most 256 in each eighth. */
static void store_plainly(int64_t size, int64_t grain, const float *level, const float *x,
                          float *number, int64_t *bytes)
{
    *bytes = size;
    for (int64_t l = 0; l < 8; l++) {
        int64_t end = grain * ((l + 1) * (size / grain) / 8), n;

        for (int64_t i = grain * (l * (size / grain) / 8); i < end; i += n) {
            float scale = 0;

            n = end - i < 256 ? end - i : 256;
            for (int64_t k = i; k < i + n; k++)
                if (fabsf(x[k]) > fabsf(scale) || (fabsf(x[k]) == fabsf(scale) && x[k] > scale))
                    scale = x[k];
            scale = fabsf(scale) < 1e-30f ? 0 : scale;
            for (int64_t k = i; k < i + n; k++)
                number[k] =
                    scale == 0 ? 0 : level[code_of(level, x[k] * (1 / scale))] * scale + 0.0f;
            *bytes += 4;
        }
    }
}

/* Parts of 1 to 8 ranks have the numbers of the whole, and what they stand for is stored as
   itself. */
static void check_rows(int64_t size, int64_t grain, bool positive)
{
    static float x[SIZE], want[SIZE], got[SIZE], again[SIZE];
    static uint8_t bytes[2 * SIZE + 64];
    const float *level = positive ? wf_dynamic8_unsigned : wf_dynamic8_signed;
    int64_t all;

    fill(x, size, positive);
    store_plainly(size, grain, level, x, want, &all);
    for (int64_t parts = 1; parts <= 8; parts *= 2) {
        int64_t sum = 0;

        for (int64_t p = 0; p < parts; p++) {
            int64_t start = wf_cut(size, grain, parts, p),
                    n = wf_cut(size, grain, parts, p + 1) - start;
            const wf_dynamic8_row row = wf_dynamic8_row_of(size, grain, start, n);

            sum += (int64_t)wf_dynamic8_row_bytes(&row);
            wf_dynamic8_pack(&row, level, x + start, 1, bytes);
            wf_dynamic8_widen(&row, level, bytes, 1, got + start);
            wf_dynamic8_pack(&row, level, got + start, 1, bytes);
            wf_dynamic8_widen(&row, level, bytes, 1, again + start);
        }
        CU_ASSERT_EQUAL(sum, all);
        CU_ASSERT_EQUAL(memcmp(got, want, (size_t)size * sizeof *got), 0);
        CU_ASSERT_EQUAL(memcmp(again, got, (size_t)size * sizeof *got), 0);
    }
}

static void rows(void)
{
    static const int64_t sizes[][2] = {{1, 1},      {16, 1},    {24, 1},   {48, 8},
                                       {576, 64},   {576, 1},   {1536, 1}, {4999, 1},
                                       {4096, 128}, {2304, 256}};

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int positive = 0; positive < 2; positive++)
            check_rows(sizes[i][0], sizes[i][1], positive);
}

/* Rows one behind the other are those rows. */
static void several_rows(void)
{
    static float x[3 * 100], got[3 * 100], one[100];
    static uint8_t bytes[3 * 200];
    const wf_dynamic8_row row = wf_dynamic8_row_of(100, 1, 0, 100);

    fill(x, 300, false);
    CU_ASSERT_EQUAL(wf_dynamic8_row_bytes(&row), 100 + 8 * 4);
    wf_dynamic8_pack(&row, wf_dynamic8_signed, x, 3, bytes);
    wf_dynamic8_widen(&row, wf_dynamic8_signed, bytes, 3, got);
    for (int r = 0; r < 3; r++) {
        wf_dynamic8_pack(&row, wf_dynamic8_signed, x + 100 * r, 1, bytes);
        wf_dynamic8_widen(&row, wf_dynamic8_signed, bytes, 1, one);
        CU_ASSERT_EQUAL(memcmp(got + 100 * r, one, sizeof one), 0);
    }
}

/* Nothing that is not finite is taken for a number. */
static void not_finite(void)
{
    float x[16] = {1, -2, 3}, y[16];
    uint8_t bytes[16 + 32];
    const wf_dynamic8_row row = wf_dynamic8_row_of(16, 16, 0, 16);

    x[5] = NAN;
    wf_dynamic8_pack(&row, wf_dynamic8_signed, x, 1, bytes);
    wf_dynamic8_widen(&row, wf_dynamic8_signed, bytes, 1, y);
    CU_ASSERT(isnan(y[5]));
    x[5] = INFINITY;
    wf_dynamic8_pack(&row, wf_dynamic8_signed, x, 1, bytes);
    wf_dynamic8_widen(&row, wf_dynamic8_signed, bytes, 1, y);
    CU_ASSERT(!isfinite(y[5]));
}

int main(void)
{
    static const wf_test tests[] = {{"levels", levels},
                                    {"codes", codes},
                                    {"rows", rows},
                                    {"several rows", several_rows},
                                    {"not finite", not_finite},
                                    {NULL, NULL}};

    return wf_test_main("dynamic8", tests);
}

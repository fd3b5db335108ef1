/*
 * tests/core/test_nf4.c - NF4 against a plain oracle over flat arrays: codes, scales and
 * numbers, whatever part of a matrix is stored.
 */
#include "core/nf4_tensor.h"
#include "core/numerics/bf16.h"
#include "tests/core/core_harness.h"
#include <math.h>
#include <stdlib.h>

/* A matrix as bitsandbytes would store it: codes one in a byte. */
typedef struct oracle {
    int64_t height, width, n, blocks, nested;
    float *value, *absmax, *scale_max, *number, offset;
    uint8_t *code, *scale_code;
} oracle;

static float least(float x)
{
    return x < 1e-38f ? 1e-38f : x;
}

/* Returns the nearest of levels in ascending order, by the means of all neighbours. */
static uint8_t level_of(const float *level, int n, float x, float most, bool full)
{
    int code = 0;

    x = full ? x * (1.0f / least(most)) : x / least(most);
    x = fminf(fmaxf(x, -1), 1);
    for (int i = 0; i + 1 < n; i++)
        code += (level[i] + level[i + 1]) / 2 < x;
    return (uint8_t)code;
}

static float greatest(const float *x, int64_t from, int64_t end, float less)
{
    float most = 0;

    for (int64_t i = from; i < end; i++)
        most = fmaxf(most, fabsf(x[i] - less));
    return most;
}

static int64_t least_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void *room(int64_t n, size_t element)
{
    void *p = calloc((size_t)n + 1, element);

    CU_ASSERT_PTR_NOT_NULL_FATAL(p);
    return p;
}

static void store_scales(oracle *o)
{
    double sum = 0;

    for (int64_t b = 0; b < o->blocks; b++)
        sum += (double)o->absmax[b];
    o->offset = (float)(sum / (double)o->blocks);
    for (int64_t k = 0; k < o->nested; k++) {
        int64_t end = least_of(o->blocks, (k + 1) * 256);
        bool full = end == (k + 1) * 256;
        float most = greatest(o->absmax, k * 256, end, o->offset);

        o->scale_max[k] = full ? most : least(most);
        for (int64_t b = k * 256; b < end; b++)
            o->scale_code[b] =
                level_of(wf_dynamic8_signed, 256, o->absmax[b] - o->offset, most, full);
    }
}

static oracle store(int64_t height, int64_t width, const float *value)
{
    int64_t n = height * width, blocks = (n + 63) / 64, nested = (blocks + 255) / 256;
    oracle o = {.height = height, .width = width, .n = n, .blocks = blocks, .nested = nested};

    o.value = room(n, sizeof(float));
    o.absmax = room(blocks, sizeof(float));
    o.scale_max = room(nested, sizeof(float));
    o.number = room(n, sizeof(float));
    o.code = room(n, 1);
    o.scale_code = room(blocks, 1);
    memcpy(o.value, value, (size_t)n * sizeof *value);
    for (int64_t b = 0; b < blocks; b++) {
        o.absmax[b] = greatest(value, b * 64, least_of(n, b * 64 + 64), 0);
        for (int64_t i = b * 64; i < least_of(n, b * 64 + 64); i++)
            o.code[i] = level_of(wf_nf4_levels, 16, value[i], o.absmax[b], b * 64 + 64 <= n);
    }
    store_scales(&o);
    for (int64_t i = 0; i < n; i++) {
        float by = wf_dynamic8_signed[o.scale_code[i / 64]] * o.scale_max[i / 16384];

        o.number[i] = wf_nf4_levels[o.code[i]] * (by + o.offset);
    }
    return o;
}

static void drop(oracle *o)
{
    free(o->value);
    free(o->absmax);
    free(o->scale_max);
    free(o->number);
    free(o->code);
    free(o->scale_code);
}

static uint32_t chance(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Numbers that test a rule each, by blocks: usual ones, zeros of both signs, means of levels
   and their neighbours, denormals, the largest and the smallest floats, one number among
   zeros. */
static void fill(float *x, int64_t n)
{
    uint32_t state = 7;

    for (int64_t i = 0; i < n; i++) {
        uint32_t r = chance(&state);
        float usual = ((float)(r % 4096) - 2047.5f) / 1e5f, sign = r & 1 ? -1.0f : 1.0f;
        int level = (int)(i % 15);
        float mean = (wf_nf4_levels[level] + wf_nf4_levels[level + 1]) / 2;

        switch (i / 64 % 8) {
        case 1:
            x[i] = sign * 0.0f;
            break;
        case 2:
            x[i] = i % 64 == 7 ? -1 : nextafterf(mean, (float)((int)(r % 3) - 1) * 2);
            break;
        case 3:
            x[i] = sign * (float)(r % 64) * 1e-41f;
            break;
        case 4:
            x[i] = i % 64 == 9 ? 3e38f : usual * 1e38f;
            break;
        case 5:
            x[i] = i % 64 == 63 ? -0.25f : 0;
            break;
        case 6:
            x[i] = i % 64 == 1 ? 0.5f : mean / 2;
            break;
        default:
            x[i] = usual;
            break;
        }
    }
}

static const struct {
    int64_t height, width;
} shapes[] = {{1, 1},   {1, 63},   {1, 64},    {5, 13},    {3, 64},    {9, 96},    {65, 65},
              {24, 40}, {40, 576}, {129, 130}, {128, 128}, {256, 128}, {33, 2048}, {7, 5000}};

enum { SHAPES = sizeof shapes / sizeof *shapes };

/* Every part has the whole's codes, and stands for the whole's numbers. */
static void check_part(const oracle *o, const wf_nf4_part *part, const uint8_t *code,
                       const float *scales)
{
    size_t row = wf_nf4_row_bytes(part);
    int64_t n = part->rows * part->columns, wrong = 0;
    uint8_t *bytes = room((int64_t)row * part->rows, 1);
    uint8_t *copy = room((int64_t)row * part->rows, 1), *whole = room((o->n + 1) / 2, 1);
    float *value = room(n, sizeof *value), *number = room(n, sizeof *number);
    uint16_t *half = room(n, sizeof *half);

    for (int64_t i = 0; i < o->n; i++)
        whole[i / 2] |= (uint8_t)(i % 2 ? o->code[i] : o->code[i] << 4);
    for (int64_t i = 0; i < n; i++)
        value[i] = o->value[wf_nf4_row(part, i / part->columns) * o->width +
                            part->first_column + i % part->columns];
    wf_nf4_pack(part, value, o->absmax, code, bytes);
    for (int64_t r = 0; r < part->rows; r++)
        wf_nf4_copy_row(part, r, whole, 0, code, copy + (size_t)r * row);
    CU_ASSERT_EQUAL(memcmp(bytes, copy, row * (size_t)part->rows), 0);
    wf_nf4_widen(part, bytes, scales, 0, part->rows, number);
    wf_nf4_widen_bf16(part, bytes, scales, 0, part->rows, half);
    for (int64_t r = 0; r < part->rows; r++)
        for (int64_t c = 0; c < part->columns; c++) {
            int64_t i = wf_nf4_row(part, r) * o->width + part->first_column + c;
            uint8_t pair = bytes[(size_t)r * row + (size_t)(c / 2)];
            int64_t at = r * part->columns + c;

            wrong += (c % 2 ? pair & 15 : pair >> 4) != o->code[i];
            wrong += memcmp(&number[at], &o->number[i], sizeof(float)) != 0;
            wrong += half[at] != wf_bf16_of(o->number[i]);
        }
    CU_ASSERT_EQUAL(wrong, 0);
    free(bytes);
    free(copy);
    free(whole);
    free(value);
    free(number);
    free(half);
}

/* Scales by parts of any cut, which are the whole's; and what is stored with them. */
static void check_cut(const oracle *o, int64_t down, int64_t across)
{
    float *most = room(o->blocks, sizeof *most), *some = room(o->blocks, sizeof *some);
    float *scales = room(1 + o->nested, sizeof *scales);
    uint8_t *code = room(o->blocks, 1);
    wf_nf4_part part = {.height = o->height, .width = o->width};
    float *value;

    for (int pass = 0; pass < 2; pass++) {
        for (int64_t i = 0; i < down * across; i++) {
            int64_t r = i / across, c = i % across;

            part.first_row = o->height * r / down;
            part.rows = o->height * (r + 1) / down - part.first_row;
            part.first_column = o->width * c / across;
            part.columns = o->width * (c + 1) / across - part.first_column;
            if (pass) {
                check_part(o, &part, code, scales);
                continue;
            }
            value = room(part.rows * part.columns, sizeof *value);
            for (int64_t k = 0; k < part.rows * part.columns; k++)
                value[k] = o->value[(part.first_row + k / part.columns) * o->width +
                                    part.first_column + k % part.columns];
            wf_nf4_absmax(&part, value, some);
            free(value);
            for (int64_t b = 0; b < o->blocks; b++)
                most[b] = fmaxf(most[b], some[b]);
        }
        wf_nf4_scales(o->blocks, most, code, scales);
    }
    part = (wf_nf4_part){.height = o->height,
                         .width = o->width,
                         .first_row = o->height / down / 3,
                         .rows = down * (o->height / down / 2),
                         .columns = o->width / across,
                         .run = o->height / down / 2,
                         .step = o->height / down};
    check_part(o, &part, code, scales); /* a run of each of `down` groups of rows */
    CU_ASSERT_EQUAL(memcmp(most, o->absmax, (size_t)o->blocks * sizeof *most), 0);
    CU_ASSERT_EQUAL(memcmp(code, o->scale_code, (size_t)o->blocks), 0);
    CU_ASSERT_EQUAL(memcmp(scales + 1, o->scale_max, (size_t)o->nested * sizeof *scales), 0);
    CU_ASSERT(scales[0] == o->offset);
    free(most);
    free(some);
    free(scales);
    free(code);
}

static void parts_follow_the_rule(void)
{
    for (int s = 0; s < SHAPES; s++) {
        float *x = room(shapes[s].height * shapes[s].width, sizeof *x);
        oracle o;

        fill(x, shapes[s].height * shapes[s].width);
        o = store(shapes[s].height, shapes[s].width, x);
        for (int64_t down = 1; down <= 4; down += down < 3 ? 1 : 2)
            for (int64_t across = 1; across <= 8; across += across < 3 ? 1 : 5)
                check_cut(&o, down, across);
        drop(&o);
        free(x);
    }
}

/* Codes that are known: levels become themselves, means the level below, zeros the seventh. */
static void known_codes(void)
{
    float x[64] = {0}, absmax, scales[2];
    const wf_nf4_part part = {.height = 1, .width = 64, .rows = 1, .columns = 64};
    uint8_t code, bytes[33];

    for (int i = 0; i < 16; i++)
        x[i] = wf_nf4_levels[i];
    for (int i = 0; i < 15; i++) {
        x[16 + i] = (wf_nf4_levels[i] + wf_nf4_levels[i + 1]) / 2;
        x[32 + i] = nextafterf(x[16 + i], 2);
    }
    CU_ASSERT_EQUAL(wf_nf4_row_bytes(&part), sizeof bytes);
    wf_nf4_absmax(&part, x, &absmax);
    CU_ASSERT_EQUAL(absmax, 1);
    wf_nf4_scales(1, &absmax, &code, scales);
    CU_ASSERT_EQUAL(scales[0], 1);
    CU_ASSERT_EQUAL(code, 127); /* less their mean nothing is left */
    wf_nf4_pack(&part, x, &absmax, &code, bytes);
    for (int i = 0; i < 8; i++)
        CU_ASSERT_EQUAL(bytes[i], (2 * i << 4) + 2 * i + 1);
    for (int i = 0; i < 15; i++) {
        CU_ASSERT_EQUAL(i % 2 ? bytes[8 + i / 2] & 15 : bytes[8 + i / 2] >> 4, i);
        CU_ASSERT_EQUAL(i % 2 ? bytes[16 + i / 2] & 15 : bytes[16 + i / 2] >> 4, i + 1);
    }
    CU_ASSERT_EQUAL(bytes[24], 0x77);
}

int main(void)
{
    static const wf_test tests[] = {{"parts follow the rule", parts_follow_the_rule},
                                    {"known codes", known_codes},
                                    {NULL, NULL}};

    return wf_test_main("nf4", tests);
}

/*
 * core/numerics/nf4.c - see the header. Levels and rules are those of bitsandbytes
 * (backends/default/ops.py: quantize_4bit, quantize_blockwise), ties included: what lies
 * between two levels becomes the lower one where it is at most their mean, and a last block
 * that is not full divides where full ones multiply by the inverse.
 */
#include "core/numerics/nf4.h"
#include "core/numerics/bf16.h"
#include <math.h>
#include <stdbool.h>
#include <string.h>

const float wf_nf4_levels[WF_NF4_LEVELS] = {
    -1.0f,         -0.6961928f, -0.52507305f, -0.3949175f, -0.28444138f, -0.18477343f,
    -0.091050036f, 0.0f,        0.0795803f,   0.1609302f,  0.2461123f,   0.33791524f,
    0.44070983f,   0.562617f,   0.72295684f,  1.0f};

/* The least scale: a block of zeros would be divided by zero. */
static const float least_scale = 1e-38f;

int64_t wf_nf4_blocks(int64_t numbers)
{
    return (numbers + WF_NF4_BLOCK - 1) / WF_NF4_BLOCK;
}

int64_t wf_nf4_nested(int64_t blocks)
{
    return (blocks + WF_NF4_NESTED - 1) / WF_NF4_NESTED;
}

/* Returns the bytes of a row's numbers, which its scales follow. */
static int64_t number_bytes(const wf_nf4_part *part)
{
    return (part->columns + 1) / 2;
}

size_t wf_nf4_row_bytes(const wf_nf4_part *part)
{
    int64_t first = part->first_column, n = part->columns;
    int64_t touched =
        (n + WF_NF4_BLOCK - 2) / WF_NF4_BLOCK + 1; /* at most, wherever it begins */

    if (n == 0)
        return 0;
    if (part->width % WF_NF4_BLOCK == 0)
        touched = (first + n - 1) / WF_NF4_BLOCK - first / WF_NF4_BLOCK + 1;
    return (size_t)(number_bytes(part) + touched);
}

/* Returns the number of a row's first element in the whole matrix. */
static int64_t first_number(const wf_nf4_part *part, int64_t row)
{
    return wf_nf4_row(part, row) * part->width + part->first_column;
}

/* Returns how many of n numbers from number `at` on belong to the same block. */
static int64_t in_block(int64_t at, int64_t n)
{
    int64_t left = WF_NF4_BLOCK - at % WF_NF4_BLOCK;

    return left < n ? left : n;
}

void wf_nf4_absmax(const wf_nf4_part *part, const float *values, float *absmax)
{
    int64_t blocks = wf_nf4_blocks(part->height * part->width);

    memset(absmax, 0, (size_t)blocks * sizeof *absmax);
    for (int64_t r = 0; r < part->rows; r++) {
        int64_t first = first_number(part, r);

        for (int64_t c = 0; c < part->columns; c++) {
            float *most = &absmax[(first + c) / WF_NF4_BLOCK];
            float x = fabsf(*values++);

            *most = x > *most ? x : *most;
        }
    }
}

/* Returns the nearest level: the number of means of neighbouring levels below x. */
static int nearest(const float *level, int levels, float x)
{
    int low = 0, high = levels - 1;

    while (low < high) {
        int middle = (low + high) / 2;

        if (x > (level[middle] + level[middle + 1]) / 2)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static float bounded(float x)
{
    return x < -1 ? -1 : x > 1 ? 1 : x;
}

/* x over the scale of its block. */
static float scaled(float x, float scale, bool full)
{
    scale = scale < least_scale ? least_scale : scale;
    return bounded(full ? x * (1.0f / scale) : x / scale);
}

/* Returns the mean, whose sum is the same on all ranks: they have the same numbers in the same
   order. */
static float mean(int64_t n, const float *x)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i];
    return n ? (float)(sum / (double)n) : 0;
}

void wf_nf4_scales(int64_t blocks, const float *absmax, uint8_t *code, float *scales)
{
    float offset = mean(blocks, absmax);

    scales[0] = offset;
    for (int64_t b = 0; b < blocks; b += WF_NF4_NESTED) {
        int64_t n = blocks - b < WF_NF4_NESTED ? blocks - b : WF_NF4_NESTED;
        float most = 0;

        for (int64_t i = 0; i < n; i++)
            most = fmaxf(most, fabsf(absmax[b + i] - offset));
        if (n < WF_NF4_NESTED && most < least_scale)
            most = least_scale;
        scales[1 + b / WF_NF4_NESTED] = most;
        for (int64_t i = 0; i < n; i++)
            code[b + i] =
                (uint8_t)nearest(wf_dynamic8_signed, WF_DYNAMIC8_LEVELS,
                                 scaled(absmax[b + i] - offset, most, n == WF_NF4_NESTED));
    }
}

/* Stores the scales of the blocks that a row touches. */
static void put_scales(const wf_nf4_part *part, int64_t first, const uint8_t *code,
                       uint8_t *row)
{
    int64_t begin = first / WF_NF4_BLOCK, end = (first + part->columns - 1) / WF_NF4_BLOCK + 1;
    int64_t at = number_bytes(part), room = (int64_t)wf_nf4_row_bytes(part) - at;

    memset(row + at, 0, (size_t)room);
    memcpy(row + at, code + begin, (size_t)(end - begin));
}

static void put_number(uint8_t *row, int64_t column, int code)
{
    uint8_t *at = &row[column / 2];

    *at = (uint8_t)(column % 2 ? *at | code : code << 4);
}

/* Computes the codes of n numbers of a block, as nearest and scaled have them, in loops that
   compilers vectorise. */
static void block_codes(const float *x, int64_t n, float scale, bool full, int32_t *code)
{
    float by, y[WF_NF4_BLOCK];

    scale = scale < least_scale ? least_scale : scale;
    by = 1.0f / scale;
    for (int64_t i = 0; i < n; i++)
        y[i] = full ? x[i] * by : x[i] / scale;
    memset(code, 0, (size_t)n * sizeof *code);
    for (int l = 0; l + 1 < WF_NF4_LEVELS; l++) {
        float mean_of_two = (wf_nf4_levels[l] + wf_nf4_levels[l + 1]) / 2;

        for (int64_t i = 0; i < n; i++)
            code[i] += y[i] > mean_of_two;
    }
}

void wf_nf4_pack(const wf_nf4_part *part, const float *values, const float *absmax,
                 const uint8_t *code, uint8_t *bytes)
{
    int64_t all = part->height * part->width, full = all - all % WF_NF4_BLOCK, n;

    for (int64_t r = 0; part->columns && r < part->rows; r++) {
        int64_t first = first_number(part, r);

        for (int64_t c = 0; c < part->columns; c += n) {
            int32_t of[WF_NF4_BLOCK];

            n = in_block(first + c, part->columns - c);
            block_codes(values, n, absmax[(first + c) / WF_NF4_BLOCK], first + c < full, of);
            for (int64_t i = 0; i < n; i++)
                put_number(bytes, c + i, of[i]);
            values += n;
        }
        put_scales(part, first, code, bytes);
        bytes += wf_nf4_row_bytes(part);
    }
}

static int number_of(const uint8_t *row, int64_t column)
{
    return column % 2 ? row[column / 2] & 15 : row[column / 2] >> 4;
}

void wf_nf4_copy_row(const wf_nf4_part *part, int64_t row, const uint8_t *numbers, int64_t from,
                     const uint8_t *code, uint8_t *bytes)
{
    int64_t first = first_number(part, row);

    for (int64_t c = 0; c < part->columns; c++)
        put_number(bytes, c, number_of(numbers, first + c - from));
    if (part->columns)
        put_scales(part, first, code, bytes);
}

/* Computes the values of the 16 codes in a block whose scale has this code. */
static void block_levels(const float *scales, int64_t block, uint8_t code,
                         float level[WF_NF4_LEVELS])
{
    float scale = wf_dynamic8_signed[code] * scales[1 + block / WF_NF4_NESTED];

    scale += scales[0];
    for (int i = 0; i < WF_NF4_LEVELS; i++)
        level[i] = wf_nf4_levels[i] * scale;
}

/* Widens one row, block by block; `put` stores the numbers of a run of codes. */
static void widen_row(const wf_nf4_part *part, const uint8_t *bytes, const float *scales,
                      int64_t row, void *to,
                      void (*put)(const uint8_t *bytes, int64_t at, int64_t n,
                                  const float level[WF_NF4_LEVELS], void *to))
{
    int64_t first = first_number(part, row), n;
    const uint8_t *code = bytes + number_bytes(part);

    for (int64_t c = 0; c < part->columns; c += n) {
        float level[WF_NF4_LEVELS];

        n = in_block(first + c, part->columns - c);
        block_levels(scales, (first + c) / WF_NF4_BLOCK, *code++, level);
        put(bytes, c, n, level, to);
    }
}

/* Writes the values of n codes from number `at` of a row on; levels are elements of `size`
   bytes, a constant of callers. */
static inline __attribute__((always_inline)) void put_codes(const uint8_t *bytes, int64_t at,
                                                            int64_t n, const void *level,
                                                            size_t size, void *to)
{
    const char *of = level;
    char *y = (char *)to + (size_t)at * size;
    int64_t i = 0;

    for (; i < n && (at + i) % 2; i++)
        memcpy(y + (size_t)i * size, of + (size_t)number_of(bytes, at + i) * size, size);
    for (; i + 1 < n; i += 2) {
        uint8_t pair = bytes[(at + i) / 2];

        memcpy(y + (size_t)i * size, of + (size_t)(pair >> 4) * size, size);
        memcpy(y + (size_t)(i + 1) * size, of + (size_t)(pair & 15) * size, size);
    }
    for (; i < n; i++)
        memcpy(y + (size_t)i * size, of + (size_t)number_of(bytes, at + i) * size, size);
}

static void put_floats(const uint8_t *bytes, int64_t at, int64_t n,
                       const float level[WF_NF4_LEVELS], void *to)
{
    put_codes(bytes, at, n, level, sizeof *level, to);
}

static void put_halves(const uint8_t *bytes, int64_t at, int64_t n,
                       const float level[WF_NF4_LEVELS], void *to)
{
    uint16_t half[WF_NF4_LEVELS];

    for (int l = 0; l < WF_NF4_LEVELS; l++)
        half[l] = wf_bf16_of(level[l]);
    put_codes(bytes, at, n, half, sizeof *half, to);
}

void wf_nf4_widen(const wf_nf4_part *part, const uint8_t *bytes, const float *scales,
                  int64_t row, int64_t rows, float *to)
{
    size_t row_bytes = wf_nf4_row_bytes(part);

    for (int64_t r = row; r < row + rows; r++, to += part->columns)
        widen_row(part, bytes + (size_t)r * row_bytes, scales, r, to, put_floats);
}

void wf_nf4_widen_bf16(const wf_nf4_part *part, const uint8_t *bytes, const float *scales,
                       int64_t row, int64_t rows, uint16_t *to)
{
    size_t row_bytes = wf_nf4_row_bytes(part);

    for (int64_t r = row; r < row + rows; r++, to += part->columns)
        widen_row(part, bytes + (size_t)r * row_bytes, scales, r, to, put_halves);
}

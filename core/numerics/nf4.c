/*
 * core/numerics/nf4.c - see the header. Levels and rules are those of bitsandbytes (backends/default/ops.py:
 * quantize_4bit, quantize_blockwise), ties included: what lies between two levels becomes the lower one where it
 * is at most their mean, and a last block that is not full divides where full ones multiply by the inverse.
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

/* Fractions of 7 to 1 bits below 1, 0.1, .. 1e-6. */
#define ABOVE_ZERO                                                                             \
    5.5000004e-07f, 3.2500002e-06f, 7.75e-06f, 2.1249998e-05f, 4.375e-05f, 6.625e-05f,         \
        8.875e-05f, 0.00015625001f, 0.00026875004f, 0.00038125002f, 0.00049375003f,            \
        0.0006062501f, 0.00071875006f, 0.00083125f, 0.0009437501f, 0.0012812499f, 0.00184375f, \
        0.00240625f, 0.00296875f, 0.0035312497f, 0.00409375f, 0.0046562497f, 0.0052187503f,    \
        0.00578125f, 0.00634375f, 0.00690625f, 0.00746875f, 0.00803125f, 0.00859375f,          \
        0.009156249f, 0.00971875f, 0.01140625f, 0.01421875f, 0.01703125f, 0.019843752f,        \
        0.02265625f, 0.02546875f, 0.028281251f, 0.03109375f, 0.03390625f, 0.036718752f,        \
        0.03953125f, 0.042343747f, 0.04515625f, 0.04796875f, 0.05078125f, 0.05359375f,         \
        0.05640625f, 0.059218753f, 0.06203125f, 0.06484375f, 0.067656256f, 0.070468746f,       \
        0.07328125f, 0.07609375f, 0.07890625f, 0.08171876f, 0.08453125f, 0.08734375f,          \
        0.09015625f, 0.092968754f, 0.09578126f, 0.09859375f, 0.107031256f, 0.12109375f,        \
        0.13515624f, 0.14921875f, 0.16328125f, 0.17734376f, 0.19140625f, 0.20546874f,          \
        0.21953125f, 0.23359375f, 0.24765624f, 0.26171875f, 0.27578127f, 0.28984374f,          \
        0.30390626f, 0.31796873f, 0.33203125f, 0.34609374f, 0.36015624f, 0.37421876f,          \
        0.38828123f, 0.40234375f, 0.41640624f, 0.43046874f, 0.44453126f, 0.45859373f,          \
        0.47265625f, 0.4867187f, 0.50078124f, 0.5148437f, 0.5289062f, 0.54296875f, 0.5570313f, \
        0.5710938f, 0.58515626f, 0.5992187f, 0.61328125f, 0.6273438f, 0.6414063f, 0.65546876f, \
        0.6695312f, 0.68359375f, 0.6976563f, 0.7117188f, 0.72578126f, 0.7398437f, 0.75390625f, \
        0.7679688f, 0.78203124f, 0.79609376f, 0.8101562f, 0.82421875f, 0.8382813f,             \
        0.85234374f, 0.86640626f, 0.8804687f, 0.89453125f, 0.9085938f, 0.92265624f,            \
        0.93671876f, 0.9507812f, 0.96484375f, 0.9789063f, 0.99296874f

#define BELOW_ZERO                                                                             \
    -0.99296874f, -0.9789063f, -0.96484375f, -0.9507812f, -0.93671876f, -0.92265624f,          \
        -0.9085938f, -0.89453125f, -0.8804687f, -0.86640626f, -0.85234374f, -0.8382813f,       \
        -0.82421875f, -0.8101562f, -0.79609376f, -0.78203124f, -0.7679688f, -0.75390625f,      \
        -0.7398437f, -0.72578126f, -0.7117188f, -0.6976563f, -0.68359375f, -0.6695312f,        \
        -0.65546876f, -0.6414063f, -0.6273438f, -0.61328125f, -0.5992187f, -0.58515626f,       \
        -0.5710938f, -0.5570313f, -0.54296875f, -0.5289062f, -0.5148437f, -0.50078124f,        \
        -0.4867187f, -0.47265625f, -0.45859373f, -0.44453126f, -0.43046874f, -0.41640624f,     \
        -0.40234375f, -0.38828123f, -0.37421876f, -0.36015624f, -0.34609374f, -0.33203125f,    \
        -0.31796873f, -0.30390626f, -0.28984374f, -0.27578127f, -0.26171875f, -0.24765624f,    \
        -0.23359375f, -0.21953125f, -0.20546874f, -0.19140625f, -0.17734376f, -0.16328125f,    \
        -0.14921875f, -0.13515624f, -0.12109375f, -0.107031256f, -0.09859375f, -0.09578126f,   \
        -0.092968754f, -0.09015625f, -0.08734375f, -0.08453125f, -0.08171876f, -0.07890625f,   \
        -0.07609375f, -0.07328125f, -0.070468746f, -0.067656256f, -0.06484375f, -0.06203125f,  \
        -0.059218753f, -0.05640625f, -0.05359375f, -0.05078125f, -0.04796875f, -0.04515625f,   \
        -0.042343747f, -0.03953125f, -0.036718752f, -0.03390625f, -0.03109375f, -0.028281251f, \
        -0.02546875f, -0.02265625f, -0.019843752f, -0.01703125f, -0.01421875f, -0.01140625f,   \
        -0.00971875f, -0.009156249f, -0.00859375f, -0.00803125f, -0.00746875f, -0.00690625f,   \
        -0.00634375f, -0.00578125f, -0.0052187503f, -0.0046562497f, -0.00409375f,              \
        -0.0035312497f, -0.00296875f, -0.00240625f, -0.00184375f, -0.0012812499f,              \
        -0.0009437501f, -0.00083125f, -0.00071875006f, -0.0006062501f, -0.00049375003f,        \
        -0.00038125002f, -0.00026875004f, -0.00015625001f, -8.875e-05f, -6.625e-05f,           \
        -4.375e-05f, -2.1249998e-05f, -7.75e-06f, -3.2500002e-06f, -5.5000004e-07f

const float wf_nf4_scale_levels[WF_NF4_SCALE_LEVELS] = {BELOW_ZERO, 0, ABOVE_ZERO, 1};

/* Where a block of zeros would be divided by nothing. */
static const float least_scale = 1e-38f;

int64_t wf_nf4_blocks(int64_t numbers)
{
    return (numbers + WF_NF4_BLOCK - 1) / WF_NF4_BLOCK;
}

int64_t wf_nf4_nested(int64_t blocks)
{
    return (blocks + WF_NF4_NESTED - 1) / WF_NF4_NESTED;
}

/* Bytes of a row's numbers, which its scales follow. */
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

/* The number of a row's first element in the whole matrix. */
static int64_t first_number(const wf_nf4_part *part, int64_t row)
{
    return (part->first_row + row) * part->width + part->first_column;
}

/* How many of n numbers from number `at` on belong to the same block. */
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

/* How many of the means of neighbouring levels lie below x: the nearest level. */
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

/* The sum is the same on all ranks, which have the same numbers in the same order. */
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
                (uint8_t)nearest(wf_nf4_scale_levels, WF_NF4_SCALE_LEVELS,
                                 scaled(absmax[b + i] - offset, most, n == WF_NF4_NESTED));
    }
}

/* The scales of the blocks that a row touches. */
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

/* The codes of n numbers of a block, as nearest and scaled have them, in loops that a compiler makes vectors of. */
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

/* What the 16 codes stand for in a block whose scale has this code. */
static void block_levels(const float *scales, int64_t block, uint8_t code,
                         float level[WF_NF4_LEVELS])
{
    float scale = wf_nf4_scale_levels[code] * scales[1 + block / WF_NF4_NESTED];

    scale += scales[0];
    for (int i = 0; i < WF_NF4_LEVELS; i++)
        level[i] = wf_nf4_levels[i] * scale;
}

/* One row, block by block; `put` stores what a run of codes stands for. */
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

static void put_floats(const uint8_t *bytes, int64_t at, int64_t n,
                       const float level[WF_NF4_LEVELS], void *to)
{
    float *y = (float *)to + at;
    int64_t i = 0;

    for (; i < n && (at + i) % 2; i++)
        y[i] = level[number_of(bytes, at + i)];
    for (; i + 1 < n; i += 2) {
        uint8_t pair = bytes[(at + i) / 2];

        y[i] = level[pair >> 4];
        y[i + 1] = level[pair & 15];
    }
    for (; i < n; i++)
        y[i] = level[number_of(bytes, at + i)];
}

static void put_halves(const uint8_t *bytes, int64_t at, int64_t n,
                       const float level[WF_NF4_LEVELS], void *to)
{
    uint16_t *y = (uint16_t *)to + at, half[WF_NF4_LEVELS];
    int64_t i = 0;

    for (int l = 0; l < WF_NF4_LEVELS; l++)
        half[l] = wf_bf16_of(level[l]);
    for (; i < n && (at + i) % 2; i++)
        y[i] = half[number_of(bytes, at + i)];
    for (; i + 1 < n; i += 2) {
        uint8_t pair = bytes[(at + i) / 2];

        y[i] = half[pair >> 4];
        y[i + 1] = half[pair & 15];
    }
    for (; i < n; i++)
        y[i] = half[number_of(bytes, at + i)];
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

/*
 * core/numerics/dynamic8.h - 8 bits a number with a dynamic exponent (Dettmers 2015; Dettmers
 * et al. 2022), in which optimizers keep their moments.
 *
 * A row of a matrix is cut into blocks: runs of at most 256 columns inside one of the row's 8
 * chunks (tree.h). No layout that keeps the bits cuts a block, so a block is stored alike
 * on every rank. It is its scale, 4 bytes, and a code for each number: the nearest of 256
 * levels to the number over the scale. The scale is the number of the largest magnitude with
 * its sign, which is therefore exact, and so storing what was read changes nothing.
 *
 * The functions of a block are here, to be compiled for each instruction set: they are plain C,
 * and round alike on all.
 */
#ifndef WF_CORE_NUMERICS_DYNAMIC8_H
#define WF_CORE_NUMERICS_DYNAMIC8_H

#include "core/export.h"
#include "core/numerics/tree.h"
#include <stddef.h>
#include <stdint.h>
#include <string.h>

WF_BEGIN_DECLS

enum {
    WF_DYNAMIC8_BLOCK = 256, /* numbers that share a scale, at most */
    WF_DYNAMIC8_LEVELS = 256,
    WF_DYNAMIC8_SCALE = 4 /* bytes, before those of the numbers */
};

/** wf_dynamic8_signed, wf_dynamic8_unsigned - the levels that codes represent, relative to the
 * scale, ascending up to 1. */
WF_API extern const float wf_dynamic8_signed[WF_DYNAMIC8_LEVELS];
WF_API extern const float wf_dynamic8_unsigned[WF_DYNAMIC8_LEVELS];

/** wf_dynamic8_row - the columns of a row that a part holds, and where its 8 chunks end among
 * them. */
typedef struct wf_dynamic8_row {
    int64_t cut[WF_MAX_CHUNKS + 1];
} wf_dynamic8_row;

/** wf_dynamic8_row_of - returns the row of columns [start, start + columns) of a dim of `size`
 * elements in grains. */
WF_API wf_dynamic8_row wf_dynamic8_row_of(int64_t size, int64_t grain, int64_t start,
                                          int64_t columns);

/** wf_dynamic8_row_bytes - returns the bytes of a stored row. */
WF_API size_t wf_dynamic8_row_bytes(const wf_dynamic8_row *row);

/** wf_dynamic8_widen - dequantizes rows; wf_dynamic8_pack - quantizes rows of values. */
WF_API void wf_dynamic8_widen(const wf_dynamic8_row *row, const float *level,
                              const uint8_t *bytes, int64_t rows, float *to);
WF_API void wf_dynamic8_pack(const wf_dynamic8_row *row, const float *level,
                             const float *values, int64_t rows, uint8_t *bytes);

enum {
    WF_DYNAMIC8_LEAST = 104, /* the exponent of 2^-23, under which there is no mean of levels */
    WF_DYNAMIC8_RANGES = (127 - WF_DYNAMIC8_LEAST) * 128 + 1 /* up to 1: 128 to a power of 2 */
};

/** wf_dynamic8_map - the tables of quantization: levels, the means of neighbours, where codes
 * change, and the code below each range of numbers. Ranges are so small that there is at most
 * one mean in each. */
typedef struct wf_dynamic8_map {
    const float *level;
    float mean[WF_DYNAMIC8_LEVELS]; /* the last one is above all numbers */
    /* the number of means below positive, negative numbers of the range */
    uint8_t under[2][WF_DYNAMIC8_RANGES];
} wf_dynamic8_map;

/** wf_dynamic8_map_make - fills in the map of a table of levels. */
WF_API void wf_dynamic8_map_make(wf_dynamic8_map *map, const float *level);

/* Returns the numbers of the block that begins in column `at`; 0 where the row ends. */
static inline int64_t wf_dynamic8_block(const wf_dynamic8_row *row, int64_t at)
{
    const int64_t most = WF_DYNAMIC8_BLOCK;
    int64_t left;
    int l = 1;

    while (l < WF_MAX_CHUNKS && row->cut[l] <= at)
        l++;
    left = row->cut[l] - at;
    return left < most ? left : most;
}

/* Dequantizes a block. Zeros have no sign: any stored zero is read as +0. */
static inline void wf_dynamic8_widen_block(const float *level, const uint8_t *bytes, int64_t n,
                                           float *to)
{
    float scale;

    memcpy(&scale, bytes, sizeof scale);
    for (int64_t i = 0; i < n; i++)
        to[i] = level[bytes[WF_DYNAMIC8_SCALE + i]] * scale + 0.0f;
}

/* Returns an integer by which numbers are ordered for a scale: the magnitude, and after it
   whether it is positive. */
static inline WF_HOST_DEVICE uint32_t wf_dynamic8_order(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    return (bits << 1 | bits >> 31) ^ 1;
}

/* Returns the scale of numbers of which the greatest in that order is `most`: it itself, or 0
   where levels of it would be denormal. */
static inline WF_HOST_DEVICE float wf_dynamic8_scale_of(uint32_t most)
{
    uint32_t bits = (most ^ 1) >> 1 | (most ^ 1) << 31;
    float scale;

    memcpy(&scale, &bits, sizeof scale);
    return scale < 1e-30f && scale > -1e-30f ? 0 : scale;
}

/* Returns the number of the largest magnitude, the positive one of two; 0 where levels of it
   would be denormal. */
static inline float wf_dynamic8_scale(const float *x, int64_t n)
{
    uint32_t most = 0, order;

    for (int64_t i = 0; i < n; i++) {
        order = wf_dynamic8_order(x[i]);
        most = order > most ? order : most;
    }
    return wf_dynamic8_scale_of(most);
}

/* Returns the code of a number of at most 1: how many means of neighbouring levels are below
   it. */
static inline WF_HOST_DEVICE uint8_t wf_dynamic8_code(const wf_dynamic8_map *map, float x)
{
    uint32_t bits;
    int range, code;

    memcpy(&bits, &x, sizeof bits);
    range = (int)(bits >> 16 & 0x7FFF) - WF_DYNAMIC8_LEAST * 128;
    range = range < 0 ? 0 : range < WF_DYNAMIC8_RANGES ? range : WF_DYNAMIC8_RANGES - 1;
    code = map->under[bits >> 31][range];
    return (uint8_t)(code + (x > map->mean[code]));
}

static inline void wf_dynamic8_pack_block(const wf_dynamic8_map *map, const float *x, int64_t n,
                                          uint8_t *bytes)
{
    const float scale = wf_dynamic8_scale(x, n), by = scale != 0 ? 1 / scale : 0;

    memcpy(bytes, &scale, sizeof scale);
    for (int64_t i = 0; i < n; i++)
        bytes[WF_DYNAMIC8_SCALE + i] = wf_dynamic8_code(map, x[i] * by);
}

WF_END_DECLS

#endif

/*
 * core/numerics/dynamic8.c - see the header.
 *
 * Levels are those of bitsandbytes 0.50's create_dynamic_map. Each decade from 1e-6 to 1 is cut
 * into equal parts, twice as many as the one below it, and a level is the middle of a part;
 * zero and 1 come beside them. All is rounded as there: the step and the middle in float, and a
 * boundary once, counted from the nearer end.
 */
#include "core/numerics/dynamic8.h"

#define STEP(n) ((1.0f - 0.1f) / (float)(n))
#define BOUNDARY(n, k)                                                                         \
    ((float)(2 * (k) < (n) ? (double)0.1f + (double)STEP(n) * (k)                              \
                           : 1 - (double)STEP(n) * ((n) - (k))))
#define MIDDLE(n, k) ((BOUNDARY(n, k) + BOUNDARY(n, (k) + 1)) / 2)

/* Level k of the n below `top`, in ascending order, also where that is below zero. */
#define LEVEL(top, n, k)      (top) * MIDDLE(n, (top) < 0 ? (n)-1 - (k) : (k))
#define LEVELS_2(top, n, k)   LEVEL(top, n, k), LEVEL(top, n, (k) + 1)
#define LEVELS_4(top, n, k)   LEVELS_2(top, n, k), LEVELS_2(top, n, (k) + 2)
#define LEVELS_8(top, n, k)   LEVELS_4(top, n, k), LEVELS_4(top, n, (k) + 4)
#define LEVELS_16(top, n, k)  LEVELS_8(top, n, k), LEVELS_8(top, n, (k) + 8)
#define LEVELS_32(top, n, k)  LEVELS_16(top, n, k), LEVELS_16(top, n, (k) + 16)
#define LEVELS_64(top, n, k)  LEVELS_32(top, n, k), LEVELS_32(top, n, (k) + 32)
#define LEVELS_128(top, n, k) LEVELS_64(top, n, k), LEVELS_64(top, n, (k) + 64)

const float wf_dynamic8_signed[WF_DYNAMIC8_LEVELS] = {
    LEVELS_64(-1.0f, 64, 0),  LEVELS_32(-1e-1f, 32, 0),
    LEVELS_16(-1e-2f, 16, 0), LEVELS_8(-1e-3f, 8, 0),
    LEVELS_4(-1e-4f, 4, 0),   LEVELS_2(-1e-5f, 2, 0),
    LEVEL(-1e-6f, 1, 0),      0,
    LEVEL(1e-6f, 1, 0),       LEVELS_2(1e-5f, 2, 0),
    LEVELS_4(1e-4f, 4, 0),    LEVELS_8(1e-3f, 8, 0),
    LEVELS_16(1e-2f, 16, 0),  LEVELS_32(1e-1f, 32, 0),
    LEVELS_64(1.0f, 64, 0),   1};

/* Twice as many, for numbers that have no sign. */
const float wf_dynamic8_unsigned[WF_DYNAMIC8_LEVELS] = {0,
                                                        LEVELS_2(1e-6f, 2, 0),
                                                        LEVELS_4(1e-5f, 4, 0),
                                                        LEVELS_8(1e-4f, 8, 0),
                                                        LEVELS_16(1e-3f, 16, 0),
                                                        LEVELS_32(1e-2f, 32, 0),
                                                        LEVELS_64(1e-1f, 64, 0),
                                                        LEVELS_128(1.0f, 128, 0),
                                                        1};

wf_dynamic8_row wf_dynamic8_row_of(int64_t size, int64_t grain, int64_t start, int64_t columns)
{
    wf_dynamic8_row row = {.cut = {0}};

    for (int l = 0; l <= WF_MAX_CHUNKS; l++) {
        int64_t at = wf_cut(size, grain, WF_MAX_CHUNKS, l) - start;

        row.cut[l] = at < 0 ? 0 : at > columns ? columns : at;
    }
    return row;
}

size_t wf_dynamic8_row_bytes(const wf_dynamic8_row *row)
{
    int64_t bytes = row->cut[WF_MAX_CHUNKS] - row->cut[0];

    for (int l = 0; l < WF_MAX_CHUNKS; l++)
        bytes += WF_DYNAMIC8_SCALE *
                 ((row->cut[l + 1] - row->cut[l] + WF_DYNAMIC8_BLOCK - 1) / WF_DYNAMIC8_BLOCK);
    return (size_t)bytes;
}

/* Returns a range's least magnitude. */
static float least_of(int range)
{
    uint32_t bits = (uint32_t)(WF_DYNAMIC8_LEAST * 128 + range) << 16;
    float x;

    memcpy(&x, &bits, sizeof x);
    return range ? x : 0;
}

void wf_dynamic8_map_make(wf_dynamic8_map *map, const float *level)
{
    int up = 0, down = WF_DYNAMIC8_LEVELS - 1;

    map->level = level;
    for (int i = 0; i + 1 < WF_DYNAMIC8_LEVELS; i++)
        map->mean[i] = (level[i] + level[i + 1]) / 2;
    map->mean[WF_DYNAMIC8_LEVELS - 1] = 2;
    for (int r = 0; r < WF_DYNAMIC8_RANGES; r++) {
        while (map->mean[up] < least_of(r))
            up++;
        while (down > 0 && map->mean[down - 1] > -least_of(r + 1))
            down--;
        map->under[0][r] = (uint8_t)up;
        map->under[1][r] = (uint8_t)down;
    }
}

void wf_dynamic8_widen(const wf_dynamic8_row *row, const float *level, const uint8_t *bytes,
                       int64_t rows, float *to)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t at = row->cut[0], n; (n = wf_dynamic8_block(row, at)) > 0; at += n) {
            wf_dynamic8_widen_block(level, bytes, n, to);
            bytes += WF_DYNAMIC8_SCALE + n;
            to += n;
        }
}

void wf_dynamic8_pack(const wf_dynamic8_row *row, const float *level, const float *values,
                      int64_t rows, uint8_t *bytes)
{
    wf_dynamic8_map map;

    wf_dynamic8_map_make(&map, level);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t at = row->cut[0], n; (n = wf_dynamic8_block(row, at)) > 0; at += n) {
            wf_dynamic8_pack_block(&map, values, n, bytes);
            bytes += WF_DYNAMIC8_SCALE + n;
            values += n;
        }
}

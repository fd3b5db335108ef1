/*
 * core/numerics/nf4.h - NF4 as a storage type: 4 bits a number, as bitsandbytes stores them
 * (Dettmers et al. 2023).
 *
 * A matrix is flattened row by row into blocks of 64. A block's scale is its largest magnitude,
 * its numbers over it become the nearest of 16 levels. Scales are stored in 8 bits: less their
 * mean, in blocks of 256, over the largest magnitude of such a block, as the nearest of 256
 * levels. That is 4 + 8/64 + 32/16384 = 4.127 bits a number.
 *
 * Blocks are those of the whole matrix, however ranks split it. A part is stored row by
 * row: two numbers in a byte, the first one in its upper half, and after them the scale of each
 * block that the row touches. So rows are of one size, and moving them is moving bytes; a block
 * that two rows or two ranks share has its scale in both.
 */
#ifndef WF_CORE_NUMERICS_NF4_H
#define WF_CORE_NUMERICS_NF4_H

#include "core/numerics/dynamic8.h"
#include <stddef.h>
#include <stdint.h>

WF_BEGIN_DECLS

enum {
    WF_NF4_BLOCK = 64,   /* numbers that share a scale */
    WF_NF4_NESTED = 256, /* scales that share a scale */
    WF_NF4_LEVELS = 16
};

/** wf_nf4_levels - the levels of the 16 codes, relative to the scale, ascending; codes of
 * scales are those of wf_dynamic8_signed. */
WF_API extern const float wf_nf4_levels[WF_NF4_LEVELS];

/** wf_nf4_part - rows [first_row, first_row + rows), columns [first_column, first_column +
 * columns) of a matrix; or runs of `run` rows, each `step` rows of the matrix after the one
 * before, which are `rows` together. */
typedef struct wf_nf4_part {
    int64_t height, width; /* the whole matrix has */
    int64_t first_row, rows, first_column, columns;
    int64_t run, step; /* run 0: all rows follow one another */
} wf_nf4_part;

/** wf_nf4_row - returns the row of the whole matrix that row `row` of a part is. */
static inline WF_HOST_DEVICE int64_t wf_nf4_row(const wf_nf4_part *part, int64_t row)
{
    return part->first_row + (part->run ? row / part->run * part->step + row % part->run : row);
}

/** wf_nf4_blocks - returns the number of blocks of `numbers` numbers; wf_nf4_nested - the
 * number of blocks of the scales of that many blocks. */
WF_API int64_t wf_nf4_blocks(int64_t numbers);
WF_API int64_t wf_nf4_nested(int64_t blocks);

/** wf_nf4_row_bytes - returns the bytes of a row of a part: half a byte is left free where it
 * has an odd number of columns. */
WF_API size_t wf_nf4_row_bytes(const wf_nf4_part *part);

/** wf_nf4_absmax - computes the largest magnitude in each block of what a part has of it, for
 * all blocks of the matrix: 0 for others. */
WF_API void wf_nf4_absmax(const wf_nf4_part *part, const float *values, float *absmax);

/**
 * wf_nf4_scales - quantizes the scales of all blocks of a matrix to 8 bits
 *
 * @param absmax  [blocks], of the whole matrix
 * @param code    [blocks], filled in
 * @param scales  [1 + wf_nf4_nested(blocks)], filled in: the mean of absmax, a scale for each
 *                256 of them
 */
WF_API void wf_nf4_scales(int64_t blocks, const float *absmax, uint8_t *code, float *scales);

/** wf_nf4_pack - quantizes a part: `absmax` and `code` are of all blocks; `bytes` has rows of
 * wf_nf4_row_bytes. */
WF_API void wf_nf4_pack(const wf_nf4_part *part, const float *values, const float *absmax,
                        const uint8_t *code, uint8_t *bytes);

/**
 * wf_nf4_copy_row - stores a row of a part from codes that exist already
 *
 * @param numbers  the codes of the whole matrix from number `from` on, which is even, two in a
 *                 byte
 * @param code     of all blocks
 */
WF_API void wf_nf4_copy_row(const wf_nf4_part *part, int64_t row, const uint8_t *numbers,
                            int64_t from, const uint8_t *code, uint8_t *bytes);

/** wf_nf4_widen - dequantizes rows [row, row + rows) of a part; wf_nf4_widen_bf16 - and rounds
 * them to bf16. */
WF_API void wf_nf4_widen(const wf_nf4_part *part, const uint8_t *bytes, const float *scales,
                         int64_t row, int64_t rows, float *to);
WF_API void wf_nf4_widen_bf16(const wf_nf4_part *part, const uint8_t *bytes,
                              const float *scales, int64_t row, int64_t rows, uint16_t *to);

WF_END_DECLS

#endif

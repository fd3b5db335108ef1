/*
 * kernels/cpu/simd/attention_block.c - packed blocks of tokens and their products; see
 * attention_block.h.
 *
 * A product goes by tiles of C that stay in registers over the whole sum, so an element is one
 * chain however the tiles are cut: their size is free to differ between instruction sets.
 */
#include "kernels/cpu/simd/attention_block.h"

#include "kernels/cpu/vec.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

enum {
    /* 32 AVX-512 registers hold 16 sums, 16 AVX2 registers (two to a v16) hold 4. */
    TILE_ROWS = WF_ISA_LEVEL == WF_ISA_LEVEL_avx512 ? 8 : 4,
    TILE_VECTORS = WF_ISA_LEVEL == WF_ISA_LEVEL_avx512 ? 2 : 1,
};

_Static_assert(GRAIN % TILE_ROWS == 0, "a tile lies in one grain of rows");

/* One tile of C over the terms first .. end - 1; a_row and a_term step through A. */
ALWAYS_INLINE void tile(const block_product *g, int64_t a_row, int64_t a_term, int64_t row,
                        int64_t col, int64_t first, int64_t end, int vectors)
{
    const float *a = g->a + row * a_row + first * a_term;
    const float *b = g->b + first * g->b_stride + col;
    float *c = g->c + row * g->c_stride + col;
    v16 sum[TILE_ROWS][TILE_VECTORS], right[TILE_VECTORS];

    for (int r = 0; r < TILE_ROWS; r++)
        for (int v = 0; v < vectors; v++)
            sum[r][v] = g->add ? v16_load(c + r * g->c_stride + v * GRAIN) : v16_set1(0);
    for (int64_t p = first; p < end; p++) {
        for (int v = 0; v < vectors; v++)
            right[v] = v16_load(b + v * GRAIN);
        for (int r = 0; r < TILE_ROWS; r++) {
            v16 left = v16_set1(a[r * a_row]);

            for (int v = 0; v < vectors; v++)
                sum[r][v] = v16_fma(left, right[v], sum[r][v]);
        }
        a += a_term;
        b += g->b_stride;
    }
    for (int r = 0; r < TILE_ROWS; r++)
        for (int v = 0; v < vectors; v++)
            v16_store(c + r * g->c_stride + v * GRAIN, sum[r][v]);
}

/* The tiles of one strip of columns. Bounds of terms follow the grain, not the tile: then a
   value that is not finite spreads the same way for every instruction set. */
ALWAYS_INLINE void strip(const block_product *g, int64_t a_row, int64_t a_term, int64_t col,
                         int vectors)
{
    int64_t m = g->m;

    if (g->part == PART_COLUMNS_FROM_ROW && m > col + vectors * GRAIN)
        m = col + vectors * GRAIN;
    for (int64_t row = 0; row < m; row += TILE_ROWS) {
        int64_t grain = row / GRAIN * GRAIN;
        int64_t first = g->part == PART_TERMS_FROM_ROW ? grain : 0;
        int64_t end =
            g->part == PART_TERMS_TO_ROW && grain + GRAIN < g->k ? grain + GRAIN : g->k;

        tile(g, a_row, a_term, row, col, first, end, vectors);
    }
}

/* Strips of columns are outermost: a strip of B stays in the first-level cache. */
ALWAYS_INLINE void product(const block_product *g, int64_t a_row, int64_t a_term)
{
    int64_t col = 0;

    for (; col + TILE_VECTORS * GRAIN <= g->n; col += TILE_VECTORS * GRAIN)
        strip(g, a_row, a_term, col, TILE_VECTORS);
    for (; col < g->n; col += GRAIN)
        strip(g, a_row, a_term, col, 1);
}

void block_product_rows(const block_product *g)
{
    product(g, g->a_stride, 1);
}

void block_product_columns(const block_product *g)
{
    product(g, 1, BLOCK);
}

void block_pack(const float *src, int64_t stride, token_block t, int64_t dim, float scale,
                float *dst)
{
    int64_t width = to_grain(dim), whole = dim / GRAIN * GRAIN;
    v16 s = v16_set1(scale);

    for (int64_t i = 0; i < t.padded; i++, dst += width) {
        const float *row;

        if (i >= t.count) {
            for (int64_t d = 0; d < width; d += GRAIN)
                v16_store(dst + d, v16_set1(0));
            continue;
        }
        row = src + (t.begin + i) * stride;
        for (int64_t d = 0; d < whole; d += GRAIN)
            v16_store(dst + d, v16_mul(s, v16_load(row + d)));
        if (whole < width)
            v16_store(dst + whole, v16_mul(s, v16_load_n(row + whole, dim - whole)));
    }
}

void block_transpose(const float *src, token_block t, int64_t dim, float *dst)
{
    int64_t width = to_grain(dim);

    for (int64_t i = 0; i < t.padded; i++)
        for (int64_t d = 0; d < dim; d++)
            dst[d * BLOCK + i] = src[i * width + d];
}

void block_unpack(const float *src, token_block t, int64_t dim, float scale, float *dst,
                  int64_t stride)
{
    int64_t width = to_grain(dim), whole = dim / GRAIN * GRAIN;
    v16 s = v16_set1(scale);

    for (int64_t i = 0; i < t.count; i++, src += width) {
        float *row = dst + (t.begin + i) * stride;

        for (int64_t d = 0; d < whole; d += GRAIN)
            v16_store(row + d, v16_mul(s, v16_load(src + d)));
        if (whole < dim)
            v16_store_n(row + whole, v16_mul(s, v16_load(src + whole)), dim - whole);
    }
}

void block_mask(float *s, int64_t padded, float value)
{
    for (int64_t j = 1; j < padded; j++)
        for (int64_t i = 0; i < j; i++)
            s[j * BLOCK + i] = value;
}

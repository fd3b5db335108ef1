/*
 * kernels/cpu/simd/attention_block.c - packed blocks of tokens and their products; see
 * attention_block_internal.h.
 *
 * A product goes by tiles of C that stay in registers over the whole sum, so an element is one
 * chain however the tiles are cut: their size is free to differ between instruction sets.
 */
#include "kernels/cpu/simd/attention_block_internal.h"

#include "kernels/cpu/vec_internal.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

enum {
    /* 32 AVX-512 registers hold 16 sums, 16 AVX2 registers (two to a v16) hold 4. */
    TILE_ROWS = WF_ISA_LEVEL == WF_ISA_LEVEL_avx512 ? 8 : 4,
    TILE_VECTORS = WF_ISA_LEVEL == WF_ISA_LEVEL_avx512 ? 2 : 1,
    PREFETCH_FLOATS = 8 * V16, /* a tile prefetches so many: more would wait for each other */
};

_Static_assert(GRAIN % TILE_ROWS == 0, "a tile lies in one grain of rows");

typedef struct sums {
    v16 at[TILE_ROWS][TILE_VECTORS];
} sums;

/* Rows of a head lie apart, so nothing but this brings them near before they are packed. Out of
   line, as tiles have no registers to spare. */
__attribute__((noinline)) static void prefetch(block_ahead *a)
{
    const wf_attention_rows *rows = &a->head->rows;
    int64_t seq = a->head->seq, width = a->head->dim;

    for (int64_t fetched = 0; fetched < PREFETCH_FLOATS && a->token < a->end;
         fetched += width) {
        bool here = a->token < seq;
        const float *row = here ? rows->at[a->row] : rows->next[a->row];

        if (!row) {
            a->end = a->token;
            return;
        }
        row += (here ? a->token : a->token - seq) * rows->stride[a->row];
        for (int64_t d = 0; d < width; d += V16)
            __builtin_prefetch(row + d, 0, 2); /* level 2: level 1 is full of blocks */
        a->row = (a->row + 1) % rows->n;
        a->token += a->row == 0;
    }
}

ALWAYS_INLINE void begin_sums(const block_product *g, int64_t row, const float *c,
                              const int vectors, sums *sum)
{
    UNROLL
    for (int r = 0; r < TILE_ROWS; r++) {
        UNROLL
        for (int v = 0; v < vectors; v++)
            sum->at[r][v] = g->add ? v16_load(c + r * g->c_stride + v * GRAIN) : v16_zero();
    }
    if (!g->scale)
        return;
    UNROLL
    for (int r = 0; r < TILE_ROWS; r++) {
        UNROLL
        for (int v = 0; v < vectors; v++)
            sum->at[r][v] = v16_mul(sum->at[r][v], v16_set1(g->scale[row + r]));
    }
}

/* One tile of C over the terms first .. end - 1; a_row and a_term step through A. */
ALWAYS_INLINE void tile(const block_product *g, const int a_row, const int a_term, int64_t row,
                        int64_t col, int64_t first, int64_t end, const int vectors)
{
    const float *a = g->a + row * a_row + first * a_term;
    const float *b = g->b + first * g->b_stride + col;
    float *c = g->c + row * g->c_stride + col;
    sums sum;

    if (g->ahead->token < g->ahead->end)
        prefetch(g->ahead);
    begin_sums(g, row, c, vectors, &sum);
    UNROLL_TWICE
    for (int64_t p = first; p < end; p++) {
        const float *again = v16_again(a);
        v16 right[TILE_VECTORS];

        UNROLL
        for (int v = 0; v < vectors; v++)
            right[v] = v16_load(b + v * GRAIN);
        UNROLL
        for (int r = 0; r < TILE_ROWS; r++) {
            UNROLL
            for (int v = 0; v < vectors; v++) {
                const float *left = r % 2 == 1 && v == 1 ? again : a;

                sum.at[r][v] = v16_fma(v16_set1(left[r * a_row]), right[v], sum.at[r][v]);
            }
        }
        a += a_term;
        b += g->b_stride;
    }
    UNROLL
    for (int r = 0; r < TILE_ROWS; r++) {
        UNROLL
        for (int v = 0; v < vectors; v++)
            v16_store(c + r * g->c_stride + v * GRAIN, sum.at[r][v]);
    }
}

/* Computes the tiles of one micro-panel of columns. Bounds follow the grain, not the tile: then a value that is
   not finite spreads the same way for every instruction set. */
ALWAYS_INLINE void micropanel(const block_product *g, const int a_row, const int a_term,
                              int64_t col, const int vectors)
{
    for (int64_t row = 0; row < g->m; row += TILE_ROWS) {
        int64_t grain = row / GRAIN * GRAIN;
        int64_t first = g->part == PART_TERMS_FROM_ROW ? grain : 0;
        int64_t end =
            g->part == PART_TERMS_TO_ROW && grain + GRAIN < g->k ? grain + GRAIN : g->k;

        if (g->part != PART_COLUMNS_FROM_ROW || grain <= col)
            tile(g, a_row, a_term, row, col, first, end, vectors);
        else if (vectors > 1 && grain < col + vectors * GRAIN)
            tile(g, a_row, a_term, row, col + GRAIN, first, end, 1);
        else
            break;
    }
}

/* Micro-panels of columns are outermost: a micro-panel of B stays in the first-level cache. */
ALWAYS_INLINE void product(const block_product *g, const int a_row, const int a_term)
{
    int64_t col = 0;

    for (; col + TILE_VECTORS * GRAIN <= g->n; col += TILE_VECTORS * GRAIN)
        micropanel(g, a_row, a_term, col, TILE_VECTORS);
    for (; col < g->n; col += GRAIN)
        micropanel(g, a_row, a_term, col, 1);
}

_Static_assert(TILE_VECTORS <= 2, "micropanel() leaves out the first vector of at most two");

void block_product_rows(const block_product *g)
{
    product(g, BLOCK, 1);
}

void block_product_columns(const block_product *g)
{
    product(g, 1, BLOCK);
}

void block_pack(const float *src, int64_t stride, token_block t, int64_t dim, float scale,
                float *dst)
{
    int64_t width = wf_attention_padded(dim), whole = dim / GRAIN * GRAIN;
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

/* Squares of 16 tokens by 16 features, one after the other */
void block_pack_columns(const float *src, int64_t stride, token_block t, int64_t dim,
                        float scale, float *dst)
{
    v16 s = v16_set1(scale);

    for (int64_t i = 0; i < t.padded; i += GRAIN) {
        for (int64_t d = 0; d < dim; d += GRAIN) {
            v16 x[GRAIN];

            for (int64_t r = 0; r < GRAIN; r++) {
                const float *row = src + (t.begin + i + r) * stride + d;

                x[r] = i + r < t.count ? v16_mul(s, v16_load_n(row, dim - d)) : v16_zero();
            }
            v16_transpose(x);
            for (int64_t c = 0; c < GRAIN; c++)
                v16_store(dst + (d + c) * BLOCK + i, x[c]);
        }
    }
}

void block_unpack(const float *src, token_block t, int64_t dim, float scale, float *dst,
                  int64_t stride)
{
    int64_t width = wf_attention_padded(dim), whole = dim / GRAIN * GRAIN;
    v16 s = v16_set1(scale);

    for (int64_t i = 0; i < t.count; i++, src += width) {
        float *row = dst + (t.begin + i) * stride;

        for (int64_t d = 0; d < whole; d += GRAIN)
            v16_store(row + d, v16_mul(s, v16_load(src + d)));
        if (whole < dim)
            v16_store_n(row + whole, v16_mul(s, v16_load(src + whole)), dim - whole);
    }
}

/* Keys of the block that query i of its block does not see, as they come before its first. */
static int64_t unseen_of(const wf_attention_head *head, token_block queries, token_block keys,
                         int64_t i)
{
    int64_t n = 0;

    if (i < queries.count) /* padding sees all: nobody looks at it */
        n = wf_attention_from(head->from, head->window, queries.begin + i) - keys.begin;
    return n < keys.padded ? n : keys.padded;
}

/* Keys that 16 queries all do not see go a vector at a time. */
static void mask_before(const wf_attention_head *head, float *s, token_block queries,
                        token_block keys, float value)
{
    v16 masked = v16_set1(value);

    for (int64_t i = 0; i < queries.padded; i += GRAIN) {
        int64_t unseen[GRAIN], all = keys.padded, j = 0;

        for (int64_t r = 0; r < GRAIN; r++) {
            unseen[r] = unseen_of(head, queries, keys, i + r);
            all = unseen[r] < all ? unseen[r] : all;
        }
        for (; j < all; j++)
            v16_store(s + j * BLOCK + i, masked);
        for (int64_t r = 0; r < GRAIN; r++)
            for (int64_t key = j; key < unseen[r]; key++)
                s[key * BLOCK + i + r] = value;
    }
}

void block_mask(const wf_attention_head *head, float *s, token_block queries, token_block keys,
                float value)
{
    v16 masked = v16_set1(value);

    for (int64_t j = 0; block_is_diagonal(head, queries, keys) && j < keys.padded; j++) {
        float *row = s + j * BLOCK + j / GRAIN * GRAIN;

        v16_store(row, v16_select(v16m_first(j % GRAIN), masked, v16_load(row)));
    }
    for (int64_t j = keys.count; head->bidirectional && j < keys.padded; j++)
        for (int64_t i = 0; i < queries.padded; i += GRAIN)
            v16_store(s + j * BLOCK + i, masked);
    if (wf_attention_is_bounded(head))
        mask_before(head, s, queries, keys, value);
}

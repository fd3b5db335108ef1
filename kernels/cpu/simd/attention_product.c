/*
 * kernels/cpu/simd/attention_product.c - products of packed blocks of tokens; see
 * attention_block_internal.h.
 *
 * A product goes by tiles of C that stay in registers over the whole sum, so an element is one
 * chain however the tiles are cut: their size is free to differ between instruction sets.
 *
 * A bf16 product cuts the sum in blocks of 32 terms, which begin at multiples of 32. Of a block
 * come two chains of fma from +0, over its even and over its odd terms; they are added, and
 * their sum is added to the element. That is what one instruction of AMX computes (TDPBF16PS),
 * with denormals as zeros: the caller of a bf16 product has set the thread's mode
 * (denormals_internal.h). Terms that are not computed, after the last one or masked, are +0 and
 * change no element but for the sign of a zero.
 */
#include "kernels/cpu/simd/attention_block_internal.h"

#include "kernels/cpu/vec_internal.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

enum {
    /* 32 AVX-512 registers hold 16 sums, 16 AVX2 registers (two to a v16) hold 4. */
    TILE_ROWS = WF_ISA_LEVEL == WF_ISA_LEVEL_avx512 ? 8 : 4,
    TILE_VECTORS = WF_ISA_LEVEL == WF_ISA_LEVEL_avx512 ? 2 : 1,
    /* A bf16 product has three sums for each element: the earlier one, the even and the odd
       terms. */
    BF16_ROWS = WF_ISA_LEVEL == WF_ISA_LEVEL_avx512 ? 4 : 4,
    LINE = 64,            /* bytes of a cache line */
    PREFETCH_BYTES = 512, /* bytes of a tile's prefetches: more would wait for each other */
};

_Static_assert(GRAIN % TILE_ROWS == 0 && GRAIN % BF16_ROWS == 0 && BF16_ROWS <= TILE_ROWS,
               "a tile lies in one grain of rows");

typedef struct sums {
    v16 at[TILE_ROWS][TILE_VECTORS];
} sums;

/* Prefetches rows of a head before they are packed: they are not contiguous, so that nothing
   else brings them near. Out of line, as tiles have no registers to spare. */
__attribute__((noinline)) static void prefetch(block_ahead *a)
{
    const wf_attention_rows *rows = &a->head->rows;
    int64_t seq = a->head->seq, bytes;

    for (int64_t fetched = 0; fetched < PREFETCH_BYTES && a->token < a->end; fetched += bytes) {
        bool here = a->token < seq;
        const char *row = here ? rows->at[a->row] : rows->next[a->row];

        if (!row) {
            a->end = a->token;
            return;
        }
        bytes = rows->bytes[a->row];
        row += (here ? a->token : a->token - seq) * rows->stride[a->row];
        for (int64_t d = 0; d < bytes; d += LINE)
            __builtin_prefetch(row + d, 0, 2); /* level 2: level 1 is full of blocks */
        a->row = (a->row + 1) % rows->n;
        a->token += a->row == 0;
    }
}

ALWAYS_INLINE void begin_sums(const block_product *g, int64_t row, const float *c,
                              const int rows, const int vectors, sums *sum)
{
    UNROLL
    for (int r = 0; r < rows; r++) {
        UNROLL
        for (int v = 0; v < vectors; v++)
            sum->at[r][v] = g->add ? v16_load(c + r * g->c_stride + v * GRAIN) : v16_zero();
    }
    if (!g->scale)
        return;
    UNROLL
    for (int r = 0; r < rows; r++) {
        UNROLL
        for (int v = 0; v < vectors; v++)
            sum->at[r][v] = v16_mul(sum->at[r][v], v16_set1(g->scale[row + r]));
    }
}

ALWAYS_INLINE void end_sums(const block_product *g, float *c, const int rows, const int vectors,
                            const sums *sum)
{
    UNROLL
    for (int r = 0; r < rows; r++) {
        UNROLL
        for (int v = 0; v < vectors; v++)
            v16_store(c + r * g->c_stride + v * GRAIN, sum->at[r][v]);
    }
}

/* Adds the terms to a tile; a_row and a_term step through A, b_term through B. */
ALWAYS_INLINE void add_terms(const float *a, const int a_row, const int a_term, const float *b,
                             int64_t b_term, int64_t terms, const int rows, const int vectors,
                             sums *sum)
{
    UNROLL_TWICE
    for (int64_t p = 0; p < terms; p++) {
        v16 right[TILE_VECTORS];

        UNROLL
        for (int v = 0; v < vectors; v++)
            right[v] = v16_load(b + v * GRAIN);
        UNROLL
        for (int r = 0; r < rows; r++) {
            UNROLL
            for (int v = 0; v < vectors; v++)
                sum->at[r][v] = v16_fma(v16_set1(a[r * a_row]), right[v], sum->at[r][v]);
        }
        a += a_term;
        b += b_term;
    }
}

/* Adds a block of a bf16 product, as pairs of an even and an odd term. */
ALWAYS_INLINE void add_pairs(const float *a, const int a_row, const int a_term, const float *b,
                             int64_t b_term, const int pairs, const int vectors, sums *sum)
{
    sums half[2];

    UNROLL
    for (int h = 0; h < 2; h++) {
        UNROLL
        for (int r = 0; r < BF16_ROWS; r++) {
            UNROLL
            for (int v = 0; v < vectors; v++)
                half[h].at[r][v] = v16_zero();
        }
        add_terms(a + h * a_term, a_row, 2 * a_term, b + h * b_term, 2 * b_term, pairs,
                  BF16_ROWS, vectors, &half[h]);
    }
    UNROLL
    for (int r = 0; r < BF16_ROWS; r++) {
        UNROLL
        for (int v = 0; v < vectors; v++)
            sum->at[r][v] = v16_add(sum->at[r][v], v16_add(half[0].at[r][v], half[1].at[r][v]));
    }
}

/* Adds the terms first .. end - 1 of a bf16 product, multiples of the grain: a block has 32 or
   16. */
ALWAYS_INLINE void add_bf16(const float *a, const int a_row, const int a_term, const float *b,
                            int64_t b_term, int64_t first, int64_t end, const int vectors,
                            sums *sum)
{
    while (first < end) {
        int64_t terms = first % BF16_TERMS == 0 && end - first > GRAIN ? BF16_TERMS : GRAIN;

        if (terms == BF16_TERMS)
            add_pairs(a, a_row, a_term, b, b_term, BF16_TERMS / 2, vectors, sum);
        else
            add_pairs(a, a_row, a_term, b, b_term, GRAIN / 2, vectors, sum);
        first += terms;
        a += terms * a_term;
        b += terms * b_term;
    }
}

/* Computes one tile of C over the terms first .. end - 1. */
ALWAYS_INLINE void tile(const block_product *g, const int a_row, const int a_term, int64_t row,
                        int64_t col, int64_t first, int64_t end, const int vectors,
                        const bool bf16)
{
    const int rows = bf16 ? BF16_ROWS : TILE_ROWS;
    const float *a = g->a + row * a_row + first * a_term;
    const float *b = g->b + first * g->b_stride + col;
    float *c = g->c + row * g->c_stride + col;
    sums sum;

    if (g->ahead->token < g->ahead->end)
        prefetch(g->ahead);
    begin_sums(g, row, c, rows, vectors, &sum);
    if (bf16)
        add_bf16(a, a_row, a_term, b, g->b_stride, first, end, vectors, &sum);
    else
        add_terms(a, a_row, a_term, b, g->b_stride, end - first, TILE_ROWS, vectors, &sum);
    end_sums(g, c, rows, vectors, &sum);
}

/* Computes the tiles of one micro-panel of columns. Bounds follow the grain, not the tile: then
   a value that is not finite spreads the same way for every instruction set. */
ALWAYS_INLINE void micropanel(const block_product *g, const int a_row, const int a_term,
                              int64_t col, const int vectors, const bool bf16)
{
    for (int64_t row = 0; row < g->m; row += bf16 ? BF16_ROWS : TILE_ROWS) {
        int64_t grain = row / GRAIN * GRAIN;
        int64_t first = g->part == PART_TERMS_FROM_ROW ? grain : 0;
        int64_t end =
            g->part == PART_TERMS_TO_ROW && grain + GRAIN < g->k ? grain + GRAIN : g->k;

        if (g->part != PART_COLUMNS_FROM_ROW || grain <= col)
            tile(g, a_row, a_term, row, col, first, end, vectors, bf16);
        else if (vectors > 1 && grain < col + vectors * GRAIN)
            tile(g, a_row, a_term, row, col + GRAIN, first, end, 1, bf16);
        else
            break;
    }
}

/* Micro-panels of columns are outermost: a micro-panel of B stays in the first-level cache. */
ALWAYS_INLINE void product(const block_product *g, const int a_row, const int a_term,
                           const bool bf16)
{
    int64_t col = 0;

    for (; col + TILE_VECTORS * GRAIN <= g->n; col += TILE_VECTORS * GRAIN)
        micropanel(g, a_row, a_term, col, TILE_VECTORS, bf16);
    for (; col < g->n; col += GRAIN)
        micropanel(g, a_row, a_term, col, 1, bf16);
}

_Static_assert(TILE_VECTORS <= 2, "micropanel() leaves out the first vector of at most two");

void block_product_rows(const block_product *g)
{
    if (g->product)
        g->product(g, BLOCK);
    else if (g->bf16)
        product(g, BLOCK, 1, true);
    else
        product(g, BLOCK, 1, false);
}

void block_product_columns(const block_product *g)
{
    if (g->product)
        g->product(g, 1);
    else if (g->bf16)
        product(g, 1, BLOCK, true);
    else
        product(g, 1, BLOCK, false);
}

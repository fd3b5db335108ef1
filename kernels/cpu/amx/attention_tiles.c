/*
 * kernels/cpu/amx/attention_tiles.c - attention of bf16 numbers with its products on a tile
 * unit; all else is that of kernels/cpu/simd/.
 *
 * Operands are packed blocks of floats that are bf16 numbers (attention_block_internal.h). Each
 * product makes tiles of them, A as rows of 32 terms and B in pairs of terms, and takes 2 by 2
 * tiles of C at a time. What a causal mask takes from A is zeros in its tiles, so an infinity
 * in B spreads over a block of 32 terms, not of 16.
 */
#include "kernels/cpu/amx/tile_internal.h"
#include "kernels/cpu/simd/attention_block_internal.h"

enum {
    TILE = GRAIN, /* rows and columns; what a mask leaves is whole rows of tiles */
    LINE = 64,
    DEEP = 4, /* blocks of terms at a time */
    PAIRS = BF16_TERMS / 2,
};

/* Two numbers in a word: A[row][pair], B[pair][column] */
typedef struct tiles {
    _Alignas(LINE) uint32_t a[DEEP][BLOCK / TILE][TILE][PAIRS];
    _Alignas(LINE) uint32_t b[DEEP][2][PAIRS][TILE];
} tiles;

/* The terms of a row that count: those of all rows in its grain */
typedef struct terms {
    int64_t first, end;
} terms;

static terms terms_of(const block_product *g, int64_t row)
{
    int64_t grain = row / GRAIN * GRAIN;
    terms t = {0, g->k};

    if (g->part == PART_TERMS_FROM_ROW)
        t.first = grain;
    if (g->part == PART_TERMS_TO_ROW && grain + GRAIN < g->k)
        t.end = grain + GRAIN;
    return t;
}

/* Lane by lane: x in the low half of the word, y in the high half */
static inline v16u pair_of(const float *x, const float *y)
{
    return v16u_or(v16u_right(v16u_of(v16_load(x)), 16),
                   v16u_and(v16u_of(v16_load(y)), v16u_set1(0xffff0000u)));
}

/* Sixteen rows of A, the block of terms from p on, where A(r, p) = a[p * BLOCK + r] */
static void pack_columns(const block_product *g, int64_t row, int64_t p,
                         uint32_t to[TILE][PAIRS])
{
    terms t = terms_of(g, row);
    v16 word[PAIRS];

    for (int64_t q = 0; q < PAIRS; q++) {
        const float *a = g->a + (p + 2 * q) * BLOCK + row;
        bool counts = p + 2 * q >= t.first && p + 2 * q < t.end;

        word[q] = counts ? v16_of(pair_of(a, a + BLOCK)) : v16_zero();
    }
    v16_transpose(word);
    for (int64_t i = 0; i < TILE; i++)
        v16u_store(to[i], v16u_of(word[i]));
}

/* The same, where A(r, p) = a[r * BLOCK + p] */
static void pack_rows(const block_product *g, int64_t row, int64_t p, uint32_t to[TILE][PAIRS])
{
    terms t = terms_of(g, row);

    for (int64_t i = 0; i < TILE; i++)
        for (int64_t h = 0; h < BF16_TERMS; h += GRAIN) {
            bool counts = p + h >= t.first && p + h < t.end;
            const float *a = g->a + (row + i) * BLOCK + p + h;

            v16_store_bf16_n((uint16_t *)to[i] + h, counts ? v16_load(a) : v16_zero(), GRAIN);
        }
}

/* Sixteen columns of B, the block of terms from p on */
static void pack_b(const block_product *g, int64_t p, int64_t col, uint32_t to[PAIRS][TILE])
{
    for (int64_t q = 0; q < PAIRS; q++) {
        const float *b = g->b + (p + 2 * q) * g->b_stride + col;

        v16u_store(to[q], p + 2 * q < g->k ? pair_of(b, b + g->b_stride) : v16u_set1(0));
    }
}

/* Rescales the content of C before a product adds to it. */
static void rescale(const block_product *g)
{
    for (int64_t r = 0; g->add && g->scale && r < g->m; r++)
        for (int64_t c = 0; c < g->n; c += V16) {
            float *at = g->c + r * g->c_stride + c;

            v16_store(at, v16_mul(v16_load(at), v16_set1(g->scale[r])));
        }
}

static inline void load_sums(const float *c, int64_t row_bytes, bool high, bool wide)
{
    const float *below = c + TILE * row_bytes / (int64_t)sizeof *c;

    wf_tile_load(0, c, row_bytes);
    if (wide)
        wf_tile_load(1, c + TILE, row_bytes);
    if (high)
        wf_tile_load(2, below, row_bytes);
    if (high && wide)
        wf_tile_load(3, below + TILE, row_bytes);
}

static inline void store_sums(float *c, int64_t row_bytes, bool high, bool wide)
{
    float *below = c + TILE * row_bytes / (int64_t)sizeof *c;

    wf_tile_store(0, c, row_bytes);
    if (wide)
        wf_tile_store(1, c + TILE, row_bytes);
    if (high)
        wf_tile_store(2, below, row_bytes);
    if (high && wide)
        wf_tile_store(3, below + TILE, row_bytes);
}

/* Adds the blocks [first, end) to 16 or 32 rows and columns of C. */
static void add_blocks(const block_product *g, const tiles *x, int64_t row, int64_t col,
                       int64_t first, int64_t end, bool begin)
{
    bool high = g->m - row > TILE, wide = g->n - col > TILE;
    int64_t tile = row / TILE, row_bytes = g->c_stride * (int64_t)sizeof *g->c;
    float *c = g->c + row * g->c_stride + col;

    if (begin) {
        wf_tile_zero(0);
        wf_tile_zero(1);
        wf_tile_zero(2);
        wf_tile_zero(3);
    } else {
        load_sums(c, row_bytes, high, wide);
    }
    for (int64_t i = first; i < end; i++) {
        wf_tile_load(6, x->b[i][0], LINE);
        wf_tile_load(4, x->a[i][tile], LINE);
        wf_tile_multiply(0, 4, 6);
        if (wide) {
            wf_tile_load(7, x->b[i][1], LINE);
            wf_tile_multiply(1, 4, 7);
        }
        if (high) {
            wf_tile_load(5, x->a[i][tile + 1], LINE);
            wf_tile_multiply(2, 5, 6);
        }
        if (high && wide)
            wf_tile_multiply(3, 5, 7);
    }
    store_sums(c, row_bytes, high, wide);
}

/* Adds blocks of terms [p, p + BF16_TERMS * n). */
static void add_deep(const block_product *g, tiles *x, int64_t p, int64_t n)
{
    for (int64_t col = 0; col < g->n; col += 2 * TILE) {
        for (int64_t i = 0; i < n; i++) {
            pack_b(g, p + i * BF16_TERMS, col, x->b[i][0]);
            if (g->n - col > TILE)
                pack_b(g, p + i * BF16_TERMS, col + TILE, x->b[i][1]);
        }
        for (int64_t row = 0; row < g->m; row += 2 * TILE) {
            int64_t first = terms_of(g, row).first - p;
            int64_t end = terms_of(g, row + TILE).end - p;

            if (g->part == PART_COLUMNS_FROM_ROW && row >= col + 2 * TILE)
                break;
            first = first > 0 ? first / BF16_TERMS : 0;
            end = (end + BF16_TERMS - 1) / BF16_TERMS;
            add_blocks(g, x, row, col, first, end < n ? end : n, p == 0 && !g->add);
        }
    }
}

static void multiply(const block_product *g, int64_t a_row)
{
    tiles x;

    rescale(g);
    for (int64_t p = 0; p < g->k; p += DEEP * BF16_TERMS) {
        int64_t n = (g->k - p + BF16_TERMS - 1) / BF16_TERMS;

        n = n < DEEP ? n : DEEP;
        for (int64_t i = 0; i < n; i++)
            for (int64_t row = 0; row < g->m; row += TILE) {
                if (a_row == 1)
                    pack_columns(g, row, p + i * BF16_TERMS, x.a[i][row / TILE]);
                else
                    pack_rows(g, row, p + i * BF16_TERMS, x.a[i][row / TILE]);
            }
        add_deep(g, &x, p, n);
    }
}

static void attention(const wf_attention_head *head, void *out, int64_t out_stride, float *lse,
                      void *workspace)
{
    wf_attention_head h = *head;

    if (head->bf16) {
        h.product = multiply;
        wf_tile_configure();
    }
    WF_ISA_NAME(wf_attention)(&h, out, out_stride, lse, workspace);
    if (head->bf16)
        wf_tile_release();
}

static void attention_grad(const wf_attention_head *head, const void *out, int64_t out_stride,
                           const float *lse, const void *dout, int64_t dout_stride, void *dq,
                           int64_t dq_stride, float *dk, float *dv, void *workspace)
{
    wf_attention_head h = *head;

    if (head->bf16) {
        h.product = multiply;
        wf_tile_configure();
    }
    WF_ISA_NAME(wf_attention_grad)
    (&h, out, out_stride, lse, dout, dout_stride, dq, dq_stride, dk, dv, workspace);
    if (head->bf16)
        wf_tile_release();
}

const wf_simd WF_ISA_NAME(wf_simd_attention_tiles) = {
    .name = "amx", .attention = attention, .attention_grad = attention_grad};

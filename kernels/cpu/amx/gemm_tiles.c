/*
 * kernels/cpu/amx/gemm_tiles.c - products of bf16 operands on a tile unit, whose instruction adds one block of terms to
 * 16 x 16 sums as kernels/cpu/simd_internal.h says. Two by two of them are the microkernel's tile: four tiles
 * hold sums, two blocks of A, two blocks of B. Blocking, panels of B and the tree are those of kernels/cpu/simd/.
 *
 * A block of A is packed as rows of WF_GEMM_TERMS terms, a block of B in pairs of terms.
 */
#include "kernels/cpu/amx/tile_internal.h"
#include "kernels/cpu/simd/gemm_bf16_internal.h"
#include "kernels/cpu/simd/kernels_internal.h"
#include "kernels/cpu/task_size_internal.h"
#include <string.h>

enum {
    TILE = 16, /* rows and columns of sums */
    HIGH = 2 * TILE,
    WIDE = 2 * TILE,
    LINE = 64,
    ROW = WIDE * sizeof(float), /* bytes of a row of sums, and of a block of B */
    A_BLOCK = TILE * WF_GEMM_TERMS * sizeof(uint16_t),
    B_BLOCK = GEMM_PAIRS * WIDE * sizeof(uint32_t)
};

static void pack_cols(void *panel, const wf_gemm_operand *x, int64_t count, int64_t k)
{
    gemm_pack_pairs(WIDE, panel, x, count, k);
}

/* Sixteen rows of a block whose terms do not lie side by side. */
static void turn(char *to, const wf_gemm_operand *x, int64_t count, int64_t k)
{
    v16u word[GEMM_PAIRS];
    v16 row[V16];

    WF_ISA_NAME(wf_gemm_pairs)(word, x, count, k);
    for (int q = 0; q < GEMM_PAIRS; q++)
        row[q] = v16_of(word[q]);
    v16_transpose(row);
    for (int i = 0; i < V16; i++)
        memcpy(to + i * LINE, &row[i], LINE);
}

static void copy(char *to, const wf_gemm_operand *x, int64_t count, int64_t k)
{
    for (int64_t i = 0; i < count; i++, to += LINE) {
        if (k < WF_GEMM_TERMS)
            memset(to, 0, LINE);
        if (k < WF_GEMM_TERMS)
            memcpy(to, wf_gemm_from(*x, i, 0).at, (size_t)k * sizeof(uint16_t));
        else
            memcpy(to, wf_gemm_from(*x, i, 0).at, LINE);
    }
}

static void pack_rows(void *panel, int height, const wf_gemm_operand *x, int64_t count,
                      int64_t k)
{
    char *to = panel;

    for (int64_t p = 0; p < k; p += WF_GEMM_TERMS) {
        for (int i = 0; i < height; i += TILE, to += A_BLOCK) {
            wf_gemm_operand block = wf_gemm_from(*x, i, p);
            int64_t rows = wf_least(TILE, count - i), terms = wf_least(WF_GEMM_TERMS, k - p);

            if (rows < TILE)
                memset(to, 0, A_BLOCK);
            if (rows > 0 && x->along == 1)
                copy(to, &block, rows, terms);
            else if (rows > 0)
                turn(to, &block, rows, terms);
        }
    }
}

static void prefetch(gemm_ahead *a, int64_t rows)
{
    for (; rows > 0 && a->left > 0; rows--, a->left--, a->at += a->stride) {
        for (int64_t i = 0; i < a->lines; i++)
            __builtin_prefetch(a->at + i * LINE);
    }
}

/* What a tile prefetches, some rows of lines at each block. */
typedef struct fetch {
    gemm_ahead next;             /* is packed after this tile */
    gemm_ahead sums;             /* the next tile's, which the last KC block left */
    int64_t next_rows, sum_rows; /* at each block */
} fetch;

static fetch fetch_of(const gemm_tile *t, int64_t rows)
{
    const wf_gemm_kc_block *w = t->kc_block;
    const float *next = t->spill + w->step->level * t->spill_level + HIGH * WIDE;
    fetch f = {.next = t->ahead};
    int64_t blocks = w->k / WF_GEMM_TERMS;

    if (w->resume)
        f.sums = (gemm_ahead){(const char *)next, ROW, ROW / LINE, rows};
    f.next_rows = blocks > 0 ? gemm_tiles(f.next.left, blocks) : 0;
    f.sum_rows = blocks > 0 ? gemm_tiles(f.sums.left, blocks) : 0;
    return f;
}

INLINE void zero(const int high)
{
    wf_tile_zero(0);
    wf_tile_zero(1);
    if (high == HIGH) {
        wf_tile_zero(2);
        wf_tile_zero(3);
    }
}

INLINE void load(const int high, const float *sum)
{
    wf_tile_load(0, sum, ROW);
    wf_tile_load(1, sum + TILE, ROW);
    if (high == HIGH) {
        wf_tile_load(2, sum + TILE * WIDE, ROW);
        wf_tile_load(3, sum + TILE * WIDE + TILE, ROW);
    }
}

INLINE void store(const int high, float *sum)
{
    wf_tile_store(0, sum, ROW);
    wf_tile_store(1, sum + TILE, ROW);
    if (high == HIGH) {
        wf_tile_store(2, sum + TILE * WIDE, ROW);
        wf_tile_store(3, sum + TILE * WIDE + TILE, ROW);
    }
}

INLINE void add_blocks(const int high, const char *a, const char *b, int64_t blocks, fetch *f)
{
    for (; blocks > 0; blocks--) {
        wf_tile_load(6, b, ROW);
        wf_tile_load(4, a, LINE);
        wf_tile_multiply(0, 4, 6);
        wf_tile_load(7, b + TILE * sizeof(uint32_t), ROW);
        wf_tile_multiply(1, 4, 7);
        if (high == HIGH) {
            wf_tile_load(5, a + A_BLOCK, LINE);
            wf_tile_multiply(2, 5, 6);
            wf_tile_multiply(3, 5, 7);
        }
        prefetch(&f->next, f->next_rows);
        prefetch(&f->sums, f->sum_rows);
        a += high / TILE * A_BLOCK;
        b += B_BLOCK;
    }
}

INLINE void run(const int high, const gemm_tile *t)
{
    _Alignas(LINE) float local[WF_GEMM_LOCAL * HIGH * WIDE], sum[HIGH * WIDE];
    const wf_gemm_step *step = t->kc_block->step, *end = step + t->kc_block->n_steps;
    const gemm_stack stack = {local, high, WIDE};
    const char *a = t->rows.panel, *b = t->cols.panel;
    fetch f = fetch_of(t, high);

    if (t->kc_block->resume)
        load(high, t->spill + step->level * t->spill_level);
    else
        zero(high);
    for (; step < end; step++) {
        int64_t blocks = gemm_tiles(step->k, WF_GEMM_TERMS);

        add_blocks(high, a, b, blocks, &f);
        a += blocks * (high / TILE) * A_BLOCK;
        b += blocks * B_BLOCK;
        if (step->merges < 0)
            continue;
        store(high, sum);
        WF_ISA_NAME(wf_gemm_close)(t, step, &stack, sum);
        zero(high);
    }
    if (end[-1].merges < 0)
        store(high, t->spill + end[-1].level * t->spill_level);
}

static void microkernel(int cut, const gemm_tile *t)
{
    if (cut == 0)
        run(HIGH, t);
    else
        run(TILE, t);
}

static void enter(void)
{
    wf_tile_configure();
}

static void leave(void)
{
    wf_tile_release();
}

/* A panel of B of 512 terms is 32 KiB, which fits a level 1 cache of 48 beside a stream of A; the sums of a block of
   C, which wait between KC blocks, are 2 MiB. */
static const gemm_kind tiles = {
    .limits = {.mr = HIGH,
               .nr = WIDE,
               .kc = 512,
               .block_rows = 512,
               .block_cols = 1024,
               .pad = WF_GEMM_TERMS},
    .heights = {HIGH, TILE},
    .a_bytes = sizeof(uint16_t),
    .b_bytes = sizeof(uint16_t),
    .pack_rows = pack_rows,
    .pack_cols = pack_cols,
    .microkernel = microkernel,
    .enter = enter,
    .leave = leave,
};

static size_t workspace_bytes(const wf_gemm *g, int threads)
{
    if (!g->bf16 || WF_ISA_NAME(wf_gemm_is_few)(g))
        return WF_ISA_NAME(wf_gemm_workspace)(g, threads);
    return WF_ISA_NAME(wf_gemm_workspace_of)(&tiles, g, threads);
}

static void multiply(struct wf_team *team, const wf_gemm *g, void *workspace)
{
    if (g->bf16 && !WF_ISA_NAME(wf_gemm_is_few)(g))
        WF_ISA_NAME(wf_gemm_run)(&tiles, team, g, workspace);
    else
        WF_ISA_NAME(wf_gemm)(team, g, workspace);
}

const wf_simd WF_ISA_NAME(wf_simd_tiles) = {
    .name = "amx", .gemm_workspace = workspace_bytes, .gemm = multiply};

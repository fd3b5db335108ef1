/*
 * kernels/cpu/simd/gemm_bf16_microkernel.c - the microkernel of a product of bf16 operands,
 * where there is no instruction for it. A block of WF_GEMM_TERMS terms is two passes over the
 * tile in registers: its even terms, which are then put aside, and its odd ones, to which they
 * are added. The chunk's sum waits in the level 1 cache.
 */
#include "core/numerics/tree.h"
#include "kernels/cpu/simd/gemm_bf16_internal.h"
#include <string.h>

#include "kernels/cpu/simd/gemm_bf16_block_internal.h"

enum { LINE = 64 };

/* The addresses that a tile prefetches while it computes, some rows of lines at each block. */
typedef struct fetch {
    gemm_ahead next; /* is packed after this tile */
    gemm_ahead own;  /* is written, or added to, in the end */
    int64_t next_rows, own_rows;
} fetch;

static fetch fetch_of(const gemm_tile *t)
{
    fetch f = {.next = t->ahead};
    int64_t blocks = t->kc_block->k / WF_GEMM_TERMS;

    if (t->kc_block->last)
        f.own = t->own;
    f.next_rows = blocks > 0 ? gemm_tiles(f.next.left, blocks) : 0;
    f.own_rows = blocks > 0 ? gemm_tiles(f.own.left, blocks) : 0;
    return f;
}

INLINE void prefetch_rows(gemm_ahead *a, const int write, int64_t rows)
{
    for (; rows > 0 && a->left > 0; rows--, a->left--, a->at += a->stride) {
        for (int64_t i = 0; i < a->lines; i++) {
            if (write) /* the builtin takes literals only */
                __builtin_prefetch(a->at + i * LINE, 1);
            else
                __builtin_prefetch(a->at + i * LINE, 0);
        }
    }
}

/* Adds the k terms of a step to `sum`, a block after the other; the chunk may begin with the
   first one. */
INLINE void add_blocks(const int rows, bool first, float *sum, const float *a, const float *b,
                       int64_t k, fetch *f)
{
    gemm_modes modes = gemm_flush(sum);

    for (; k > 0; k -= WF_GEMM_TERMS, first = false) {
        prefetch_rows(&f->next, 0, f->next_rows);
        prefetch_rows(&f->own, 1, f->own_rows);
        if (k >= WF_GEMM_TERMS) /* a constant is faster */
            gemm_add_block(rows, 1, rows, first, sum, a, b, GEMM_PAIRS);
        else
            gemm_add_block(rows, 1, rows, first, sum, a, b, ((int)k + 1) / 2);
        a += WF_GEMM_TERMS * rows;
        b += WF_GEMM_TERMS * GEMM_NR;
    }
    gemm_restore(modes, sum);
}

/* to = older + sum, and in C every zero is +0. Denormals are numbers here: ranks add the same
   nodes. */
INLINE void add_node(const int rows, const bool root, float *to, int64_t to_row,
                     const float *older, const float *sum)
{
    for (int i = 0; i < rows; i++) {
        UNROLL
        for (int v = 0; v < GEMM_VECTORS; v++) {
            int at = i * GEMM_NR + v * V16;
            v16 x = v16_add(v16_load(older + at), v16_load(sum + at));

            v16_store(to + i * to_row + v * V16, root ? v16_add(x, v16_zero()) : x);
        }
    }
}

/* Closes the chunk of a step, which has ended with `sum`: adds the older nodes that the step
   merges. */
INLINE void close_chunk(const int rows, const gemm_tile *t, const wf_gemm_step *step,
                        float *local, float *sum)
{
    static const _Alignas(64) float zeros[GEMM_TILE];
    const bool root = t->kc_block->last && step + 1 == t->kc_block->step + t->kc_block->n_steps;
    const float *older[WF_TREE_DEPTH] = {zeros};
    int last = step->merges > 0 ? step->merges - 1 : 0;

    gemm_older(t, step, local, GEMM_TILE, older);
    for (int l = 0; l < last; l++)
        add_node(rows, false, sum, GEMM_NR, older[l], sum);
    if (root)
        add_node(rows, true, t->c, t->c_row, older[last], sum);
    else
        add_node(rows, false, gemm_node(t, step, local, GEMM_TILE), GEMM_NR, older[last], sum);
}

INLINE void run(const int rows, const gemm_tile *t)
{
    _Alignas(64) float local[WF_GEMM_LOCAL * GEMM_TILE], sum[GEMM_TILE];
    const size_t bytes = (size_t)(rows * GEMM_NR) * sizeof *sum;
    const wf_gemm_step *step = t->kc_block->step, *end = step + t->kc_block->n_steps;
    const float *a = t->rows.panel, *b = t->cols.panel;
    bool begins = !t->kc_block->resume;
    fetch f = fetch_of(t);

    if (!begins)
        memcpy(sum, t->spill + step->level * t->spill_level, bytes);
    for (; step < end; step++) {
        int64_t blocks = gemm_tiles(step->k, WF_GEMM_TERMS);
        bool root = t->kc_block->last && step + 1 == end;
        bool is_node = begins && step->merges == 0 && !root;
        float *to = is_node ? gemm_node(t, step, local, GEMM_TILE) : sum;

        if (blocks > 0)
            add_blocks(rows, begins, to, a, b, step->k, &f);
        else if (begins)
            memset(to, 0, bytes);
        a += blocks * WF_GEMM_TERMS * rows;
        b += blocks * WF_GEMM_TERMS * GEMM_NR;
        begins = step->merges >= 0;
        if (begins && !is_node)
            close_chunk(rows, t, step, local, sum);
    }
    if (!begins)
        memcpy(t->spill + end[-1].level * t->spill_level, sum, bytes);
}

/* One function for each height, in which loops over rows are straight lines over registers. */
static void run_0(const gemm_tile *t)
{
    run(gemm_height(0), t);
}

static void run_1(const gemm_tile *t)
{
    run(gemm_height(1), t);
}

static void run_2(const gemm_tile *t)
{
    run(gemm_height(2), t);
}

static void run_3(const gemm_tile *t)
{
    run(gemm_height(3), t);
}

static void run_4(const gemm_tile *t)
{
    run(gemm_height(4), t);
}

void WF_ISA_NAME(wf_gemm_bf16_microkernel)(int cut, const gemm_tile *tile)
{
    static void (*const runs[GEMM_CUTS])(const gemm_tile *) = {run_0, run_1, run_2, run_3,
                                                               run_4};

    runs[cut](tile);
}

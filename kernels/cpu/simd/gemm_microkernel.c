/*
 * kernels/cpu/simd/gemm_microkernel.c - the microkernel of a product: a tile in registers. An
 * element is the midpoint tree over its chunks, each of them one ascending chain of fused
 * multiply-adds from +0; cuts between KC blocks and steps only say where the chain and the
 * tree's open nodes wait.
 */
#include "kernels/cpu/simd/gemm_internal.h"

#define INLINE static inline __attribute__((always_inline))

enum { LINE = 64 };

typedef struct accumulators {
    v16 at[GEMM_MR][GEMM_VECTORS];
} accumulators;

INLINE void clear(const int rows, accumulators *acc)
{
    UNROLL
    for (int i = 0; i < rows; i++) {
        UNROLL
        for (int v = 0; v < GEMM_VECTORS; v++)
            acc->at[i][v] = v16_zero();
    }
}

INLINE void load(const int rows, accumulators *acc, const float *from)
{
    UNROLL
    for (int i = 0; i < rows; i++) {
        UNROLL
        for (int v = 0; v < GEMM_VECTORS; v++)
            acc->at[i][v] = v16_load(from + i * GEMM_NR + v * V16);
    }
}

INLINE void store(const int rows, const accumulators *acc, float *to, int64_t row)
{
    UNROLL
    for (int i = 0; i < rows; i++) {
        UNROLL
        for (int v = 0; v < GEMM_VECTORS; v++)
            v16_store(to + i * row + v * V16, acc->at[i][v]);
    }
}

/* acc = older + acc */
INLINE void merge(const int rows, accumulators *acc, const float *older)
{
    UNROLL
    for (int i = 0; i < rows; i++) {
        UNROLL
        for (int v = 0; v < GEMM_VECTORS; v++)
            acc->at[i][v] = v16_add(v16_load(older + i * GEMM_NR + v * V16), acc->at[i][v]);
    }
}

/* Returns the tile's share of a step: in its panel, `done` elements on, or in place. */
INLINE wf_gemm_operand share(const gemm_source *s, const wf_gemm_operand *all, int width,
                             int64_t done)
{
    if (s->panel)
        return (wf_gemm_operand){(const float *)s->panel + done * width, 1, width,
                                 sizeof(float)};
    return wf_gemm_from(*all, s->first, 0);
}

/*
 * The addresses that a tile prefetches while it computes, a row of lines at regular steps of
 * the long dimension: all at once would fill the few line fill buffers of a core.
 */
typedef struct prefetch {
    gemm_ahead next;      /* is read by packing after this tile */
    gemm_ahead own;       /* is written, or added to, in the end */
    int64_t every, until; /* elements from one row to the next; until then */
} prefetch;

INLINE void prefetch_row(gemm_ahead *a, const int write, int64_t lines)
{
    if (a->left <= 0)
        return;
    for (int64_t i = 0; i < lines; i++) {
        if (write) /* the builtin takes literals only */
            __builtin_prefetch(a->at + i * LINE, 1);
        else
            __builtin_prefetch(a->at + i * LINE, 0);
    }
    a->at += a->stride;
    a->left--;
}

/* acc += a b, one element of the long dimension after the other; b's columns are contiguous. */
INLINE void multiply(const int rows, accumulators *acc, const float *a, int64_t a_across,
                     int64_t a_along, const float *b, int64_t b_along, int64_t k)
{
    UNROLL_TWICE
    for (int64_t p = 0; p < k; p++) {
        v16 row[GEMM_VECTORS];

        UNROLL
        for (int v = 0; v < GEMM_VECTORS; v++) {
            row[v] = v16_load(b + v * V16);
            __builtin_prefetch(b + 8 * b_along + v * V16);
        }
        UNROLL
        for (int i = 0; i < rows; i++) {
            UNROLL
            for (int v = 0; v < GEMM_VECTORS; v++)
                acc->at[i][v] = v16_fma(v16_set1(a[i * a_across]), row[v], acc->at[i][v]);
        }
        a += a_along;
        b += b_along;
    }
}

/* Multiplies by one of the two layouts of a tile's rows, each with one stride that is a
   constant. */
INLINE void multiply_step(const int rows, accumulators *acc, wf_gemm_operand a,
                          wf_gemm_operand b, int64_t k, prefetch *fetch)
{
    const float *at_a = a.at, *at_b = b.at;

    for (int64_t left = k, some; left > 0; left -= some) {
        if (fetch->until == 0) {
            prefetch_row(&fetch->next, 0, fetch->next.lines);
            prefetch_row(&fetch->own, 1, GEMM_VECTORS);
            fetch->until = fetch->every;
        }
        some = left < fetch->until ? left : fetch->until;
        fetch->until -= some;
        if (a.across == 1)
            multiply(rows, acc, at_a, 1, a.along, at_b, b.along, some);
        else
            multiply(rows, acc, at_a, a.across, 1, at_b, b.along, some);
        at_a += some * a.along;
        at_b += some * b.along;
    }
}

INLINE prefetch prefetch_of(const int rows, const gemm_tile *t)
{
    const wf_gemm_kc_block *w = t->kc_block;
    const wf_gemm_step *last = &w->step[w->n_steps - 1];
    int level = last->level - (last->merges > 0 ? last->merges : 0);
    float *spill = t->spill + level * t->spill_level;
    prefetch fetch = {.next = t->ahead};
    int64_t most = fetch.next.left > rows ? fetch.next.left : rows;

    fetch.own = w->last ? t->own
                        : (gemm_ahead){(const char *)spill, GEMM_NR * sizeof(float),
                                       GEMM_VECTORS, rows};
    fetch.every = w->k > most ? w->k / most : 1;
    return fetch;
}

/* Clears the signs of zeros, which must not depend on how chunks lie on ranks: -0 + -0 is -0,
   but -0 + an empty chunk is +0. */
INLINE void clear_signs(const int rows, accumulators *acc)
{
    UNROLL
    for (int i = 0; i < rows; i++) {
        UNROLL
        for (int v = 0; v < GEMM_VECTORS; v++)
            acc->at[i][v] = v16_add(acc->at[i][v], v16_zero());
    }
}

INLINE void run(const int rows, const gemm_tile *t)
{
    _Alignas(64) float own[WF_GEMM_LOCAL][GEMM_TILE];
    const wf_gemm_step *step = t->kc_block->step, *end = step + t->kc_block->n_steps;
    prefetch fetch = prefetch_of(rows, t);
    int64_t done = 0;
    accumulators acc;

    clear(rows, &acc);
    if (t->kc_block->resume)
        load(rows, &acc, t->spill + step->level * t->spill_level);
    for (; step < end; step++) {
        int level = step->level;

        if (step->k > 0) {
            wf_gemm_operand a = share(&t->rows, &step->rows, rows, done);
            wf_gemm_operand b = share(&t->cols, &step->cols, GEMM_NR, done);

            multiply_step(rows, &acc, a, b, step->k, &fetch);
            done += step->k;
        }
        if (step->merges < 0)
            continue;
        for (int merges = step->merges; merges > 0; merges--) {
            level--;
            merge(rows, &acc,
                  step->spilled >> level & 1 ? t->spill + level * t->spill_level
                                             : own[level % WF_GEMM_LOCAL]);
        }
        if (step + 1 == end && t->kc_block->last) {
            clear_signs(rows, &acc);
            store(rows, &acc, t->c, t->c_row);
        } else {
            store(rows, &acc,
                  step->spills ? t->spill + level * t->spill_level : own[level % WF_GEMM_LOCAL],
                  GEMM_NR);
        }
        clear(rows, &acc);
    }
    if (end[-1].merges < 0)
        store(rows, &acc, t->spill + end[-1].level * t->spill_level, GEMM_NR);
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

void WF_ISA_NAME(wf_gemm_microkernel)(int cut, const gemm_tile *tile)
{
    static void (*const runs[GEMM_CUTS])(const gemm_tile *) = {run_0, run_1, run_2, run_3,
                                                               run_4};

    runs[cut](tile);
}

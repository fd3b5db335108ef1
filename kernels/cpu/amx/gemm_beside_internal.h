/*
 * kernels/cpu/amx/gemm_beside_internal.h - what vector instructions do while the tile unit
 * multiplies: they add a chunk's sums to older nodes of the tree, and bring a root to C, some
 * rows at each block of terms of the chunk that follows.
 */
#ifndef WF_KERNELS_CPU_AMX_GEMM_BESIDE_INTERNAL_H
#define WF_KERNELS_CPU_AMX_GEMM_BESIDE_INTERNAL_H

#include "core/numerics/tree.h"
#include "kernels/cpu/amx/gemm_tiles_internal.h"
#include "kernels/cpu/task_size_internal.h"
#include "kernels/cpu/vec_bf16_internal.h"

/* A chunk's sums become a node of the tree, to = older[merges - 1] + (... + (older[0] + sum)),
   or the root, which goes to C. */
typedef struct beside {
    const float *sum, *older[WF_TREE_DEPTH];
    int merges;
    float *to;    /* NULL: C */
    int64_t rows; /* 0: there is nothing to do */
} beside;

/* Copies the nodes in use, which are few. */
INLINE void beside_copy(beside *to, const beside *from)
{
    to->rows = from->rows;
    if (from->rows == 0)
        return;
    to->sum = from->sum;
    to->merges = from->merges;
    to->to = from->to;
    for (int l = 0; l < from->merges; l++)
        to->older[l] = from->older[l];
}

INLINE v16 beside_node(const int merges, const beside *x, int64_t at)
{
    v16 y = v16_load(x->sum + at);

    for (int l = 0; l < merges; l++)
        y = v16_add(v16_load(x->older[l] + at), y);
    return y;
}

/* Puts a row of C, whose zeros are +0. */
INLINE void beside_put(const int merges, const beside *x, const gemm_out *out, int64_t at,
                       char *c)
{
    for (int64_t j = 0; j < out->cols; j += V16) {
        int64_t n = wf_least(V16, out->cols - j);
        v16 y = v16_add(beside_node(merges, x, at + j), v16_zero());
        float *to = (float *)(void *)c + j;

        if (out->bf16)
            v16_store_bf16_n((uint16_t *)(void *)c + j, v16_narrow_bf16(y), n);
        else if (out->add)
            v16_store_n(to, v16_add(v16_load_n(to, n), y), n);
        else
            v16_store_n(to, y, n);
    }
}

/* Puts whole cache lines, by non-temporal stores where C is large. */
INLINE void beside_put_lines(const int merges, const beside *x, const gemm_out *out, int64_t at,
                             char *c)
{
    v16 y[2];

    for (int i = 0; i < 2; i++)
        y[i] = v16_add(beside_node(merges, x, at + i * V16), v16_zero());
    if (out->bf16)
        y[0] = v16_of(v16_narrow_two(y[0], y[1]));
    for (int i = 0; i < (out->bf16 ? 1 : 2); i++, c += LINE) {
        if (out->non_temporal)
            v16_store_non_temporal((float *)(void *)c, y[i]);
        else
            v16_store((float *)(void *)c, y[i]);
    }
}

/* Puts rows of C. */
INLINE void beside_put_rows(const int merges, const beside *x, const gemm_out *to, int64_t row,
                            int64_t end)
{
    const gemm_out out = *to;
    const bool lines = out.cols == WIDE && !out.add;
    char *c = out.c + row * out.row_bytes;

    for (int64_t at = row * WIDE; at < end * WIDE; at += WIDE, c += out.row_bytes) {
        if (lines)
            beside_put_lines(merges, x, &out, at, c);
        else
            beside_put(merges, x, &out, at, c);
    }
}

INLINE void beside_rows(const int merges, const beside *from, const gemm_out *out, int64_t row,
                        int64_t end)
{
    const beside x = *from; /* no store can change it: its pointers stay in registers */

    if (!x.to)
        beside_put_rows(merges, &x, out, row, end);
    for (int64_t at = row * WIDE; x.to && at < end * WIDE; at += V16)
        v16_store(x.to + at, beside_node(merges, &x, at));
}

/* Runs rows [row, end) of the side task; `out` is C. */
static void beside_run(const beside *x, const gemm_out *out, int64_t row, int64_t end)
{
    if (x->merges == 0) /* a constant is faster */
        beside_rows(0, x, out, row, end);
    else if (x->merges == 1)
        beside_rows(1, x, out, row, end);
    else if (x->merges == 2)
        beside_rows(2, x, out, row, end);
    else if (x->merges == 3)
        beside_rows(3, x, out, row, end);
    else
        beside_rows(x->merges, x, out, row, end);
}

#endif

/*
 * kernels/cpu/amx/gemm_beside_internal.h - what vector instructions do while the tile unit multiplies: they add a chunk's sums to
 * older nodes of the tree, and bring roots to C, some rows at each block of terms. A chunk's sums lie in
 * memory by then, and a store of them has long ended, which a load of it would have to wait for.
 */
#ifndef WF_KERNELS_CPU_AMX_GEMM_BESIDE_INTERNAL_H
#define WF_KERNELS_CPU_AMX_GEMM_BESIDE_INTERNAL_H

#include "core/numerics/tree.h"
#include "kernels/cpu/amx/gemm_tiles_internal.h"
#include "kernels/cpu/task_size_internal.h"
#include "kernels/cpu/vec_bf16_internal.h"

/* to = older[merges - 1] + (... + (older[0] + sum)), one row after the other. */
typedef struct beside_node {
    const float *sum, *older[WF_TREE_DEPTH];
    int merges;
    float *to;
    int64_t rows; /* 0: there is nothing to add */
} beside_node;

/* Roots on their way to C, every zero as +0. */
typedef struct beside_root {
    const float *sum;
    gemm_out out;
    int64_t row, rows, pace; /* the next row; all; how many at each block */
} beside_root;

typedef struct beside {
    beside_node node;
    beside_root root; /* once the node is there: it may be the root's own */
    bool stored;      /* blocks have been added since the sums were */
} beside;

INLINE void beside_nothing(beside *x)
{
    x->node.rows = x->root.row = x->root.rows = 0;
    x->stored = false;
}

INLINE bool beside_is_nothing(const beside *x)
{
    return x->node.rows == 0 && x->root.rows == 0;
}

INLINE void beside_add(const int merges, const beside_node *x)
{
#pragma GCC unroll 4
    for (int64_t i = 0; i < x->rows * WIDE; i += V16) {
        v16 y = v16_load(x->sum + i);

        for (int l = 0; l < merges; l++)
            y = v16_add(v16_load(x->older[l] + i), y);
        v16_store(x->to + i, y);
    }
}

INLINE void beside_end_node(beside *x)
{
    beside_node *n = &x->node;

    if (n->rows == 0)
        return;
    if (n->merges == 1) /* a constant is faster */
        beside_add(1, n);
    else if (n->merges == 2)
        beside_add(2, n);
    else if (n->merges == 3)
        beside_add(3, n);
    else
        beside_add(n->merges, n);
    n->rows = 0;
}

static void beside_put(const gemm_out *out, const float *sum, char *c)
{
    for (int64_t j = 0; j < out->cols; j += V16) {
        int64_t n = wf_least(V16, out->cols - j);
        v16 y = v16_add(v16_load(sum + j), v16_zero());
        float *to = (float *)(void *)c + j;

        if (out->bf16)
            v16_store_bf16_n((uint16_t *)(void *)c + j, v16_narrow_bf16(y), n);
        else if (out->add)
            v16_store_n(to, v16_add(v16_load_n(to, n), y), n);
        else
            v16_store_n(to, y, n);
    }
}

static void beside_put_rows(beside_root *x, int64_t rows)
{
    const gemm_out *out = &x->out;
    int64_t end = wf_least(x->rows, x->row + rows);
    const float *sum = x->sum + x->row * WIDE;
    char *c = out->c + x->row * out->row_bytes;

    for (int64_t i = x->row; i < end; i++, sum += WIDE, c += out->row_bytes) {
        if (!out->non_temporal) {
            beside_put(out, sum, c);
            continue;
        }
        for (int64_t j = 0; j < WIDE; j += V16)
            v16_store_non_temporal((float *)(void *)c + j,
                                   v16_add(v16_load(sum + j), v16_zero()));
    }
    x->row = end;
}

/* After so many blocks: not at the first time, since a load of what has just been stored would have to wait. */
INLINE void beside_step(beside *x, int64_t blocks)
{
    if (!x->stored)
        x->stored = true;
    else if (x->node.rows > 0)
        beside_end_node(x);
    else if (x->root.row < x->root.rows)
        beside_put_rows(&x->root, blocks * x->root.pace);
}

INLINE void beside_end(beside *x)
{
    beside_end_node(x);
    if (x->root.row < x->root.rows)
        beside_put_rows(&x->root, HIGH);
}

#endif

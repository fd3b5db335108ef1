/*
 * kernels/cpu/simd/gemm_close.c - the end of a chunk of a product whose sums lie in memory: a node of the midpoint tree.
 */
#include "core/numerics/tree.h"
#include "kernels/cpu/simd/gemm_bf16_internal.h"

/* to = the node, a row after the other; every zero is +0 where it is the root */
static void add_nodes(const gemm_stack *stack, const float *sum, const float *const *older,
                      int merges, bool root, float *to, int64_t to_row)
{
    for (int64_t i = 0; i < stack->rows; i++) {
        for (int64_t j = 0; j < stack->nr; j += V16) {
            int64_t at = i * stack->nr + j;
            v16 x = v16_load(sum + at);

            for (int l = 0; l < merges; l++)
                x = v16_add(v16_load(older[l] + at), x);
            v16_store(to + i * to_row + j, root ? v16_add(x, v16_zero()) : x);
        }
    }
}

void WF_ISA_NAME(wf_gemm_close)(const gemm_tile *t, const wf_gemm_step *step,
                                const gemm_stack *stack, const float *sum)
{
    const bool root = t->kc_block->last && step + 1 == t->kc_block->step + t->kc_block->n_steps;
    const int64_t size = stack->rows * stack->nr;
    const float *older[WF_TREE_DEPTH];

    gemm_older(t, step, stack->local, size, older);
    if (root)
        add_nodes(stack, sum, older, step->merges, true, t->c, t->c_row);
    else
        add_nodes(stack, sum, older, step->merges, false,
                  gemm_node(t, step, stack->local, size), stack->nr);
}

/*
 * kernels/cpu/simd/gemm_close.c - the end of a chunk of a product whose sums lie in memory: a node of the midpoint tree.
 */
#include "kernels/cpu/simd/gemm_bf16_internal.h"

static float *node_at(const gemm_tile *t, const gemm_stack *stack, int level, bool spilled)
{
    return spilled ? t->spill + level * t->spill_level
                   : stack->local + level % WF_GEMM_LOCAL * stack->rows * stack->nr;
}

void WF_ISA_NAME(wf_gemm_close)(const gemm_tile *t, const wf_gemm_step *step,
                                const gemm_stack *stack, float *sum)
{
    const bool root = t->kc_block->last && step + 1 == t->kc_block->step + t->kc_block->n_steps;
    const int64_t floats = stack->rows * stack->nr;
    int level = step->level;
    float *to;

    for (int merges = step->merges; merges > 0; merges--) {
        const float *older;

        level--;
        older = node_at(t, stack, level, step->spilled >> level & 1);
        for (int64_t i = 0; i < floats; i += V16)
            v16_store(sum + i, v16_add(v16_load(older + i), v16_load(sum + i)));
    }
    if (!root) {
        to = node_at(t, stack, level, step->spills);
        for (int64_t i = 0; i < floats; i += V16)
            v16_store(to + i, v16_load(sum + i));
        return;
    }
    for (int64_t i = 0; i < stack->rows; i++) { /* no zero keeps its sign */
        for (int64_t j = 0; j < stack->nr; j += V16)
            v16_store(t->c + i * t->c_row + j,
                      v16_add(v16_load(sum + i * stack->nr + j), v16_zero()));
    }
}

/*
 * kernels/cpu/simd/gemm_bf16_internal.h - what the files of a product of bf16 operands share.
 * Sixteen rows of A, or columns of B, come in pairs of terms: a lane of a word has term 2 q in
 * its low half and 2 q + 1 in its high half, so that even and odd terms are a shift and a mask
 * away from floats.
 */
#ifndef WF_KERNELS_CPU_SIMD_GEMM_BF16_INTERNAL_H
#define WF_KERNELS_CPU_SIMD_GEMM_BF16_INTERNAL_H

#include "core/numerics/bf16.h"
#include "kernels/cpu/simd/gemm_internal.h"
#include "kernels/cpu/vec_bf16_internal.h"

#define INLINE static inline __attribute__((always_inline))

enum { GEMM_PAIRS = WF_GEMM_TERMS / 2 };

/* Even and odd terms as floats. x86 takes denormals for zeros; elsewhere they become zeros
   here. */
#if WF_ISA_LEVEL == WF_ISA_LEVEL_portable
INLINE v16 gemm_even(v16u pairs)
{
    v16 x;

    for (int i = 0; i < V16; i++)
        x.f[i] = wf_bf16_value((uint16_t)pairs.u[i]);
    return x;
}

INLINE v16 gemm_odd(v16u pairs)
{
    return gemm_even(v16u_right(pairs, 16));
}
#elif WF_ISA_LEVEL == WF_ISA_LEVEL_neon
INLINE v16 gemm_even(v16u pairs)
{
    return v16_of_high_bf16(v16u_left(pairs, 16));
}

INLINE v16 gemm_odd(v16u pairs)
{
    return v16_of_high_bf16(v16u_and(pairs, v16u_set1(0xffff0000u)));
}
#else
INLINE v16 gemm_even(v16u pairs)
{
    return v16_of(v16u_left(pairs, 16));
}

INLINE v16 gemm_odd(v16u pairs)
{
    return v16_of(v16u_and(pairs, v16u_set1(0xffff0000u)));
}
#endif

/* word[q], lane i: pair q of x(i, p), p < k <= WF_GEMM_TERMS, zeros after them. A lane from
   `count` on has what any other lane has, and zeros where there is none. */
void WF_ISA_NAME(wf_gemm_pairs)(v16u word[GEMM_PAIRS], const wf_gemm_operand *x, int64_t count,
                                int64_t k);

/* Sixteen rows or columns, or the first of them, of a block of a panel that is `width` wide:
   floats, all even terms before all odd ones. */
INLINE void gemm_widen(float *to, const int width, const v16u word[GEMM_PAIRS])
{
    for (int q = 0; q < GEMM_PAIRS; q++) {
        v16_store_n(to + q * width, gemm_even(word[q]), width);
        v16_store_n(to + (GEMM_PAIRS + q) * width, gemm_odd(word[q]), width);
    }
}

/* Sixteen rows or columns of which there are `count`, and k <= WF_GEMM_TERMS terms. */
INLINE void gemm_pack_some(float *to, const int width, const wf_gemm_operand *x, int64_t count,
                           int64_t k)
{
    v16u word[GEMM_PAIRS];

    WF_ISA_NAME(wf_gemm_pairs)(word, x, count, k);
    gemm_widen(to, width, word);
}

/* Returns a node of the tree, where a tile's finished chunk waits for the next ones; `local`
   has WF_GEMM_LOCAL nodes of `size` floats. */
INLINE float *gemm_node_at(const gemm_tile *t, float *local, int64_t size, int level,
                           bool spilled)
{
    return spilled ? t->spill + level * t->spill_level : local + level % WF_GEMM_LOCAL * size;
}

/* Returns the node that a step's chunk completes, and the older ones that are added to it. */
INLINE float *gemm_node(const gemm_tile *t, const wf_gemm_step *step, float *local,
                        int64_t size)
{
    return gemm_node_at(t, local, size, step->level - step->merges, step->spills);
}

INLINE void gemm_older(const gemm_tile *t, const wf_gemm_step *step, float *local, int64_t size,
                       const float **older)
{
    for (int l = 0, level = step->level - 1; l < step->merges; l++, level--)
        older[l] = gemm_node_at(t, local, size, level, step->spilled >> level & 1);
}

#endif

/*
 * kernels/cpu/simd/gemm_bf16_neon_internal.h - the modes of AArch64 for products of bf16
 * operands. With FPCR.FZ denormals are zeros, but the processor decides that before it rounds,
 * and x86's after: just below the smallest normal number the two differ. FPSR says whether a
 * block had any denormal, which is an exception: such a block is recomputed, element by
 * element.
 */
#ifndef WF_KERNELS_CPU_SIMD_GEMM_BF16_NEON_INTERNAL_H
#define WF_KERNELS_CPU_SIMD_GEMM_BF16_NEON_INTERNAL_H

#include "kernels/cpu/simd/gemm_bf16_scalar_internal.h"
#include "kernels/cpu/simd/gemm_bf16_vector_internal.h"

typedef struct gemm_modes {
    uint64_t fpcr;
} gemm_modes;

enum {
    GEMM_FLUSH_TO_ZERO = 1 << 24,
    GEMM_UNDERFLOWS = 1 << 3,
    GEMM_DENORMAL_OPERANDS = 1 << 7
};

INLINE uint64_t gemm_fpcr(void)
{
    uint64_t fpcr;

    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    return fpcr;
}

/* No compiler knows that arithmetic depends on the register: operands are loaded after this,
   and results stored to `sum` before it is set back. */
INLINE void gemm_set_fpcr(uint64_t fpcr, float *sum)
{
    __asm__ volatile("msr fpcr, %0" : : "r"(fpcr), "r"(sum) : "memory");
}

INLINE gemm_modes gemm_flush(float *sum)
{
    gemm_modes modes = {gemm_fpcr()};

    gemm_set_fpcr(modes.fpcr | GEMM_FLUSH_TO_ZERO, sum);
    return modes;
}

INLINE void gemm_restore(gemm_modes modes, float *sum)
{
    gemm_set_fpcr(modes.fpcr, sum);
}

/* Returns which exceptions of denormals there were, and forgets them. */
INLINE uint64_t gemm_take_denormals(float *result)
{
    enum { DENORMALS = GEMM_UNDERFLOWS | GEMM_DENORMAL_OPERANDS };
    uint64_t fpsr;

    __asm__ volatile("mrs %0, fpsr" : "=r"(fpsr) : "r"(result) : "memory");
    if (fpsr & DENORMALS)
        __asm__ volatile("msr fpsr, %0" : : "r"(fpsr & ~(uint64_t)DENORMALS) : "memory");
    return fpsr & DENORMALS;
}

static __attribute__((noinline)) void add_elements(int rows, int across, int along, bool first,
                                                   float *sum, const float *a, const float *b,
                                                   int pairs)
{
    uint64_t fpcr = gemm_fpcr();

    gemm_set_fpcr(fpcr & ~(uint64_t)GEMM_FLUSH_TO_ZERO, sum);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < GEMM_NR; j++) {
            float *to = &sum[i * GEMM_NR + j];

            *to = add_terms(first ? 0.0f : *to, a + i * across, along, b + j, pairs);
        }
    gemm_set_fpcr(fpcr, sum);
}

/* Declared in gemm_bf16_block_internal.h. */
INLINE void gemm_add_block(const int rows, const int across, const int along, bool first,
                           float *sum, const float *a, const float *b, int pairs)
{
    _Alignas(64) float result[GEMM_TILE];

    gemm_take_denormals(result);
    gemm_block(rows, across, along, first, result, sum, a, b, pairs);
    if (__builtin_expect(gemm_take_denormals(result) != 0, 0))
        add_elements(rows, across, along, first, sum, a, b, pairs);
    else
        memcpy(sum, result, (size_t)(rows * GEMM_NR) * sizeof *sum);
}

#endif

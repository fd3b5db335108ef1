/*
 * kernels/cpu/simd/gemm_bf16_x86_internal.h - the modes of x86-64 for products of bf16
 * operands: it takes and gives denormals as zeros where MXCSR says so.
 */
#ifndef WF_KERNELS_CPU_SIMD_GEMM_BF16_X86_INTERNAL_H
#define WF_KERNELS_CPU_SIMD_GEMM_BF16_X86_INTERNAL_H

#include "kernels/cpu/simd/gemm_bf16_vector_internal.h"

typedef struct gemm_modes {
    uint32_t mxcsr;
} gemm_modes;

/*
 * Makes denormals zeros on this thread, up to gemm_restore. No compiler knows that arithmetic
 * depends on this: operands in between are loaded from memory and results stored to `sum`,
 * which keeps the compiler from moving the code.
 */
INLINE gemm_modes gemm_flush(float *sum)
{
    enum { FLUSH_TO_ZERO = 0x8000, DENORMALS_ARE_ZEROS = 0x40 };
    gemm_modes modes;
    uint32_t flush;

    __asm__ volatile("stmxcsr %0" : "=m"(modes.mxcsr));
    flush = modes.mxcsr | FLUSH_TO_ZERO | DENORMALS_ARE_ZEROS;
    __asm__ volatile("ldmxcsr %0" : : "m"(flush), "r"(sum) : "memory");
    return modes;
}

INLINE void gemm_restore(gemm_modes modes, float *sum)
{
    __asm__ volatile("ldmxcsr %0" : : "m"(modes.mxcsr), "r"(sum) : "memory");
}

/* Declared in gemm_bf16_block_internal.h. */
INLINE void gemm_add_block(const int rows, const int across, const int along, bool first,
                           float *sum, const float *a, const float *b, int pairs)
{
    gemm_block(rows, across, along, first, sum, sum, a, b, pairs);
}

#endif

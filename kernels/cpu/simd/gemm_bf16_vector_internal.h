/*
 * kernels/cpu/simd/gemm_bf16_vector_internal.h - a block of bf16 terms with the vectors of
 * x86-64, which take and give denormals as zeros where MXCSR says so.
 */
#ifndef WF_KERNELS_CPU_SIMD_GEMM_BF16_VECTOR_INTERNAL_H
#define WF_KERNELS_CPU_SIMD_GEMM_BF16_VECTOR_INTERNAL_H

#include "kernels/cpu/simd/gemm_bf16_internal.h"

typedef struct gemm_modes {
    uint32_t mxcsr;
} gemm_modes;

/*
 * Makes denormals zeros on this thread, up to gemm_restore. No compiler knows that arithmetic
 * depends on this: operands in between are loaded from memory and results stored to `sum`,
 * which keeps the code in its place.
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

typedef struct gemm_accumulators {
    v16 at[GEMM_MR][GEMM_VECTORS];
} gemm_accumulators;

/* acc = the chains over the block's even or odd terms, of which a[i * across + q * along] is
   one */
INLINE void gemm_chains(const int rows, const int across, const int along,
                        gemm_accumulators *acc, const float *a, const float *b, int pairs)
{
    UNROLL
    for (int i = 0; i < rows; i++) {
        UNROLL
        for (int v = 0; v < GEMM_VECTORS; v++)
            acc->at[i][v] = v16_zero();
    }
    UNROLL_TWICE
    for (int q = 0; q < pairs; q++, a += along, b += GEMM_NR) {
        v16 row[GEMM_VECTORS];

        UNROLL
        for (int v = 0; v < GEMM_VECTORS; v++) {
            row[v] = v16_load(b + v * V16);
            __builtin_prefetch(b + 8 * GEMM_NR + v * V16);
        }
        UNROLL
        for (int i = 0; i < rows; i++) {
            UNROLL
            for (int v = 0; v < GEMM_VECTORS; v++)
                acc->at[i][v] = v16_fma(v16_set1(a[i * across]), row[v], acc->at[i][v]);
        }
    }
}

/* sum += even + acc, or sum = +0 + (even + acc) with the first block */
INLINE void gemm_add_chains(const int rows, const bool first, float *sum, const float *even,
                            const gemm_accumulators *acc)
{
    UNROLL
    for (int i = 0; i < rows; i++) {
        UNROLL
        for (int v = 0; v < GEMM_VECTORS; v++) {
            float *to = sum + i * GEMM_NR + v * V16;
            v16 block = v16_add(v16_load(even + i * GEMM_NR + v * V16), acc->at[i][v]);

            v16_store(to, v16_add(first ? v16_zero() : v16_load(to), block));
        }
    }
}

/* So many rows have registers for both chains. */
enum { GEMM_BOTH = 2 };

/* The same as gemm_add_block of few rows, in one pass. */
INLINE void gemm_add_both(const int rows, const int across, const int along, bool first,
                          float *sum, const float *a, const float *b, int pairs)
{
    v16 chain[2][GEMM_BOTH][GEMM_VECTORS];

    UNROLL
    for (int i = 0; i < rows * GEMM_VECTORS; i++)
        chain[0][i / GEMM_VECTORS][i % GEMM_VECTORS] =
            chain[1][i / GEMM_VECTORS][i % GEMM_VECTORS] = v16_zero();
    UNROLL_TWICE
    for (int q = 0; q < pairs; q++, a += along, b += GEMM_NR) {
        UNROLL
        for (int v = 0; v < GEMM_VECTORS; v++) {
            v16 even = v16_load(b + v * V16),
                odd = v16_load(b + GEMM_PAIRS * GEMM_NR + v * V16);

            UNROLL
            for (int i = 0; i < rows; i++) {
                v16 x = v16_set1(a[i * across]),
                    y = v16_set1(a[i * across + GEMM_PAIRS * along]);

                chain[0][i][v] = v16_fma(x, even, chain[0][i][v]);
                chain[1][i][v] = v16_fma(y, odd, chain[1][i][v]);
            }
        }
    }
    UNROLL
    for (int i = 0; i < rows; i++) {
        UNROLL
        for (int v = 0; v < GEMM_VECTORS; v++) {
            float *to = sum + i * GEMM_NR + v * V16;

            v16_store(to, v16_add(first ? v16_zero() : v16_load(to),
                                  v16_add(chain[0][i][v], chain[1][i][v])));
        }
    }
}

/* Adds to sum (even chain + odd chain) of a block, with the first one sum = +0 + that, for
   `rows` rows of GEMM_NR columns. Even term q of row i is a[i * across + q * along], that of
   column j b[q * GEMM_NR + j], and odd terms follow all GEMM_PAIRS even ones. Pairs from
   `pairs` on are zeros: they could only change the sign of a zero. */
INLINE void gemm_add_block(const int rows, const int across, const int along, bool first,
                           float *sum, const float *a, const float *b, int pairs)
{
    _Alignas(64) float even[GEMM_TILE];
    gemm_accumulators acc;

    if (rows <= GEMM_BOTH) {
        gemm_add_both(rows, across, along, first, sum, a, b, pairs);
        return;
    }
    gemm_chains(rows, across, along, &acc, a, b, pairs);
    UNROLL
    for (int i = 0; i < rows; i++) {
        UNROLL
        for (int v = 0; v < GEMM_VECTORS; v++)
            v16_store(even + i * GEMM_NR + v * V16, acc.at[i][v]);
    }
    gemm_chains(rows, across, along, &acc, a + GEMM_PAIRS * along, b + GEMM_PAIRS * GEMM_NR,
                pairs);
    if (first)
        gemm_add_chains(rows, true, sum, even, &acc);
    else
        gemm_add_chains(rows, false, sum, even, &acc);
}

#endif

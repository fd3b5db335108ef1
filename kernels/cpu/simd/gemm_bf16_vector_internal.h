/*
 * kernels/cpu/simd/gemm_bf16_vector_internal.h - a block of bf16 terms with vectors. Denormals
 * are zeros in a mode of the processor (gemm_flush, in the file of the architecture).
 */
#ifndef WF_KERNELS_CPU_SIMD_GEMM_BF16_VECTOR_INTERNAL_H
#define WF_KERNELS_CPU_SIMD_GEMM_BF16_VECTOR_INTERNAL_H

#include "kernels/cpu/simd/gemm_bf16_internal.h"

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

/* to = sum + (even + acc), or +0 + (even + acc) with the first block */
INLINE void gemm_add_chains(const int rows, const bool first, float *to, const float *sum,
                            const float *even, const gemm_accumulators *acc)
{
    UNROLL
    for (int i = 0; i < rows; i++) {
        UNROLL
        for (int v = 0; v < GEMM_VECTORS; v++) {
            const int at = i * GEMM_NR + v * V16;
            v16 block = v16_add(v16_load(even + at), acc->at[i][v]);

            v16_store(to + at, v16_add(first ? v16_zero() : v16_load(sum + at), block));
        }
    }
}

/* The most rows that have registers for both chains. */
enum { GEMM_BOTH = 2 };

/* Computes gemm_block of few rows, in one pass. */
INLINE void gemm_block_of_small_m(const int rows, const int across, const int along, bool first,
                                  float *to, const float *sum, const float *a, const float *b,
                                  int pairs)
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
            const int at = i * GEMM_NR + v * V16;

            v16_store(to + at, v16_add(first ? v16_zero() : v16_load(sum + at),
                                       v16_add(chain[0][i][v], chain[1][i][v])));
        }
    }
}

/* to = sum + (even chain + odd chain) of a block, with the first one +0 + that: gemm_add_block
   with its result elsewhere, or in `sum` too. */
INLINE void gemm_block(const int rows, const int across, const int along, bool first, float *to,
                       const float *sum, const float *a, const float *b, int pairs)
{
    _Alignas(64) float even[GEMM_TILE];
    gemm_accumulators acc;

    if (rows <= GEMM_BOTH) {
        gemm_block_of_small_m(rows, across, along, first, to, sum, a, b, pairs);
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
        gemm_add_chains(rows, true, to, sum, even, &acc);
    else
        gemm_add_chains(rows, false, to, sum, even, &acc);
}

#endif

/*
 * tests/kernels/gemm_bf16_reference.h - products of bf16 operands as
 * kernels/cpu/simd_internal.h defines them, written as plainly as it can be, and numbers to try
 * them with.
 */
#ifndef WF_TESTS_KERNELS_GEMM_BF16_REFERENCE_H
#define WF_TESTS_KERNELS_GEMM_BF16_REFERENCE_H

#include "kernels/cpu/simd_internal.h"

/* The kinds of numbers of the operands. */
typedef enum bf16_numbers {
    ORDINARY,
    ANY_BITS,
    TINY,
    CANCELLING,
    AT_THE_LEAST,
    BF16_NUMBERS
} bf16_numbers;

/* A random number of 0 .. n - 1; always the same ones. */
int64_t bf16_below(int64_t n);

/* n bf16 of a kind, to be freed. */
uint16_t *bf16_values(int64_t n, bf16_numbers kind);

/* sum + a block of WF_GEMM_TERMS terms */
float bf16_add_block(float sum, const uint16_t *a, const uint16_t *b);

/* Element (i, j) of the tree over `chunks` chunks, the first of which begins with that part.
   Zeros keep their sign. */
float bf16_tree(const wf_gemm *g, int64_t i, int64_t j, int64_t part, int64_t chunks);

#endif

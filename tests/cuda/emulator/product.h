/*
 * tests/cuda/emulator/product.h - one product of the emulated cuBLASLt, as a stream runs it:
 * what cublaslt.c has checked, and product.c computes.
 */
#ifndef WF_TESTS_EMULATOR_PRODUCT_H
#define WF_TESTS_EMULATOR_PRODUCT_H

#include "cublasLt.h"

enum { SPLIT_WORKSPACE = 1 << 10 }; /* bytes */

typedef struct product_desc {
    cublasComputeType_t compute;
    cublasOperation_t op[2];
    cublasLtEpilogue_t epilogue;
    cudaDataType_t bias_type;
    const void *bias;
} product_desc;

typedef struct matrix {
    cudaDataType_t type;
    uint64_t rows, columns;
    int64_t ld;
} matrix;

/* Partial sums over every lanes-th index, added in order; splits > 1: halves of the sum
   separately. */
typedef struct algorithm_desc {
    int32_t lanes, splits;
    uint32_t aligned[4];
} algorithm_desc;

typedef struct work {
    product_desc product;
    matrix a, b, d;
    algorithm_desc algorithm;
    const void *A, *B;
    void *D, *workspace;
    float alpha, beta;
} work;

static inline size_t size_of(cudaDataType_t type)
{
    return type == CUDA_R_16BF ? 2 : 4;
}

/* d = alpha a b + beta d, and the bias; arg is a work. */
void emulator_product_run(void *arg);

#endif

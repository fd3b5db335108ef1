/*
 * tests/cuda/emulator/product.c - computes a product of cuBLASLt on the CPU, in the order of
 * sums that its algorithm has.
 */
#include "emulator.h"
#include "product.h"
#include <stdlib.h>
#include <string.h>

enum { LANES = 8 }; /* at most */

static float value_at(const void *data, const matrix *m, uint64_t row, uint64_t column)
{
    size_t at = column * (size_t)m->ld + row;
    uint32_t bits;
    float x;

    if (m->type == CUDA_R_32F)
        return ((const float *)data)[at];
    bits = (uint32_t)((const uint16_t *)data)[at] << 16;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void set_value(void *data, const matrix *m, uint64_t row, uint64_t column, float x)
{
    size_t at = column * (size_t)m->ld + row;
    uint32_t bits;

    if (m->type == CUDA_R_32F) {
        ((float *)data)[at] = x;
        return;
    }
    memcpy(&bits, &x, sizeof bits);
    bits += 0x7fffu + (bits >> 16 & 1); /* to nearest even; a NaN may become another one */
    ((uint16_t *)data)[at] = (uint16_t)(bits >> 16);
}

/* tf32 keeps 10 bits of a factor, rounded to nearest with ties away from zero. */
static float factor(const work *w, float x)
{
    uint32_t bits;

    if (w->product.compute != CUBLAS_COMPUTE_32F_FAST_TF32)
        return x;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x1000u) & ~0x1fffu;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* A factor as floats, [depth, rows] of the result's index. */
static float *packed(const work *w, const void *data, const matrix *m, bool depth_in_columns,
                     uint64_t depth, uint64_t rows)
{
    float *out = malloc((size_t)(depth * rows) * sizeof *out + 1);

    if (!out)
        emulator_die("cublasLtMatmul: no memory for a factor [%zu, %zu]", (size_t)depth,
                     (size_t)rows);
    for (uint64_t k = 0; k < depth; k++)
        for (uint64_t r = 0; r < rows; r++)
            out[k * rows + r] =
                factor(w, depth_in_columns ? value_at(data, m, r, k) : value_at(data, m, k, r));
    return out;
}

/* total[i] = the sum over [from, to) of indices for column j of the result. */
static void sum_over(const work *w, const float *a, const float *b, uint64_t j, uint64_t from,
                     uint64_t to, float *lane, float *total)
{
    uint64_t m = w->d.rows, n = w->d.columns, lanes = (uint64_t)w->algorithm.lanes;

    for (uint64_t i = 0; i < lanes * m; i++)
        lane[i] = -0.0F; /* the first product alone counts, which may be -0 */
    for (uint64_t k = from; k < to; k++) {
        float *sum = lane + (k - from) % lanes * m, y = b[k * n + j];
        const float *x = a + k * m;

        for (uint64_t i = 0; i < m; i++)
            sum[i] += x[i] * y;
    }
    for (uint64_t i = 0; i < m; i++) {
        total[i] = lane[i];
        for (uint64_t l = 1; l < lanes; l++)
            total[i] += lane[l * m + i];
    }
}

void emulator_product_run(void *arg)
{
    const work *w = arg;
    const matrix bias = {w->product.bias_type, w->d.rows, 1, (int64_t)w->d.rows};
    bool plain_a = w->product.op[0] == CUBLAS_OP_N, plain_b = w->product.op[1] == CUBLAS_OP_N;
    uint64_t m = w->d.rows, depth = plain_a ? w->a.columns : w->a.rows;
    uint64_t half = w->algorithm.splits > 1 ? depth / 2 : depth;
    float *a = packed(w, w->A, &w->a, plain_a, depth, m);
    float *b = packed(w, w->B, &w->b, !plain_b, depth, w->d.columns);
    float *sums = malloc((size_t)((LANES + 2) * m) * sizeof *sums + 1);
    float *first = sums + LANES * m, *second = first + m;

    if (!sums)
        emulator_die("cublasLtMatmul: no memory for %zu sums", (size_t)m);
    if (w->algorithm.splits > 1)
        memset(w->workspace, 0xff, SPLIT_WORKSPACE);
    for (uint64_t j = 0; j < w->d.columns; j++) {
        sum_over(w, a, b, j, 0, half, sums, first);
        if (half < depth)
            sum_over(w, a, b, j, half, depth, sums, second);
        for (uint64_t i = 0; i < m; i++) {
            float x = w->alpha * (half < depth ? first[i] + second[i] : first[i]);

            if (w->beta != 0)
                x += w->beta * value_at(w->D, &w->d, i, j);
            if (w->product.epilogue == CUBLASLT_EPILOGUE_BIAS)
                x += value_at(w->product.bias, &bias, i, 0);
            set_value(w->D, &w->d, i, j, x);
        }
    }
    free(a);
    free(b);
    free(sums);
}

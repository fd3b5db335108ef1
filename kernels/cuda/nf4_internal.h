/* kernels/cuda/nf4_internal.h - numbers of matrices in 4 bits, with the bits of
   core/numerics/nf4.c. For .cu files. */
#ifndef WF_KERNELS_CUDA_NF4_INTERNAL_H
#define WF_KERNELS_CUDA_NF4_INTERNAL_H

#include "kernels/cuda/launch_internal.h"
#include "kernels/cuda/levels_internal.h"

enum {
    WF_NF4_EACH = 8, /* numbers of a thread at a time */
    WF_NF4_TABLES = WF_NF4_LEVELS + WF_DYNAMIC8_LEVELS
};

/* Copies the levels of numbers, then those of scales, to shared memory; a barrier comes before
   they are read. */
static __device__ __forceinline__ void wf_nf4_tables(float *tables,
                                                     const wf_cuda_levels *levels, int threads)
{
    for (int i = (int)threadIdx.x; i < WF_NF4_TABLES; i += threads)
        tables[i] = i < WF_NF4_LEVELS ? levels->nf4[i] : levels->dynamic8[0][i - WF_NF4_LEVELS];
}

/* Up to eight numbers of a block as they are stored. */
struct wf_nf4_codes {
    uint32_t word;
    float nested; /* by which the level of the block's scale is multiplied */
    uint8_t code; /* the code of the scale */
};

/* Reads the scale of the block of the whole matrix that has number `at`, of a row that begins
   with number `first`. */
static __device__ __forceinline__ void wf_nf4_read_scale(const wf_nf4_matrix &a,
                                                         const uint8_t *row, int64_t first,
                                                         int64_t at, wf_nf4_codes *c)
{
    const int64_t block = at / WF_NF4_BLOCK;

    c->code = row[(a.part.columns + 1) / 2 + block - first / WF_NF4_BLOCK];
    c->nested = a.scales[1 + block / WF_NF4_NESTED];
}

/* Reads eight numbers of row r from a column on that is a multiple of eight, where .eights. */
static __device__ __forceinline__ wf_nf4_codes wf_nf4_read(const wf_nf4_matrix &a, int64_t r,
                                                           int64_t column)
{
    const uint8_t *row = a.bytes + r * a.row_bytes, *at = row + column / 2;
    const int64_t first = wf_nf4_row(&a.part, r) * a.part.width + a.part.first_column;
    wf_nf4_codes c;

    if (a.words)
        c.word = *(const uint32_t *)at;
    else
        c.word = at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
    wf_nf4_read_scale(a, row, first, first + column, &c);
    return c;
}

static __device__ __forceinline__ float wf_nf4_scale(const wf_nf4_matrix &a,
                                                     const float *tables, const wf_nf4_codes &c)
{
    const float scale = tables[WF_NF4_LEVELS + c.code] * c.nested;

    return scale + a.scales[0];
}

/* Rounds numbers to bf16 where they represent such. */
static __device__ __forceinline__ void wf_nf4_round(const wf_nf4_matrix &a, float *x)
{
    if (a.round) {
#pragma unroll
        for (int e = 0; e < WF_NF4_EACH; e += 2) {
            const uint32_t pair = wf_bf16_pair(x[e], x[e + 1]);

            x[e] = __uint_as_float(pair << 16);
            x[e + 1] = __uint_as_float(pair & 0xffff0000u);
        }
    }
}

static __device__ __forceinline__ void wf_nf4_numbers(const wf_nf4_matrix &a,
                                                      const float *tables,
                                                      const wf_nf4_codes &c, float *x)
{
    const float scale = wf_nf4_scale(a, tables, c);

#pragma unroll
    for (int k = 0; k < WF_NF4_EACH; k++)
        x[k] = tables[c.word >> (k / 2 * 8 + (k % 2 ? 0 : 4)) & 15] * scale;
}

#endif

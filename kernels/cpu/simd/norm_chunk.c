/*
 * kernels/cpu/simd/norm_chunk.c - gradients of gains and biases over the rows of one chunk: per
 * column one chain from +0 over the rows in order, kept in a register while a block of columns
 * walks down the rows. With rows.more the chain continues from what is there.
 */
#include "kernels/cpu/simd/kernels_internal.h"
#include "kernels/cpu/vec_internal.h"

enum { COLUMNS = 4 };

/* Returns the row after r: where the rows of a run end (*end) the next run begins. */
static inline int64_t next_row(wf_chunk_rows rows, int64_t r, int64_t *end)
{
    if (++r < *end)
        return r;
    *end += rows.step;
    return *end - rows.rows;
}

/* dgain = fma(dy, (x - mean) * rstd, dgain), dbias = dbias + dy, row after row */
void WF_ISA_NAME(wf_layernorm_chunk)(const float *x, const float *mean, const float *rstd,
                                     const float *dy, float *dgain, float *dbias,
                                     wf_chunk_rows rows, int64_t d)
{
    int64_t i = 0, n_rows = rows.runs * rows.rows;

    for (; i + COLUMNS * V16 <= d; i += COLUMNS * V16) {
        v16 gain[COLUMNS], bias[COLUMNS];

        for (int k = 0; k < COLUMNS; k++) {
            gain[k] = rows.more ? v16_load(dgain + i + k * V16) : v16_zero();
            bias[k] = rows.more ? v16_load(dbias + i + k * V16) : v16_zero();
        }
        for (int64_t q = 0, r = 0, end = rows.rows; q < n_rows;
             q++, r = next_row(rows, r, &end)) {
            v16 middle = v16_set1(mean[r]), scale = v16_set1(rstd[r]);

            for (int k = 0; k < COLUMNS; k++) {
                v16 g = v16_load(dy + r * d + i + k * V16);
                v16 h = v16_sub(v16_load(x + r * d + i + k * V16), middle);

                gain[k] = v16_fma(g, v16_mul(h, scale), gain[k]);
                bias[k] = v16_add(bias[k], g);
            }
        }
        for (int k = 0; k < COLUMNS; k++) {
            v16_store(dgain + i + k * V16, gain[k]);
            v16_store(dbias + i + k * V16, bias[k]);
        }
    }
    for (; i < d; i += V16) {
        int64_t n = d - i;
        v16 gain = rows.more ? v16_load_n(dgain + i, n) : v16_zero();
        v16 bias = rows.more ? v16_load_n(dbias + i, n) : v16_zero();

        for (int64_t q = 0, r = 0, end = rows.rows; q < n_rows;
             q++, r = next_row(rows, r, &end)) {
            v16 g = v16_load_n(dy + r * d + i, n);
            v16 h = v16_sub(v16_load_n(x + r * d + i, n), v16_set1(mean[r]));

            gain = v16_fma(g, v16_mul(h, v16_set1(rstd[r])), gain);
            bias = v16_add(bias, g);
        }
        v16_store_n(dgain + i, gain, n);
        v16_store_n(dbias + i, bias, n);
    }
}

/* dgain = fma(dy, x * rstd, dgain), row after row */
void WF_ISA_NAME(wf_rmsnorm_chunk)(const float *x, const float *rstd, const float *dy,
                                   float *dgain, wf_chunk_rows rows, int64_t d)
{
    int64_t i = 0, n_rows = rows.runs * rows.rows;

    for (; i + COLUMNS * V16 <= d; i += COLUMNS * V16) {
        v16 gain[COLUMNS];

        for (int k = 0; k < COLUMNS; k++)
            gain[k] = rows.more ? v16_load(dgain + i + k * V16) : v16_zero();
        for (int64_t q = 0, r = 0, end = rows.rows; q < n_rows;
             q++, r = next_row(rows, r, &end)) {
            v16 scale = v16_set1(rstd[r]);

            for (int k = 0; k < COLUMNS; k++) {
                v16 h = v16_mul(v16_load(x + r * d + i + k * V16), scale);

                gain[k] = v16_fma(v16_load(dy + r * d + i + k * V16), h, gain[k]);
            }
        }
        for (int k = 0; k < COLUMNS; k++)
            v16_store(dgain + i + k * V16, gain[k]);
    }
    for (; i < d; i += V16) {
        int64_t n = d - i;
        v16 gain = rows.more ? v16_load_n(dgain + i, n) : v16_zero();

        for (int64_t q = 0, r = 0, end = rows.rows; q < n_rows;
             q++, r = next_row(rows, r, &end)) {
            v16 h = v16_mul(v16_load_n(x + r * d + i, n), v16_set1(rstd[r]));

            gain = v16_fma(v16_load_n(dy + r * d + i, n), h, gain);
        }
        v16_store_n(dgain + i, gain, n);
    }
}

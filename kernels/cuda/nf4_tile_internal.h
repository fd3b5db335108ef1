/*
 * kernels/cuda/nf4_tile_internal.h - tiles of the second factor of a product that is a matrix
 * in 4 bits, which are widened on their way to shared memory. For .cu files.
 */
#ifndef WF_KERNELS_CUDA_NF4_TILE_INTERNAL_H
#define WF_KERNELS_CUDA_NF4_TILE_INTERNAL_H

#include "kernels/cuda/nf4_internal.h"

/*
 * Tiles of rows x DEPTH terms of the second factor of a product, which is a matrix of nf4:
 * terms along its rows, or its rows are terms. Codes of a tile are on their way to registers
 * while others are multiplied; finish() widens them and has PUT store eight numbers a time. It
 * is called before the barrier after which the tile is read, and before the next load.
 *
 * PUT: static void put(tile, line, unit, const float x[8]), of eight numbers that lie `unit`
 * times eight after the first one of a line: a row of the matrix.
 */
template <class PUT, int ROWS, int DEPTH, int THREADS, bool ALONG> struct wf_nf4_tile {
    enum {
        UNITS = (ALONG ? DEPTH : ROWS) / WF_NF4_EACH, /* a line's */
        EACH = ROWS * DEPTH / WF_NF4_EACH / THREADS
    };
    static_assert(EACH * THREADS * WF_NF4_EACH == ROWS * DEPTH, "threads have as many units");

    wf_nf4_codes codes[EACH];
    int member;             /* the one that has the matrix */
    typename PUT::tile *to; /* NULL: nothing is on its way */
    unsigned valid;         /* bit i: codes[i] are */

    /* `first`: of the tile's rows, of `rows`; k: of its terms, of `depth`; base: the matrix's
       column, or row, that is term 0. */
    __device__ __forceinline__ void load(const wf_nf4_matrix *list, int m,
                                         typename PUT::tile *tile, int64_t base, int64_t first,
                                         int64_t rows, int64_t k, int64_t depth, int t)
    {
        member = m;
        to = tile;
        valid = 0;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const int number = t + i * THREADS, line = number / UNITS;
            const int unit = number % UNITS * WF_NF4_EACH;
            const int64_t row = first + (ALONG ? line : unit), term = k + (ALONG ? unit : line);

            if (row < rows && term < depth) {
                codes[i] =
                    wf_nf4_read(list[m], ALONG ? row : base + term, ALONG ? base + term : row);
                valid |= 1u << i;
            }
        }
    }

    __device__ __forceinline__ void finish(const wf_nf4_matrix *list, const float *tables,
                                           int t)
    {
        if (!to)
            return;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const int number = t + i * THREADS;
            float x[WF_NF4_EACH] = {};

            if (valid >> i & 1) {
                wf_nf4_numbers(list[member], tables, codes[i], x);
                wf_nf4_round(list[member], x);
            }
            PUT::put(to, number / UNITS, number % UNITS, x);
        }
        to = NULL;
    }
};

#endif

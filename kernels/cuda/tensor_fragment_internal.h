/*
 * kernels/cuda/tensor_fragment_internal.h - fragments of tensor cores: 16 x 16 elements of a
 * tile in the registers of a warp, and their products by mma.sync, which every GPU from compute
 * capability 8.0 on has. For .cu files.
 *
 * On the emulated device lanes show each other their registers, which are those of a GPU, so
 * kernels are the same text. There as here the 16 terms of an instruction are added to a sum at
 * once: to group them otherwise has other bits.
 */
#ifndef WF_KERNELS_CUDA_TENSOR_FRAGMENT_INTERNAL_H
#define WF_KERNELS_CUDA_TENSOR_FRAGMENT_INTERNAL_H

#include "kernels/cuda/tensor_tile_internal.h"

/* Returns the address of a lane's row of four matrices of 8 x 8 elements: rows from `row` on,
   terms from `term` on. The second matrix is the next eight rows of the first where by_rows,
   else the next eight terms. */
template <bool ALONG>
static __device__ __forceinline__ const char *wf_matrix_row(const char *tile, int row, int term,
                                                            int lane, bool by_rows)
{
    int second = lane / 8 % 2 * 8, third = lane / 16 * 8;

    row += by_rows ? second : third;
    term += by_rows ? third : second;
    if (ALONG)
        row += lane % 8;
    else
        term += lane % 8;
    return ALONG ? tile + row * WF_TILE_LINE + ((term / 8 ^ row % 8) * 16)
                 : tile + row / 64 * WF_TILE_BLOCK + term * WF_TILE_LINE +
                       ((row % 64 / 8 ^ term % 8) * 16);
}

#ifdef WF_CUDA_EMULATED
enum { WF_EMULATED_WARPS = 32, WF_EMULATED_TILES = 4 };

/* Holds both factors of a warp as numbers, the second by terms and, of each term, by the
   columns that one lane adds: lanes show each other their registers. At every other product it
   is in the other half, so that who is late still finds it. */
struct wf_shown {
    double a[16][WF_TILE_STEP], b[WF_TILE_STEP][4][2 * WF_EMULATED_TILES];
};

static wf_shown wf_shown_by[2][WF_EMULATED_WARPS];
static unsigned char wf_shown_half[WF_EMULATED_WARPS * WF_WARP];

static inline double wf_half_of(uint32_t pair, int second)
{
    return (double)__uint_as_float(second ? pair & 0xffff0000u : pair << 16);
}

/* A lane has two terms of a row; where terms do not lie along lines, matrices are
   transposed. */
template <bool ALONG>
void wf_load_fragment(uint32_t *to, const char *tile, int row, int term, int lane, bool by_rows)
{
    for (int m = 0; m < 4; m++) {
        uint16_t half[2];

        for (int h = 0; h < 2; h++) {
            int own = lane % 4 * 2 + h, line = ALONG ? lane / 4 : own;
            int in = ALONG ? own : lane / 4;

            memcpy(&half[h],
                   wf_matrix_row<ALONG>(tile, row, term, 8 * m + line, by_rows) + in * 2, 2);
        }
        to[m] = half[0] | (uint32_t)half[1] << 16;
    }
}

template <int N> void wf_multiply_fragments(float *sum, const uint32_t *a, const uint32_t *b)
{
    const unsigned thread = threadIdx.x, lane = thread % WF_WARP;
    const unsigned row = lane / 4, column = lane % 4 * 2;
    double terms[2][2 * N] = {};
    wf_shown *warp = &wf_shown_by[wf_shown_half[thread] ^= 1][thread / WF_WARP];

    static_assert(N <= WF_EMULATED_TILES, "a warp shows so many");
    for (unsigned i = 0; i < 8; i++)
        warp->a[row + i / 2 % 2 * 8][column + i / 4 * 8 + i % 2] =
            wf_half_of(a[i / 2], (int)i % 2);
    for (unsigned i = 0; i < 4 * N; i++)
        warp->b[column + i / 2 % 2 * 8 + i % 2][row / 2][i / 4 * 2 + row % 2] =
            wf_half_of(b[i / 2], (int)i % 2);
    __syncwarp();
    for (unsigned k = 0; k < WF_TILE_STEP; k++)
        for (unsigned r = 0; r < 2; r++)
            for (unsigned i = 0; i < 2 * N; i++)
                terms[r][i] += warp->a[row + 8 * r][k] * warp->b[k][lane % 4][i];
    for (unsigned i = 0; i < 4 * N; i++)
        sum[i] = (float)((double)sum[i] + terms[i / 2 % 2][i / 4 * 2 + i % 2]);
}
#else
/* Loads rows from `row` on and terms from `term` on of a tile: as a factor of 16 rows where
   by_rows, else as two of 8 columns, two registers each. */
template <bool ALONG>
static __device__ __forceinline__ void wf_load_fragment(uint32_t *to, const char *tile, int row,
                                                        int term, int lane, bool by_rows)
{
    uint32_t at = wf_shared_address(wf_matrix_row<ALONG>(tile, row, term, lane, by_rows));

    if (ALONG)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                     : "r"(at)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                     : "r"(at)
                     : "memory");
}

/* Adds the products of 16 rows and N times 8 columns: sum[4 n ..] is a thread's part of the
   n-th, rows lane / 4 and 8 more of columns lane % 4 * 2 and 1 more. */
template <int N>
static __device__ __forceinline__ void wf_multiply_fragments(float *sum, const uint32_t *a,
                                                             const uint32_t *b)
{
#pragma unroll
    for (int n = 0; n < N; n++)
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
            "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(sum[4 * n]), "+f"(sum[4 * n + 1]), "+f"(sum[4 * n + 2]), "+f"(sum[4 * n + 3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[2 * n]), "r"(b[2 * n + 1]));
}
#endif

#endif

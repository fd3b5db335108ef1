/*
 * kernels/cuda/tensor_mma_internal.h - a block's part of a tensor product by mma.sync, which
 * every GPU from compute capability 8.0 on has; on the emulated device the same without tensor
 * cores. For .cu files.
 *
 * A block of WF_BLOCK threads makes 128 x 64 sums, each of its eight warps 32 x 32, from tiles
 * that come by stages, one after the other.
 */
#ifndef WF_KERNELS_CUDA_TENSOR_MMA_INTERNAL_H
#define WF_KERNELS_CUDA_TENSOR_MMA_INTERNAL_H

#include "kernels/cuda/tensor_tile_internal.h"

enum {
    WF_MMA_DOWN = WF_TENSOR_TILE,
    WF_MMA_ACROSS = 64,
    WF_MMA_EDGE = 32, /* rows and columns of a warp */
    WF_MMA_AHEAD = 2, /* tiles that are on their way while one is multiplied */
    WF_MMA_STAGES = WF_MMA_AHEAD + 1,
    WF_MMA_TILE_A = WF_MMA_DOWN * WF_TILE_LINE,
    WF_MMA_STAGE = WF_MMA_TILE_A + WF_MMA_ACROSS * WF_TILE_LINE,
    WF_MMA_SHARED = WF_MMA_STAGES * WF_MMA_STAGE, /* bytes of a block */
    WF_MMA_SUMS = 32 /* sums of a thread: 2 x 4 fragments of 16 x 8 elements */
};

#ifdef WF_CUDA_EMULATED
template <bool ALONG> static float wf_mma_element(const char *tile, int row, int term)
{
    int line = ALONG ? row : term, at = ALONG ? term : row;
    uint16_t bits;

    memcpy(&bits,
           tile + at / 64 * WF_TILE_BLOCK + line * WF_TILE_LINE +
               ((at % 64 / 8 ^ line % 8) * 16) + at % 8 * 2,
           2);
    return __uint_as_float((uint32_t)bits << 16);
}

/* 16 terms of a row of a tile, which are read when another row is asked for. */
template <bool ALONG> struct wf_mma_terms {
    int row = -1;
    float term[WF_TILE_STEP];

    void read(const char *tile, int of, int step)
    {
        for (int k = 0; k < WF_TILE_STEP && row != of; k++)
            term[k] = wf_mma_element<ALONG>(tile, of, step * WF_TILE_STEP + k);
        row = of;
    }
};

/* Adds 16 terms; sum i of thread t is at (AT::row(t, i), AT::column(t, i)): two rows and two
   columns alternate. */
template <class AT, bool A, bool B>
static void wf_emulated_multiply(float (&sum)[WF_MMA_SUMS], const char *a, const char *b,
                                 int step)
{
    wf_mma_terms<A> rows[2];
    wf_mma_terms<B> columns[2];
    const int t = (int)threadIdx.x;

    for (int i = 0; i < WF_MMA_SUMS; i++) {
        wf_mma_terms<A> &x = rows[i / 2 % 2];
        wf_mma_terms<B> &y = columns[i % 2];

        x.read(a, AT::row(t, i), step);
        y.read(b, AT::column(t, i), step);
        for (int k = 0; k < WF_TILE_STEP; k++)
            sum[i] = fmaf(x.term[k], y.term[k], sum[i]);
    }
}
#else
/* Four matrices of 8 x 8 elements, a row of each from the thread that names it. */
template <bool ALONG>
static __device__ __forceinline__ void wf_mma_load_matrices(uint32_t (&to)[4], const char *from)
{
    uint32_t at = wf_shared_address(from);

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

/* Returns the address of a lane's row of four matrices: rows from `row` on, terms from `term`
   on. The second matrix is the next eight rows of the first where by_rows, else the next eight
   terms. */
template <bool ALONG>
static __device__ __forceinline__ const char *wf_mma_matrix_row(const char *tile, int row,
                                                                int term, int lane,
                                                                bool by_rows)
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

static __device__ __forceinline__ void wf_mma_multiply_fragment(float *sum,
                                                                const uint32_t (&a)[4],
                                                                uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

#endif

/* Sum i of thread t: of fragment (i / 16, i / 4 % 4) of the warp's rows and columns. */
struct wf_mma_slot {
    static __device__ __forceinline__ int row(int t, int i)
    {
        return t / WF_WARP / 2 * WF_MMA_EDGE + t % WF_WARP / 4 + i / 16 * 16 + i / 2 % 2 * 8;
    }

    static __device__ __forceinline__ int column(int t, int i)
    {
        return t / WF_WARP % 2 * WF_MMA_EDGE + t % 4 * 2 + i / 4 % 4 * 8 + i % 2;
    }
};

/* Adds 16 terms. */
template <bool A, bool B>
static __device__ __forceinline__ void wf_mma_multiply(float (&sum)[WF_MMA_SUMS], const char *a,
                                                       const char *b, int step)
{
#ifdef WF_CUDA_EMULATED
    wf_emulated_multiply<wf_mma_slot, A, B>(sum, a, b, step);
#else
    int warp = (int)threadIdx.x / WF_WARP, lane = (int)threadIdx.x % WF_WARP;
    int row = warp / 2 * WF_MMA_EDGE, column = warp % 2 * WF_MMA_EDGE;
    int term = step * WF_TILE_STEP;
    uint32_t x[2][4], y[2][4];

#pragma unroll
    for (int i = 0; i < 2; i++) {
        wf_mma_load_matrices<A>(x[i], wf_mma_matrix_row<A>(a, row + 16 * i, term, lane, true));
        wf_mma_load_matrices<B>(y[i],
                                wf_mma_matrix_row<B>(b, column + 16 * i, term, lane, false));
    }
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            wf_mma_multiply_fragment(sum + 16 * i + 4 * j, x[i], y[j / 2][2 * (j % 2)],
                                     y[j / 2][2 * (j % 2) + 1]);
#endif
}

/* Has the first tiles of a job brought, WF_MMA_AHEAD; load(stage): those that come next, and a
   group of copies, which is empty where there are none: waits count them. */
template <class LOAD>
static __device__ __forceinline__ void wf_mma_begin(char *stages, LOAD load)
{
    for (int s = 0; s < WF_MMA_AHEAD; s++)
        load(stages + s * WF_MMA_STAGE);
}

/* Adds the `terms` terms of the next tiles to the sums of warps that have some (`works`), while
   others are brought. */
template <bool A, bool B, class LOAD>
static __device__ __forceinline__ void wf_mma_add(float (&sum)[WF_MMA_SUMS], char *stages,
                                                  int *stage, int64_t terms, bool works,
                                                  LOAD load)
{
    const char *a = stages + *stage * WF_MMA_STAGE;

    wf_copy_wait<WF_MMA_AHEAD - 1>();
    __syncthreads();
    load(stages + (*stage + WF_MMA_AHEAD) % WF_MMA_STAGES * WF_MMA_STAGE);
#pragma unroll
    for (int step = 0; step < WF_TILE_DEPTH / WF_TILE_STEP; step++)
        if (works && step * WF_TILE_STEP < terms)
            wf_mma_multiply<A, B>(sum, a, a + WF_MMA_TILE_A, step);
    *stage = (*stage + 1) % WF_MMA_STAGES;
}

/* Puts all sums of a block into its shared memory, where wf_sum_at finds them, when no tile is
   needed there any more; sum i of thread t is at (AT::row(t, i), AT::column(t, i)). */
template <class AT>
static __device__ __forceinline__ void wf_mma_put(float *tile, const float (&sum)[WF_MMA_SUMS])
{
    int t = (int)threadIdx.x;

    asm volatile("" : "+r"(t)); /* else addresses are computed before the first job, and kept */
    wf_copy_wait<0>();
    __syncthreads();
#pragma unroll
    for (int i = 0; i < WF_MMA_SUMS; i++)
        *wf_sum_at<WF_MMA_ACROSS>(tile, AT::row(t, i), AT::column(t, i)) = sum[i];
    __syncthreads();
}

#endif

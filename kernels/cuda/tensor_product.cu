/*
 * kernels/cuda/tensor_product.cu - tensor products by mma.sync, which every GPU from compute
 * capability 8.0 on has; on the emulated device the same without tensor cores.
 *
 * Kernels are instances of one, by how many rows a product has and by how its weights are
 * stored: as bf16, or as nf4, which is widened on its way to shared memory. An element is the
 * same expression in all.
 */
#include "kernels/cuda/tensor_kernel_internal.h"

namespace
{

/* Adds 16 terms of two tiles. */
template <class S, bool A, bool B>
__device__ __forceinline__ void multiply(float (&sum)[S::SUMS], const char *a, const char *b,
                                         int step, int t);

/* A block's part of a node: DOWN x ACROSS elements, of which a warp has WARP x WARP as
   fragments of 16 x 8. */
template <int DOWN_, int ACROSS_, int WARP_> struct mma_shape {
    enum {
        DOWN = DOWN_,
        ACROSS = ACROSS_,
        WARP = WARP_,
        SIDE = ACROSS / WARP, /* warps side by side */
        THREADS = DOWN / WARP * SIDE * WF_WARP,
        ROWS = WARP / 16, /* fragments */
        COLUMNS = WARP / 8,
        SUMS = 4 * ROWS * COLUMNS, /* a thread's */
        TILE_A = DOWN * WF_TILE_LINE,
        STAGE = TILE_A + ACROSS * WF_TILE_LINE,
        ALIGNED = 0 /* bytes that aligned() may skip */
    };

    static __device__ __forceinline__ char *aligned(char *shared)
    {
        return shared;
    }
    static __device__ __forceinline__ void tiles_are_written(void)
    {
    }
    template <bool A, bool B>
    static __device__ __forceinline__ void multiply_tiles(float (&sum)[SUMS], const char *a,
                                                          const char *b, int64_t left, int t)
    {
#pragma unroll
        for (int step = 0; step < WF_TILE_DEPTH / WF_TILE_STEP; step++)
            if (step * WF_TILE_STEP < left)
                multiply<mma_shape, A, B>(sum, a, b, step, t);
    }
    /* Returns the row of the block's part that a thread's sum i is of; its column. */
    static __device__ __forceinline__ int row_of(int t, int i)
    {
        return t / WF_WARP / SIDE * WARP + t % WF_WARP / 4 + i / (4 * COLUMNS) * 16 +
               i / 2 % 2 * 8;
    }
    static __device__ __forceinline__ int column_of(int t, int i)
    {
        return t / WF_WARP % SIDE * WARP + t % 4 * 2 + i / 4 % COLUMNS * 8 + i % 2;
    }
};

using mma_many_rows = mma_shape<WF_TENSOR_TILE, 64, 32>;
using mma_few_rows = mma_shape<16, 64, 16>;

#ifdef WF_CUDA_EMULATED
template <bool ALONG> float element(const char *tile, int row, int term)
{
    int line = ALONG ? row : term, at = ALONG ? term : row;
    uint16_t bits;

    memcpy(&bits,
           tile + at / 64 * WF_TILE_BLOCK + line * WF_TILE_LINE +
               ((at % 64 / 8 ^ line % 8) * 16) + at % 8 * 2,
           2);
    return __uint_as_float((uint32_t)bits << 16);
}

template <class S, bool A, bool B>
__device__ __forceinline__ void multiply(float (&sum)[S::SUMS], const char *a, const char *b,
                                         int step, int t)
{
    for (int i = 0; i < S::SUMS; i++)
        for (int k = step * WF_TILE_STEP; k < (step + 1) * WF_TILE_STEP; k++)
            sum[i] = fmaf(element<A>(a, S::row_of(t, i), k),
                          element<B>(b, S::column_of(t, i), k), sum[i]);
}
#else
/* Four matrices of 8 x 8 elements, a row of each from the thread that names it. */
template <bool ALONG>
__device__ __forceinline__ void load_matrices(uint32_t (&to)[4], const char *from)
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
__device__ __forceinline__ const char *matrix_row(const char *tile, int row, int term, int lane,
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

__device__ __forceinline__ void multiply_fragment(float *sum, const uint32_t (&a)[4],
                                                  uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* The four sums from 4 (COLUMNS i + j) on are fragment (i, j) of the warp's. */
template <class S, bool A, bool B>
__device__ __forceinline__ void multiply(float (&sum)[S::SUMS], const char *a, const char *b,
                                         int step, int t)
{
    int warp = t / WF_WARP, lane = t % WF_WARP, term = step * WF_TILE_STEP;
    int row = warp / S::SIDE * S::WARP, column = warp % S::SIDE * S::WARP;
    uint32_t x[S::ROWS][4], y[S::ROWS][4]; /* y has two fragments in each */

#pragma unroll
    for (int i = 0; i < S::ROWS; i++) {
        load_matrices<A>(x[i], matrix_row<A>(a, row + 16 * i, term, lane, true));
        load_matrices<B>(y[i], matrix_row<B>(b, column + 16 * i, term, lane, false));
    }
#pragma unroll
    for (int i = 0; i < S::ROWS; i++)
#pragma unroll
        for (int j = 0; j < S::COLUMNS; j++)
            multiply_fragment(sum + 4 * (S::COLUMNS * i + j), x[i], y[j / 2][2 * (j % 2)],
                              y[j / 2][2 * (j % 2) + 1]);
}
#endif

template <class S, class T>
cudaError_t launch_coded(cudaStream_t stream, const wf_tensor_product *p)
{
    return p->b_along ? launch<S, coded_bf16_weights<S, true>, true, T>(stream, p)
                      : launch<S, coded_bf16_weights<S, false>, true, T>(stream, p);
}

template <class T> cudaError_t launch_any(cudaStream_t stream, const wf_tensor_product *p)
{
    typedef mma_many_rows S;

    if (p->coded && !p->a_along)
        return cudaErrorNotSupported; /* activations are, where weights are the other factor */
    if (p->coded)
        return p->m <= mma_few_rows::DOWN ? launch_coded<mma_few_rows, T>(stream, p)
                                          : launch_coded<mma_many_rows, T>(stream, p);
    if (p->a_along)
        return p->b_along ? launch<S, bf16_weights<S, true>, true, T>(stream, p)
                          : launch<S, bf16_weights<S, false>, true, T>(stream, p);
    return p->b_along ? launch<S, bf16_weights<S, true>, false, T>(stream, p)
                      : launch<S, bf16_weights<S, false>, false, T>(stream, p);
}

} // namespace

cudaError_t wf_cuda_launch_tensor_product(cudaStream_t stream, const wf_tensor_product *p)
{
    return p->result.type == WF_BF16 ? launch_any<wf_bf16>(stream, p)
                                     : launch_any<float>(stream, p);
}

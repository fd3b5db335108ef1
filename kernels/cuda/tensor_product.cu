/*
 * kernels/cuda/tensor_product.cu - tensor products by mma.sync, which every GPU from compute
 * capability 8.0 on has; on the emulated device the same without tensor cores.
 *
 * A block makes 128 x 64 elements of a node, each of its eight warps 32 x 32.
 */
#include "kernels/cuda/tensor_tile_internal.h"

enum {
    DOWN = WF_TENSOR_TILE,
    ACROSS = 64,
    STAGES = 3,
    TILE_A = DOWN * WF_TILE_LINE,
    TILE_B = ACROSS * WF_TILE_LINE,
    STAGE = TILE_A + TILE_B,
    SUMS = 32 /* sums of a thread: 2 x 4 fragments of 16 x 8 elements */
};

namespace
{

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

template <bool A, bool B>
void multiply(float (&sum)[SUMS], const char *a, const char *b, int step, int warp, int lane)
{
    for (int i = 0; i < SUMS; i++) {
        int row = warp / 2 * 32 + i / 16 * 16 + lane / 4 + i / 2 % 2 * 8;
        int column = warp % 2 * 32 + i / 4 % 4 * 8 + lane % 4 * 2 + i % 2;

        for (int k = step * WF_TILE_STEP; k < (step + 1) * WF_TILE_STEP; k++)
            sum[i] = fmaf(element<A>(a, row, k), element<B>(b, column, k), sum[i]);
    }
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

/* 16 terms: sum[16 i + 4 j ..] is fragment (i, j) of the warp's rows and columns. */
template <bool A, bool B>
__device__ __forceinline__ void multiply(float (&sum)[SUMS], const char *a, const char *b,
                                         int step, int warp, int lane)
{
    int row = warp / 2 * 32, column = warp % 2 * 32, term = step * WF_TILE_STEP;
    uint32_t x[2][4], y[2][4];

#pragma unroll
    for (int i = 0; i < 2; i++) {
        load_matrices<A>(x[i], matrix_row<A>(a, row + 16 * i, term, lane, true));
        load_matrices<B>(y[i], matrix_row<B>(b, column + 16 * i, term, lane, false));
    }
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            multiply_fragment(sum + 16 * i + 4 * j, x[i], y[j / 2][2 * (j % 2)],
                              y[j / 2][2 * (j % 2) + 1]);
}
#endif

/* The next tiles of both factors on their way to a stage, where there are some. */
template <bool A, bool B>
__device__ __forceinline__ void load_next(const wf_tensor_product &p, const wf_tile_job &job,
                                          wf_tile_walk *w, char *stage, int t)
{
    if (w->piece < w->end) {
        const wf_tensor_piece &x = p.piece[w->piece];

        wf_load_tile<DOWN, WF_BLOCK, A>(stage, (const wf_bf16 *)x.a, x.a_ld,
                                        (int64_t)job.row * DOWN, p.m, w->k, x.depth, t);
        wf_load_tile<ACROSS, WF_BLOCK, B>(stage + TILE_A, (const wf_bf16 *)x.b, x.b_ld,
                                          (int64_t)job.column * ACROSS, p.n, w->k, x.depth, t);
        w->k += WF_TILE_DEPTH;
        wf_skip_empty(p, w);
    }
    wf_copy_commit(); /* an empty group too: waits count them */
}

/* Computes the sum of chunk l of a job, whose tiles come by the stages one after the other. */
template <bool A, bool B>
__device__ __forceinline__ void sum_chunk(const wf_tensor_product &p, const wf_tile_job &job,
                                          int l, float (&sum)[SUMS], wf_tile_walk *w,
                                          char *stages, int *stage)
{
    int t = (int)threadIdx.x, first = (job.first + l) * p.members;

    wf_clear(sum);
    for (int q = first; q < first + p.members; q++) {
        for (int64_t k = 0; k < p.piece[q].depth; k += WF_TILE_DEPTH) {
            const char *a = stages + *stage * STAGE;
            int64_t left = p.piece[q].depth - k;

            wf_copy_wait<STAGES - 2>();
            __syncthreads();
            load_next<A, B>(p, job, w, stages + (*stage + STAGES - 1) % STAGES * STAGE, t);
#pragma unroll
            for (int step = 0; step < WF_TILE_DEPTH / WF_TILE_STEP; step++)
                if (step * WF_TILE_STEP < left)
                    multiply<A, B>(sum, a, a + TILE_A, step, t / WF_WARP, t % WF_WARP);
            *stage = (*stage + 1) % STAGES;
        }
    }
}

template <bool A, bool B, class T>
__global__ void __launch_bounds__(WF_BLOCK, 1)
    tensor_kernel(const WF_GRID_CONSTANT wf_tensor_product p)
{
    WF_DYNAMIC_SHARED(char, stages);
    int t = (int)threadIdx.x, row = t / WF_WARP / 2 * 32 + t % WF_WARP / 4;
    int column = t / WF_WARP % 2 * 32 + t % 4 * 2;
    int down = (int)((p.m + DOWN - 1) / DOWN), across = (int)((p.n + ACROSS - 1) / ACROSS);

    for (int j = (int)blockIdx.x; j < down * across << p.levels; j += (int)gridDim.x) {
        wf_tile_job job = wf_job_of(p, j, down, across);
        float sum[SUMS];
        wf_tile_walk w = {job.first * p.members, (job.first + job.count) * p.members, 0};
        int stage = 0;

        wf_clear(sum);
        wf_skip_empty(p, &w);
        for (int s = 0; s < STAGES - 1; s++)
            load_next<A, B>(p, job, &w, stages + s * STAGE, t);
        wf_sum_chunks(job.count, sum, [&](int l, float(&to)[SUMS]) {
            sum_chunk<A, B>(p, job, l, to, &w, stages, &stage);
        });
        wf_copy_wait<0>();
        __syncthreads();
#pragma unroll
        for (int i = 0; i < SUMS; i++)
            *wf_sum_at<ACROSS>((float *)stages, row + i / 16 * 16 + i / 2 % 2 * 8,
                               column + i / 4 % 4 * 8 + i % 2) = sum[i];
        __syncthreads();
        wf_finish_tile<T, DOWN, ACROSS, WF_BLOCK>(p, (T *)p.result.to + job.node * p.stride,
                                                  (float *)stages, (int64_t)job.row * DOWN,
                                                  (int64_t)job.column * ACROSS, t);
        __syncthreads();
    }
}

template <class T> cudaError_t launch(cudaStream_t stream, const wf_tensor_product *p)
{
    static void (*const kernel[])(const wf_tensor_product) = {
        tensor_kernel<false, false, T>, tensor_kernel<false, true, T>,
        tensor_kernel<true, false, T>, tensor_kernel<true, true, T>};
    auto *k = kernel[2 * p->a_along + p->b_along];
    int64_t jobs = wf_ceil(p->m, DOWN) * wf_ceil(p->n, ACROSS) << p->levels;
    cudaError_t code =
        cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize, STAGES * STAGE);

    return code == cudaSuccess
               ? wf_launch(k, wf_grid(jobs, 1), WF_BLOCK, STAGES * STAGE, stream, *p)
               : code;
}

} // namespace

cudaError_t wf_cuda_launch_tensor_product(cudaStream_t stream, const wf_tensor_product *p)
{
    return p->result.type == WF_BF16 ? launch<wf_bf16>(stream, p) : launch<float>(stream, p);
}

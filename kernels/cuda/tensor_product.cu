/*
 * kernels/cuda/tensor_product.cu - tensor products by mma.sync, which every GPU from compute
 * capability 8.0 on has; on the emulated device the same without tensor cores.
 *
 * A block makes 128 x 64 elements of a node, each of its eight warps 32 x 32.
 */
#include "kernels/cuda/tensor_fragment_internal.h"

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

/* 16 terms: sum[16 i + 4 j ..] is fragment (i, j) of the warp's rows and columns. */
template <bool A, bool B>
__device__ __forceinline__ void multiply(float (&sum)[SUMS], const char *a, const char *b,
                                         int step, int warp, int lane)
{
    int row = warp / 2 * 32, column = warp % 2 * 32, term = step * WF_TILE_STEP;
    uint32_t x[2][4], y[8];

#pragma unroll
    for (int i = 0; i < 2; i++) {
        wf_load_fragment<A>(x[i], a, row + 16 * i, term, lane, true);
        wf_load_fragment<B>(y + 4 * i, b, column + 16 * i, term, lane, false);
    }
#pragma unroll
    for (int i = 0; i < 2; i++)
        wf_multiply_fragments<4>(sum + 16 * i, x[i], y);
}

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

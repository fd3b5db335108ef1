/*
 * kernels/cuda/tensor_product.cu - tensor products by mma.sync (tensor_mma_internal.h): a block
 * makes 128 x 64 elements of a node.
 */
#include "kernels/cuda/tensor_mma_internal.h"

namespace
{

/* The next tiles of both factors on their way to a stage, where there are some. */
template <bool A, bool B>
__device__ __forceinline__ void load_next(const wf_tensor_product &p, const wf_tile_job &job,
                                          wf_tile_walk *w, char *stage, int t)
{
    if (w->piece < w->end) {
        const wf_tensor_piece &x = p.piece[w->piece];

        wf_load_tile<WF_MMA_DOWN, WF_BLOCK, A>(stage, (const wf_bf16 *)x.a, x.a_ld,
                                               (int64_t)job.row * WF_MMA_DOWN, p.m, w->k,
                                               x.depth, t);
        wf_load_tile<WF_MMA_ACROSS, WF_BLOCK, B>(stage + WF_MMA_TILE_A, (const wf_bf16 *)x.b,
                                                 x.b_ld, (int64_t)job.column * WF_MMA_ACROSS,
                                                 p.n, w->k, x.depth, t);
        w->k += WF_TILE_DEPTH;
        wf_skip_empty(p, w);
    }
    wf_copy_commit(); /* an empty group too: waits count them */
}

template <bool A, bool B, class T>
__global__ void __launch_bounds__(WF_BLOCK, 1)
    tensor_kernel(const WF_GRID_CONSTANT wf_tensor_product p)
{
    WF_DYNAMIC_SHARED(char, stages);
    int t = (int)threadIdx.x, down = (int)((p.m + WF_MMA_DOWN - 1) / WF_MMA_DOWN);
    int across = (int)((p.n + WF_MMA_ACROSS - 1) / WF_MMA_ACROSS);

    for (int j = (int)blockIdx.x; j < down * across << p.levels; j += (int)gridDim.x) {
        wf_tile_job job = wf_job_of(p, j, down, across);
        float sum[WF_MMA_SUMS];
        wf_tile_walk w = {job.first * p.members, (job.first + job.count) * p.members, 0};
        int stage = 0;
        auto load = [&](char *to) { load_next<A, B>(p, job, &w, to, t); };

        wf_clear(sum);
        wf_skip_empty(p, &w);
        wf_mma_begin(stages, load);
        wf_sum_chunks(job.count, sum, [&](int l, float(&to)[WF_MMA_SUMS]) {
            int first = (job.first + l) * p.members;

            wf_clear(to);
            for (int q = first; q < first + p.members; q++)
                for (int64_t k = 0; k < p.piece[q].depth; k += WF_TILE_DEPTH)
                    wf_mma_add<A, B>(to, stages, &stage, p.piece[q].depth - k, true, load);
        });
        wf_mma_put<wf_mma_slot>((float *)stages, sum);
        wf_finish_tile<T, WF_MMA_DOWN, WF_MMA_ACROSS, WF_BLOCK>(
            p, (T *)p.result.to + job.node * p.stride, (float *)stages,
            (int64_t)job.row * WF_MMA_DOWN, (int64_t)job.column * WF_MMA_ACROSS, t);
        __syncthreads();
    }
}

template <class T> cudaError_t launch(cudaStream_t stream, const wf_tensor_product *p)
{
    static void (*const kernel[])(const wf_tensor_product) = {
        tensor_kernel<false, false, T>, tensor_kernel<false, true, T>,
        tensor_kernel<true, false, T>, tensor_kernel<true, true, T>};
    auto *k = kernel[2 * p->a_along + p->b_along];
    int64_t jobs = wf_ceil(p->m, WF_MMA_DOWN) * wf_ceil(p->n, WF_MMA_ACROSS) << p->levels;
    cudaError_t code =
        cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize, WF_MMA_SHARED);

    return code == cudaSuccess
               ? wf_launch(k, wf_grid(jobs, 1), WF_BLOCK, WF_MMA_SHARED, stream, *p)
               : code;
}

} // namespace

cudaError_t wf_cuda_launch_tensor_product(cudaStream_t stream, const wf_tensor_product *p)
{
    return p->result.type == WF_BF16 ? launch<wf_bf16>(stream, p) : launch<float>(stream, p);
}

/*
 * kernels/cuda/tensor_kernel_internal.h - a product on tensor cores whose tiles are loaded by
 * all threads of a block: bf16 is copied on its way to shared memory, nf4 is widened. For .cu
 * files.
 *
 * S is a shape (tensor_tile_internal.h), which makes a block's part of a node.
 */
#ifndef WF_KERNELS_CUDA_TENSOR_KERNEL_INTERNAL_H
#define WF_KERNELS_CUDA_TENSOR_KERNEL_INTERNAL_H

#include "kernels/cuda/tensor_tile_internal.h"

namespace
{

/* ---- the second factor: where a tile of it comes from ---- */

/* The factor where it is bf16: it is copied on its way. */
template <class S, bool B> struct bf16_weights {
    enum { ALONG = B, TABLES = 0 };

    __device__ __forceinline__ void begin(const wf_tensor_product &, float *)
    {
    }

    __device__ __forceinline__ void load(const wf_tensor_product &p, int q, char *tile,
                                         int64_t first, int64_t k, int t)
    {
        const wf_tensor_piece &x = p.piece[q];

        wf_load_tile<S::ACROSS, S::THREADS, B>(tile, (const wf_bf16 *)x.b, x.b_ld, first, p.n,
                                               k, x.depth, t);
    }

    __device__ __forceinline__ void finish(const wf_tensor_product &, int)
    {
    }
};

/* Eight numbers as a unit of a line (tensor_tile_internal.h). */
struct put_bf16_unit {
    typedef char tile;

    static __device__ __forceinline__ void put(char *to, int line, int unit, const float *x)
    {
        *(uint4 *)(to + unit / 8 * WF_TILE_BLOCK + line * WF_TILE_LINE +
                   (unit ^ line) % 8 * 16) = wf_packed(x, (const wf_bf16 *)to).raw;
    }
};

/* The factor where it is nf4. */
template <class S, bool B>
using coded_bf16_weights =
    wf_coded_weights<bf16_weights<S, B>, put_bf16_unit, S::ACROSS, WF_TILE_DEPTH, S::THREADS>;

/* The next tiles of both factors on their way to a stage, where there are some. */
template <class S, class W, bool A>
__device__ __forceinline__ void load_next(const wf_tensor_product &p, const wf_tile_job &job,
                                          wf_tile_walk *w, W *weights, char *stage, int t)
{
    if (w->piece < w->end) {
        const wf_tensor_piece &x = p.piece[w->piece];

        wf_load_tile<S::DOWN, S::THREADS, A>(stage, (const wf_bf16 *)x.a, x.a_ld,
                                             (int64_t)job.row * S::DOWN, p.m, w->k, x.depth, t);
        weights->load(p, w->piece, stage + S::TILE_A, (int64_t)job.column * S::ACROSS, w->k, t);
        w->k += WF_TILE_DEPTH;
        wf_skip_empty(p, w);
    } else {
        weights->finish(p, t);
    }
    wf_copy_commit(); /* an empty group too: waits count them */
}

template <class S, class W, bool A, class T>
__global__ void __launch_bounds__(S::THREADS, 1)
    tensor_kernel(const WF_GRID_CONSTANT wf_tensor_product p)
{
    WF_DYNAMIC_SHARED(char, shared);
    char *stages = S::aligned(shared);
    int t = (int)threadIdx.x, down = (int)((p.m + S::DOWN - 1) / S::DOWN);
    int across = (int)((p.n + S::ACROSS - 1) / S::ACROSS);
    W weights;

    weights.begin(p, (float *)(stages + WF_TILE_STAGES * S::STAGE));
    for (int j = (int)blockIdx.x; j < down * across << p.levels; j += (int)gridDim.x) {
        wf_tile_job job = wf_job_of(p, j, down, across);
        float sum[S::SUMS];
        wf_tile_walk w = {job.first * p.members, (job.first + job.count) * p.members, 0};
        int stage = 0;

        auto load = [&](char *to) { load_next<S, W, A>(p, job, &w, &weights, to, t); };

        wf_skip_empty(p, &w);
        wf_clear(sum);
        wf_begin_tiles<S>(stages, load);
        wf_sum_chunks(job.count, sum, [&](int l, float(&to)[S::SUMS]) {
            const int first = (job.first + l) * p.members;

            wf_clear(to);
            for (int q = first; q < first + p.members; q++)
                for (int64_t k = 0; k < p.piece[q].depth; k += WF_TILE_DEPTH)
                    wf_add_tiles<S, A, (bool)W::ALONG>(to, stages, &stage, p.piece[q].depth - k,
                                                       true, load);
        });
        wf_put_sums<S>((float *)stages, sum);
        wf_finish_tile<T, S::DOWN, S::ACROSS, S::THREADS>(
            p, (T *)p.result.to + job.node * p.stride, (float *)stages,
            (int64_t)job.row * S::DOWN, (int64_t)job.column * S::ACROSS, t);
        __syncthreads();
    }
}

template <class S, class W, bool A, class T>
cudaError_t launch(cudaStream_t stream, const wf_tensor_product *p)
{
    constexpr int bytes =
        S::ALIGNED + WF_TILE_STAGES * S::STAGE + (int)W::TABLES * (int)sizeof(float);
    auto *k = tensor_kernel<S, W, A, T>;
    int64_t jobs = wf_ceil(p->m, S::DOWN) * wf_ceil(p->n, S::ACROSS) << p->levels;
    cudaError_t code =
        cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);

    return code == cudaSuccess ? wf_launch(k, wf_grid(jobs, 1), S::THREADS, bytes, stream, *p)
                               : code;
}

} // namespace

#endif

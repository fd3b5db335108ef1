/*
 * kernels/cuda/moe_tensor_weights_internal.h - gradients of experts' matrices of bf16 on tensor
 * cores (moe_tensor_internal.h): products of an expert's rows with each other, a chain for each
 * leaf of the tree over chunks of tokens, whose rows are in the table of moe_lists.cu. For .cu
 * files.
 */
#ifndef WF_KERNELS_CUDA_MOE_TENSOR_WEIGHTS_INTERNAL_H
#define WF_KERNELS_CUDA_MOE_TENSOR_WEIGHTS_INTERNAL_H

#include "kernels/cuda/moe_tensor_internal.h"

namespace
{
typedef wf_tile_share<GROUP_DOWN, WF_BLOCK, false> terms_share;
typedef wf_tile_share<GROUP_ACROSS, WF_BLOCK, false> others_share;

/* The leaves of an expert that have not been brought: rows [k, end) of the first one, and the
   rows of both factors that its next tiles have. */
template <bool WIDE> struct leaf_walk {
    const int *ends; /* those of the leaves that follow */
    int leaves;
    int k, end;
    group_rows<terms_share, WIDE> a;
    group_rows<others_share, WIDE> b;
};

/* Continues where there are rows, and looks ahead for the tokens that these are of: a load of
   the memory that nothing waits for before the next tiles are multiplied. */
template <bool WIDE>
__device__ __forceinline__ void skip_leaves(const wf_moe_weight_product &p, leaf_walk<WIDE> *w)
{
    while (w->k >= w->end && w->leaves > 0) {
        w->end = *w->ends++;
        w->leaves--;
    }
    if (w->k < w->end) {
        w->a.find(p.a, w->k, w->end);
        w->b.find(p.b, w->k, w->end);
    }
}

template <bool WIDE>
__device__ __forceinline__ void bring_terms(const wf_moe_weight_product &p, int row, int column,
                                            leaf_walk<WIDE> *w, char *stage)
{
    const terms_share a((int)threadIdx.x);
    const others_share b((int)threadIdx.x);
    const int x = row + 8 * a.unit, y = column + 8 * b.unit;

    if (w->k < w->end) {
        bring_share<WIDE>(stage, a, (const wf_bf16 *)p.a.data, p.m - x, [&](int i) -> int64_t {
            const int64_t at = w->a.at(i, p.a, w->k, w->end);

            return at < 0 ? -1 : at * p.a.row + x;
        });
        bring_share<WIDE>(stage + GROUP_TILE_A, b, (const wf_bf16 *)p.b.data, p.n - y,
                          [&](int i) -> int64_t {
                              const int64_t at = w->b.at(i, p.b, w->k, w->end);

                              return at < 0 ? -1 : at * p.b.row + y;
                          });
        w->k += WF_TILE_DEPTH;
        if (w->k > w->end)
            w->k = w->end;
        skip_leaves(p, w);
    }
    wf_copy_commit();
}

/* Sums of nodes that wait for their other half, the last one first: two in registers, as many
   as a tree over four chunks has, others in the block's own memory. */
struct open_nodes {
    float lower[GROUP_SUMS], upper[GROUP_SUMS];
    float *aside;
    int waiting;

    __device__ __forceinline__ float4 *at(int i) const
    {
        return (float4 *)aside +
               ((waiting - WF_MOE_HELD) * (GROUP_SUMS / 4) + i) * (int64_t)WF_BLOCK +
               threadIdx.x;
    }

    __device__ __forceinline__ void put_away(const float (&sum)[GROUP_SUMS]) const
    {
#pragma unroll
        for (int i = 0; i < GROUP_SUMS / 4; i++)
            *at(i) = make_float4(sum[4 * i], sum[4 * i + 1], sum[4 * i + 2], sum[4 * i + 3]);
    }

    __device__ __forceinline__ void add_away(float (&sum)[GROUP_SUMS]) const
    {
#pragma unroll
        for (int i = 0; i < GROUP_SUMS / 4; i++) {
            const float4 left = *at(i);

            sum[4 * i] = left.x + sum[4 * i];
            sum[4 * i + 1] = left.y + sum[4 * i + 1];
            sum[4 * i + 2] = left.z + sum[4 * i + 2];
            sum[4 * i + 3] = left.w + sum[4 * i + 3];
        }
    }

    __device__ __forceinline__ void push(const float (&sum)[GROUP_SUMS])
    {
        if (waiting == 0)
            wf_put_aside(lower, sum);
        else if (waiting == 1)
            wf_put_aside(upper, sum);
        else
            put_away(sum);
        waiting++;
    }

    __device__ __forceinline__ void add_to(float (&sum)[GROUP_SUMS])
    {
        waiting--;
        if (waiting == 0)
            wf_add_to(sum, lower);
        else if (waiting == 1)
            wf_add_to(sum, upper);
        else
            add_away(sum);
    }
};

template <class E, bool WIDE>
__global__ void __launch_bounds__(WF_BLOCK, 1)
    expert_weights_kernel(const WF_GRID_CONSTANT wf_moe_weight_product p,
                          const WF_GRID_CONSTANT wf_moe_lists lists)
{
    WF_DYNAMIC_SHARED(char, shared);
    char *const stages = E::shape::aligned(shared);
    const int down = (int)((p.m + GROUP_DOWN - 1) / GROUP_DOWN);
    const int across = (int)((p.n + GROUP_ACROSS - 1) / GROUP_ACROSS);
    const bool wide = ((uintptr_t)p.c % 16 | (uintptr_t)(p.n % wf_pack<float>::N)) == 0;
    const int leaves = (int)lists.leaves;

    for (int64_t j = blockIdx.x; j < lists.experts * down * across; j += gridDim.x) {
        const int64_t e = j / (down * across);
        const int *ends = lists.leaf + e * (leaves + 1) + 1;
        float sum[GROUP_SUMS];
        open_nodes open;
        int stage = 0, k = ends[-1];
        leaf_walk<WIDE> w = {ends, leaves, k, k};
        const wf_tile_position tile =
            wf_tile_position_of((int)(j % (down * across)), down, across, GROUP_BAND);
        const int row = tile.row * GROUP_DOWN, column = tile.column * GROUP_ACROSS;
        const bool works = E::works(p.m - row, p.n - column);
        auto load = [&](char *to) { bring_terms<WIDE>(p, row, column, &w, to); };

        wf_clear(sum);
        open.waiting = 0;
        open.aside = p.aside + blockIdx.x * p.aside_each;
        skip_leaves(p, &w);
        wf_begin_tiles<typename E::shape>(stages, load);
#pragma unroll 1
        for (int l = 0; l < leaves; l++) {
            const int end = ends[l];

            wf_clear(sum);
#pragma unroll 1
            for (; k < end; k += WF_TILE_DEPTH)
                E::template add<false, false>(sum, stages, &stage, end - k, works, load);
            E::finish();
            k = end;
#pragma unroll 1
            for (int merges = lists.merges[l]; merges > 0; merges--)
                open.add_to(sum);
            if (l + 1 < leaves)
                open.push(sum);
        }
        wf_put_sums<typename E::shape>((float *)stages, sum);
        put_sums<float>((float *)stages, p.m - row, p.n - column, 1.0f, wide,
                        [&](int r) { return p.c + (e * p.m + row + r) * p.n + column; });
        __syncthreads();
    }
}

/* ---- the host's side ---- */

template <class E>
cudaError_t launch_weights(cudaStream_t stream, const wf_moe_weight_product *p, int processors)
{
    const wf_moe_lists *l = p->lists;
    const int64_t jobs = l->experts * wf_ceil(p->m, GROUP_DOWN) * wf_ceil(p->n, GROUP_ACROSS);
    const int64_t aside = wf_moe_aside(l->levels);
    wf_moe_weight_product of = *p;

    of.aside_each = aside / WF_MOE_BLOCKS;
    return launch_group<E>(
        is_wide(p->a) && is_wide(p->b) ? expert_weights_kernel<E, true>
                                       : expert_weights_kernel<E, false>,
        jobs, aside && processors > WF_MOE_BLOCKS ? (int)WF_MOE_BLOCKS : processors, stream, of,
        *l);
}
} // namespace

#endif

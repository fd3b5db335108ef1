/*
 * kernels/cuda/moe_lists.cu - the rows of each expert as a list, in the order of choices: a
 * block for an expert goes through all of them; and where in it chunks of tokens begin.
 */
#include "kernels/cuda/launch_internal.h"
#include "kernels/cuda/moe_internal.h"

namespace
{
__global__ void __launch_bounds__(WF_BLOCK) expert_choice_kernel(wf_moe_lists l)
{
    const int64_t step = (int64_t)gridDim.x * WF_BLOCK;

    for (int64_t c = (int64_t)blockIdx.x * WF_BLOCK + threadIdx.x; c < l.choices; c += step) {
        l.row[c] = -1;
        l.expert[c] = wf_moe_own_expert(&l, c);
    }
}

/* Returns how many threads of the block before this one vote yes; *all: how many of all do.
   room: WF_WARPS numbers, free for other use when it returns. */
__device__ int count_before(bool vote, int *room, int *all)
{
    const unsigned votes = __ballot_sync(0xffffffffu, vote);
    const int lane = (int)threadIdx.x % WF_WARP, warp = (int)threadIdx.x / WF_WARP;
    int before = __popc(votes & ((1u << lane) - 1));

    if (lane == 0)
        room[warp] = __popc(votes);
    __syncthreads();
    *all = 0;
    for (int w = 0; w < WF_WARPS; w++) {
        before += w < warp ? room[w] : 0;
        *all += room[w];
    }
    __syncthreads();
    return before;
}

/* Block e: where the rows of expert e begin, which is how many choices are of experts before
   it, and what they are; the last block counts all. */
__global__ void __launch_bounds__(WF_BLOCK) expert_row_kernel(wf_moe_lists l)
{
    WF_SHARED(int, room, WF_WARPS);
    const int e = (int)blockIdx.x;
    int r = 0, all;

    for (int64_t c = threadIdx.x; c - threadIdx.x < l.choices; c += WF_BLOCK) {
        const int expert = c < l.choices ? l.expert[c] : (int)WF_MOE_OTHER;

        count_before(expert >= 0 && expert < e, room, &all);
        r += all;
    }
    if (threadIdx.x == 0)
        l.begin[e] = r;
    if (e == l.experts)
        return;
    for (int64_t c = threadIdx.x; c - threadIdx.x < l.choices; c += WF_BLOCK) {
        const bool own = c < l.choices && l.expert[c] == e;
        const int at = r + count_before(own, room, &all);

        if (own) {
            l.row[c] = at;
            l.token[at] = (int)(c / l.k);
            l.choice[at] = (int)c;
        }
        r += all;
    }
}

/* Returns the first row of [row, end) whose token is not below `token`. */
__device__ int64_t row_from(const int *tokens, int64_t row, int64_t end, int64_t token)
{
    while (row < end) {
        const int64_t middle = row + (end - row) / 2;

        if (tokens[middle] < token)
            row = middle + 1;
        else
            end = middle;
    }
    return row;
}

__global__ void __launch_bounds__(WF_BLOCK)
    leaf_kernel(const WF_GRID_CONSTANT wf_moe_lists l,
                const WF_GRID_CONSTANT wf_token_cuts cuts)
{
    const int64_t step = (int64_t)gridDim.x * WF_BLOCK, n = l.experts * (l.leaves + 1);

    for (int64_t i = (int64_t)blockIdx.x * WF_BLOCK + threadIdx.x; i < n; i += step) {
        const int64_t e = i / (l.leaves + 1), leaf = i % (l.leaves + 1), end = l.begin[e + 1];

        l.leaf[i] = leaf == l.leaves ? (int)end
                                     : (int)row_from(l.token, l.begin[e], end,
                                                     wf_token_chunk_at(&cuts, leaf));
        if (i < l.leaves)
            l.merges[i] = wf_tree_merges_each(l.leaves, cuts.chunks, i);
    }
}
} // namespace

cudaError_t wf_cuda_launch_moe_lists(cudaStream_t stream, const wf_moe_lists *l)
{
    cudaError_t error =
        wf_launch(expert_choice_kernel, wf_grid(l->choices, WF_BLOCK), WF_BLOCK, 0, stream, *l);

    return error == cudaSuccess
               ? wf_launch(expert_row_kernel, (unsigned)l->experts + 1, WF_BLOCK, 0, stream, *l)
               : error;
}

cudaError_t wf_cuda_launch_moe_leaves(cudaStream_t stream, const wf_moe_lists *l,
                                      const wf_token_cuts *cuts)
{
    return wf_launch(leaf_kernel, wf_grid(l->experts * (l->leaves + 1), WF_BLOCK), WF_BLOCK, 0,
                     stream, *l, *cuts);
}

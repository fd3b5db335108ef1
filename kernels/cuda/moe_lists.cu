/*
 * kernels/cuda/moe_lists.cu - the rows of each expert as a list, in the order of choices: a
 * block for an expert goes through all of them.
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
} // namespace

cudaError_t wf_cuda_launch_moe_lists(cudaStream_t stream, const wf_moe_lists *l)
{
    cudaError_t error =
        wf_launch(expert_choice_kernel, wf_grid(l->choices, WF_BLOCK), WF_BLOCK, 0, stream, *l);

    return error == cudaSuccess
               ? wf_launch(expert_row_kernel, (unsigned)l->experts + 1, WF_BLOCK, 0, stream, *l)
               : error;
}

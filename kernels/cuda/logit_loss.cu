/*
 * kernels/cuda/logit_loss.cu - the row logit_loss of kernels/loss.c: losses and the logits'
 * gradient, with the bits of the kernels of loss.cu.
 *
 * A block has GROUPS times as many threads as theirs, each group for its share of a row's
 * chunks: four where threads would have more than one element of a chunk. It goes over the row
 * three times, and finds it in the caches from the second time on.
 */
#include "kernels/cuda/loss_row_internal.h"

namespace
{
struct loss_job {
    logits l;
    void *dx;
    const int32_t *target;
    const float *dloss;
    float *loss;
    wf_label_weights weight;
    int64_t at[WF_MAX_CHUNKS + 1];
};

enum { MOST_GROUPS = 4, SUMS = WF_MAX_CHUNKS * WF_WARPS };

/* Sums f over the chunks of a row into room[SUMS]: the warps of each, those after its last
   element without shuffles. */
template <int GROUPS, class F>
__device__ __forceinline__ void sum_chunks(const loss_job &a, float *room, F f)
{
    const int t = (int)threadIdx.x % WF_BLOCK;

#pragma unroll
    for (int k = 0; k < WF_MAX_CHUNKS / GROUPS; k++) {
        const int l = (int)threadIdx.x / WF_BLOCK * (WF_MAX_CHUNKS / GROUPS) + k;
        float sum = 0;

#pragma unroll 8
        for (int64_t i = a.at[l] + t; i < a.at[l + 1]; i += WF_BLOCK)
            sum += f(i);
        if (a.at[l] + first_of_warp() % WF_BLOCK < a.at[l + 1])
            sum = wf_warp_sum(sum);
        if (t % WF_WARP == 0)
            room[l * WF_WARPS + t / WF_WARP] = sum;
    }
    __syncthreads();
}

/* Adds the warps of each chunk up, in order, as wf_block_sum does. */
__device__ __forceinline__ void add_warps(const float *room, float chunk[WF_MAX_CHUNKS])
{
#pragma unroll
    for (int l = 0; l < WF_MAX_CHUNKS; l++) {
        chunk[l] = room[l * WF_WARPS];
        for (int w = 1; w < WF_WARPS; w++)
            chunk[l] += room[l * WF_WARPS + w];
    }
}

/* Picks the target's logit, from the sums of the logits where labels are smoothed. */
template <class T>
__device__ __forceinline__ float picked_of(const loss_job &a, const T *x, int64_t v,
                                           const float *room)
{
    float chunk[WF_MAX_CHUNKS];

    if (v < 0 || v >= a.l.n)
        return v == WF_NO_TARGET ? 0.0f : NAN;
    if (a.weight.each == 0)
        return wf_get(x[v]) + 0.0f;
    add_warps(room, chunk);
#pragma unroll
    for (int l = 0; l < WF_MAX_CHUNKS; l++) {
        chunk[l] *= a.weight.each;
        if (v >= a.at[l] && v < a.at[l + 1])
            chunk[l] += a.weight.target * wf_get(x[v]);
    }
    return tree_of(chunk);
}

/* Has the expressions of the kernels that it joins, and their sums. */
template <class T, int GROUPS>
__global__ void __launch_bounds__(GROUPS *WF_BLOCK, MOST_GROUPS / GROUPS)
    logit_loss_kernel(const WF_GRID_CONSTANT loss_job a)
{
    constexpr int THREADS = GROUPS * WF_BLOCK;
    WF_SHARED(float, room, WF_WARP);
    WF_SHARED(float, exps, SUMS);
    WF_SHARED(float, all, SUMS);

    for (int64_t r = blockIdx.x; r < a.l.rows; r += gridDim.x) {
        const T *x = (const T *)a.l.x + r * a.l.n;
        const float max =
            block_greatest<THREADS>(most_of<THREADS>(x, a.l.n, a.l.wide), a.l.n, room);
        float chunk[WF_MAX_CHUNKS], sum, dloss = a.dloss[r];

        sum_chunks<GROUPS>(a, exps, [&](int64_t i) { return wf_exp_of(wf_get(x[i]) - max); });
        if (a.weight.each != 0)
            sum_chunks<GROUPS>(a, all, [&](int64_t i) { return wf_get(x[i]); });
        add_warps(exps, chunk);
        sum = a.target[r] == WF_NO_TARGET ? 0.0f : tree_of(chunk);
        if (threadIdx.x == 0)
            a.loss[r] =
                sum == 0.0f ? 0.0f : logf(sum) + max - picked_of(a, x, a.target[r], all);
        __syncthreads(); /* the target's logit was read */
        const row_gradient g = {max, sum == 0.0f ? 0.0f : dloss / sum,
                                sum == 0.0f ? 0.0f : -dloss, a.weight, a.target[r]};

        write_gradient<THREADS>(g, x, (T *)a.dx + r * a.l.n, a.l.n, a.l.wide);
    }
}

/* As many rows at a time as fill the processors once: the second level cache holds them. */
template <int GROUPS, class T> cudaError_t launch_groups(const wf_call *call, const loss_job &a)
{
    const unsigned grid = wf_grid(a.l.rows, 1);
    const unsigned most = (unsigned)wf_cuda_of(call)->processors * (MOST_GROUPS / GROUPS);

    return wf_launch(logit_loss_kernel<T, GROUPS>, grid < most ? grid : most, GROUPS * WF_BLOCK,
                     0, wf_cuda_of(call)->stream, a);
}

wf_status logit_loss(const wf_call *call, void *)
{
    const wf_tensor *x = call->in[0];
    loss_job a = {};

    a.dx = call->out[0]->data;
    a.loss = (float *)call->out[1]->data;
    a.target = (const int32_t *)call->in[1]->data;
    a.dloss = (const float *)call->in[2]->data;
    a.weight = wf_label_weights_of(call);
    wf_cut_to_eight(a.at, wf_cuda_host_table->chunk_cuts(x, x->ndim - 1, a.at));
    return wf_run(call, [&](auto zero) {
        typedef decltype(zero) T;

        a.l = logits_of<T>(call, a.dx);
        return a.l.n <= WF_MAX_CHUNKS * WF_BLOCK ? launch_groups<1, T>(call, a)
                                                 : launch_groups<MOST_GROUPS, T>(call, a);
    });
}
} // namespace

const wf_kernel wf_cuda_logit_loss = {logit_loss, NULL, 0, WF_IN(0) | WF_OUT(0)};

/*
 * kernels/cuda/loss.cu - the rows of kernels/loss.c: a block for every row of the vocabulary.
 *
 * The sum of a row is a midpoint tree over the 8 chunks of the vocabulary; element e of a chunk
 * is in thread e % 256, a chain, and threads are added as wf_block_sum does. Rows may begin
 * anywhere, and which thread has an element must not depend on it: so sums read element by
 * element, and only the maximum and the gradient, which have no order, read packs.
 */
#include "kernels/cuda/loss_row_internal.h"

namespace
{
template <class T> __global__ void __launch_bounds__(WF_BLOCK) max_kernel(logits a, float *max)
{
    WF_SHARED(float, room, WF_WARP);

    for (int64_t r = blockIdx.x; r < a.rows; r += gridDim.x) {
        const T *x = (const T *)a.x + r * a.n;
        float most = block_greatest<WF_BLOCK>(most_of<WF_BLOCK>(x, a.n, a.wide), a.n, room);

        if (threadIdx.x == 0)
            max[r] = most;
        __syncthreads(); /* room was read */
    }
}

struct sum_job {
    logits l;
    const float *max;
    const int32_t *target;
    float *sum, *picked;
    wf_label_weights weight;
    int64_t at[WF_MAX_CHUNKS + 1], start, size;
};

/* Picks the target's logit of a row, with label smoothing beside a share of all, chunk by
   chunk. All threads of the block call it. */
template <class T>
__device__ __forceinline__ void pick(const sum_job &a, int64_t r, const T *x, float *room)
{
    const int64_t v = a.target[r] - a.start;
    const bool none = a.target[r] == WF_NO_TARGET;
    const bool known = none || (a.target[r] >= 0 && a.target[r] < a.size);
    const bool here = v >= 0 && v < a.l.n;
    float chunk[WF_MAX_CHUNKS] = {};

    if (a.weight.each != 0) {
#pragma unroll
        for (int l = 0; l < WF_MAX_CHUNKS; l++)
            for (int64_t i = a.at[l] + threadIdx.x; i < a.at[l + 1]; i += WF_BLOCK)
                chunk[l] += wf_get(x[i]);
        __syncthreads(); /* room is read for the sum of exps until here */
        wf_block_sum<WF_MAX_CHUNKS>(chunk, room);
    }
    if (threadIdx.x != 0)
        return;
    if (!known) {
        a.picked[r] = NAN;
    } else if (a.weight.each == 0 || none) {
        a.picked[r] = here ? wf_get(x[v]) + 0.0f : 0.0f;
    } else {
#pragma unroll
        for (int l = 0; l < WF_MAX_CHUNKS; l++) {
            chunk[l] *= a.weight.each;
            if (v >= a.at[l] && v < a.at[l + 1])
                chunk[l] += a.weight.target * wf_get(x[v]);
        }
        a.picked[r] = tree_of(chunk);
    }
}

template <class T>
__global__ void __launch_bounds__(WF_BLOCK) sum_kernel(const WF_GRID_CONSTANT sum_job a)
{
    WF_SHARED(float, room, WF_MAX_CHUNKS *WF_WARP);

    for (int64_t r = blockIdx.x; r < a.l.rows; r += gridDim.x) {
        const T *x = (const T *)a.l.x + r * a.l.n;
        const float max = a.max[r];
        float chunk[WF_MAX_CHUNKS] = {};

#pragma unroll
        for (int l = 0; l < WF_MAX_CHUNKS; l++) {
#pragma unroll 8
            for (int64_t i = a.at[l] + threadIdx.x; i < a.at[l + 1]; i += WF_BLOCK)
                chunk[l] += wf_exp_of(wf_get(x[i]) - max);
        }
        wf_block_sum<WF_MAX_CHUNKS>(chunk, room);
        if (threadIdx.x == 0)
            a.sum[r] = a.target[r] == WF_NO_TARGET ? 0.0f : tree_of(chunk);
        pick(a, r, x, room);
    }
}

struct grad_job {
    logits l;
    void *dx;
    const float *max, *dsum, *dpicked;
    const int32_t *target;
    wf_label_weights weight;
    int64_t start;
};

template <class T> __global__ void __launch_bounds__(WF_BLOCK) grad_kernel(grad_job a)
{
    for (int64_t r = blockIdx.x; r < a.l.rows; r += gridDim.x) {
        const row_gradient g = {a.max[r], a.dsum[r], a.dpicked[r], a.weight,
                                a.target[r] - a.start};

        write_gradient<WF_BLOCK>(g, (const T *)a.l.x + r * a.l.n, (T *)a.dx + r * a.l.n, a.l.n,
                                 a.l.wide);
    }
}

__global__ void __launch_bounds__(WF_BLOCK)
    loss_kernel(const float *sum, const float *picked, const float *max, float *loss, int64_t n)
{
    const int64_t i = (int64_t)blockIdx.x * WF_BLOCK + threadIdx.x;

    if (i < n)
        loss[i] = sum[i] == 0.0f ? 0.0f : logf(sum[i]) + max[i] - picked[i];
}

__global__ void __launch_bounds__(WF_BLOCK)
    loss_grad_kernel(const float *sum, const float *dloss, float *dsum, float *dpicked,
                     int64_t n)
{
    const int64_t i = (int64_t)blockIdx.x * WF_BLOCK + threadIdx.x;

    if (i < n) {
        dsum[i] = sum[i] == 0.0f ? 0.0f : dloss[i] / sum[i];
        dpicked[i] = sum[i] == 0.0f ? 0.0f : -dloss[i];
    }
}

wf_status logit_max(const wf_call *call, void *)
{
    return wf_run(call, [&](auto zero) {
        typedef decltype(zero) T;
        logits l = logits_of<T>(call, NULL);

        return wf_launch(max_kernel<T>, wf_grid(l.rows, 1), WF_BLOCK, 0,
                         wf_cuda_of(call)->stream, l, (float *)call->out[0]->data);
    });
}

wf_status logit_sum(const wf_call *call, void *)
{
    const wf_tensor *x = call->in[0];
    int last = x->ndim - 1;
    sum_job a = {};

    a.max = (const float *)call->in[1]->data;
    a.target = (const int32_t *)call->in[2]->data;
    a.sum = (float *)call->out[0]->data;
    a.picked = (float *)call->out[1]->data;
    a.weight = wf_label_weights_of(call);
    a.start = x->start[last];
    a.size = x->dim[last].size;
    wf_cut_to_eight(a.at, wf_cuda_host_table->chunk_cuts(x, last, a.at));
    return wf_run(call, [&](auto zero) {
        typedef decltype(zero) T;

        a.l = logits_of<T>(call, NULL);
        return wf_launch(sum_kernel<T>, wf_grid(a.l.rows, 1), WF_BLOCK, 0,
                         wf_cuda_of(call)->stream, a);
    });
}

wf_status logit_sum_grad(const wf_call *call, void *)
{
    const wf_tensor *x = call->in[0];
    grad_job a = {};

    a.dx = call->out[0]->data;
    a.max = (const float *)call->in[1]->data;
    a.target = (const int32_t *)call->in[2]->data;
    a.dsum = (const float *)call->in[3]->data;
    a.dpicked = (const float *)call->in[4]->data;
    a.weight = wf_label_weights_of(call);
    a.start = x->start[x->ndim - 1];
    return wf_run(call, [&](auto zero) {
        typedef decltype(zero) T;

        a.l = logits_of<T>(call, a.dx);
        return wf_launch(grad_kernel<T>, wf_grid(a.l.rows, 1), WF_BLOCK, 0,
                         wf_cuda_of(call)->stream, a);
    });
}

wf_status cross_entropy(const wf_call *call, void *)
{
    int64_t n = wf_count(call->out[0]);

    return wf_run(call, [&](auto) {
        return wf_launch(loss_kernel, (unsigned)wf_ceil(n, WF_BLOCK), WF_BLOCK, 0,
                         wf_cuda_of(call)->stream, (const float *)call->in[0]->data,
                         (const float *)call->in[1]->data, (const float *)call->in[2]->data,
                         (float *)call->out[0]->data, n);
    });
}

wf_status cross_entropy_grad(const wf_call *call, void *)
{
    int64_t n = wf_count(call->out[0]);

    return wf_run(call, [&](auto) {
        return wf_launch(loss_grad_kernel, (unsigned)wf_ceil(n, WF_BLOCK), WF_BLOCK, 0,
                         wf_cuda_of(call)->stream, (const float *)call->in[0]->data,
                         (const float *)call->in[1]->data, (float *)call->out[0]->data,
                         (float *)call->out[1]->data, n);
    });
}
} // namespace

const wf_kernel wf_cuda_logit_max = {logit_max, NULL, 0, WF_IN(0)};
const wf_kernel wf_cuda_logit_sum = {logit_sum, NULL, 0, WF_IN(0)};
const wf_kernel wf_cuda_logit_sum_grad = {logit_sum_grad, NULL, 0, WF_IN(0) | WF_OUT(0)};
const wf_kernel wf_cuda_cross_entropy = {cross_entropy, NULL, 0, 0};
const wf_kernel wf_cuda_cross_entropy_grad = {cross_entropy_grad, NULL, 0, 0};

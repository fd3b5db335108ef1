/*
 * kernels/cuda/dims.cu - the rows of kernels/dims.c but sum, which is sums.cu's. A softmax has
 * a warp for each row: lanes take every 32nd element in order, then 16, 8, 4, 2, 1 lanes apart.
 */
#include "kernels/cuda/operands_internal.h"
#include "kernels/dims_internal.h"

namespace
{
struct permute_job {
    int ndim;
    int64_t count, local[WF_MAX_DIMS],
        step[WF_MAX_DIMS]; /* the output's; steps are those of x */
};

template <class T>
__global__ void __launch_bounds__(WF_BLOCK) permute_kernel(const T *x, T *y, permute_job a)
{
    const int64_t step = (int64_t)gridDim.x * WF_BLOCK;

    for (int64_t e = (int64_t)blockIdx.x * WF_BLOCK + threadIdx.x; e < a.count; e += step) {
        int64_t rest = e, from = 0;

        for (int d = a.ndim - 1; d >= 0; d--) {
            from += rest % a.local[d] * a.step[d];
            rest /= a.local[d];
        }
        y[e] = x[from];
    }
}

/* Copies y from x, whose neighbours along each dim of y lie these steps apart. */
wf_status copy_by_steps(const wf_call *call, permute_job a)
{
    const wf_tensor *x = call->in[0], *y = call->out[0];

    for (int d = 0; d < y->ndim; d++)
        a.local[d] = y->local[d];
    return wf_run(call, [&](auto zero) {
        typedef decltype(zero) T;

        return wf_launch(permute_kernel<T>, wf_grid(a.count, WF_BLOCK), WF_BLOCK, 0,
                         wf_cuda_of(call)->stream, (const T *)x->data, (T *)y->data, a);
    });
}

wf_status permute(const wf_call *call, void *)
{
    const wf_tensor *y = call->out[0];
    permute_job a = {y->ndim, wf_count(y), {}, {}};

    wf_permute_steps((const wf_permute_attr *)call->attr, call->in[0], a.step);
    return copy_by_steps(call, a);
}

wf_status broadcast(const wf_call *call, void *)
{
    const wf_tensor *y = call->out[0];
    permute_job a = {y->ndim, wf_count(y), {}, {}};

    wf_broadcast_steps(call->in[0], y, a.step);
    return copy_by_steps(call, a);
}

/* y[o, i] = x[o, skip + i], i < part; or, GRAD, x[o, .] = y[o, . - skip] inside of it, 0
   elsewhere. */
template <class T, bool GRAD>
__global__ void __launch_bounds__(WF_BLOCK) slice_kernel(const T *from, T *to, wf_slice_rows s)
{
    const int64_t step = (int64_t)gridDim.x * WF_BLOCK, row = GRAD ? s.whole : s.part;

    for (int64_t e = (int64_t)blockIdx.x * WF_BLOCK + threadIdx.x; e < s.outer * row;
         e += step) {
        int64_t o = e / row, i = e % row;

        if (!GRAD)
            to[e] = from[o * s.whole + s.skip + i];
        else if (i >= s.skip && i < s.skip + s.part)
            to[e] = from[o * s.part + i - s.skip];
        else
            wf_put(to + e, 0.0f);
    }
}

template <bool GRAD>
wf_status run_slice(const wf_call *call, const wf_tensor *from, const wf_slice_rows &s)
{
    return wf_run(call, [&](auto zero) {
        typedef decltype(zero) T;

        return wf_launch(slice_kernel<T, GRAD>, wf_grid(wf_count(call->out[0]), WF_BLOCK),
                         WF_BLOCK, 0, wf_cuda_of(call)->stream, (const T *)from->data,
                         (T *)call->out[0]->data, s);
    });
}

wf_status slice(const wf_call *call, void *)
{
    return run_slice<false>(call, call->in[0],
                            wf_slice_rows_of(call, call->in[0], call->out[0]));
}

wf_status slice_grad(const wf_call *call, void *)
{
    return run_slice<true>(call, call->in[1],
                           wf_slice_rows_of(call, call->out[0], call->in[1]));
}

/* y[o, r, i] = x[o, i] */
template <class T>
__global__ void __launch_bounds__(WF_BLOCK)
    sum_expand_kernel(const T *x, T *y, int64_t count, int64_t rows, int64_t n)
{
    const int64_t step = (int64_t)gridDim.x * WF_BLOCK;

    for (int64_t e = (int64_t)blockIdx.x * WF_BLOCK + threadIdx.x; e < count; e += step)
        y[e] = x[e / (rows * n) * n + e % n];
}

wf_status sum_expand(const wf_call *call, void *)
{
    const wf_tensor *y = call->out[0];
    int dim = ((const wf_dim_attr *)call->attr)->dim;
    int64_t count = wf_count(y), rows = y->local[dim], n = wf_extent(y, dim + 1, y->ndim);

    return wf_run(call, [&](auto zero) {
        typedef decltype(zero) T;

        return wf_launch(sum_expand_kernel<T>, wf_grid(count, WF_BLOCK), WF_BLOCK, 0,
                         wf_cuda_of(call)->stream, (const T *)call->in[0]->data, (T *)y->data,
                         count, rows, n);
    });
}

template <class T>
__global__ void __launch_bounds__(WF_BLOCK)
    softmax_kernel(const T *x, T *y, int64_t rows, int64_t n)
{
    const int64_t lane = threadIdx.x % WF_WARP, step = (int64_t)gridDim.x * WF_WARPS;

    for (int64_t r = (int64_t)blockIdx.x * WF_WARPS + threadIdx.x / WF_WARP; r < rows;
         r += step) {
        float greatest = -INFINITY, sum = 0.0f;

        for (int64_t i = lane; i < n; i += WF_WARP)
            greatest = wf_greater(greatest, wf_get(x[r * n + i]));
        greatest = wf_warp_greatest(greatest);
        for (int64_t i = lane; i < n; i += WF_WARP)
            sum += expf(wf_get(x[r * n + i]) - greatest);
        sum = 1.0f / wf_warp_sum(sum);
        for (int64_t i = lane; i < n; i += WF_WARP)
            wf_put(y + r * n + i, expf(wf_get(x[r * n + i]) - greatest) * sum);
    }
}

wf_status softmax(const wf_call *call, void *)
{
    const wf_tensor *x = call->in[0];
    int64_t rows = wf_rows(x), n = wf_width(x);

    return wf_run(call, [&](auto zero) {
        typedef decltype(zero) T;

        return wf_launch(softmax_kernel<T>, wf_grid(rows, WF_WARPS), WF_BLOCK, 0,
                         wf_cuda_of(call)->stream, (const T *)x->data, (T *)call->out[0]->data,
                         rows, n);
    });
}

template <class T>
__global__ void __launch_bounds__(WF_BLOCK)
    softmax_grad_kernel(const T *y, const T *dy, T *dx, int64_t rows, int64_t n)
{
    const int64_t lane = threadIdx.x % WF_WARP, step = (int64_t)gridDim.x * WF_WARPS;

    for (int64_t r = (int64_t)blockIdx.x * WF_WARPS + threadIdx.x / WF_WARP; r < rows;
         r += step) {
        float dot = 0.0f;

        for (int64_t i = lane; i < n; i += WF_WARP)
            dot = fmaf(wf_get(y[r * n + i]), wf_get(dy[r * n + i]), dot);
        dot = wf_warp_sum(dot);
        for (int64_t i = lane; i < n; i += WF_WARP)
            wf_put(dx + r * n + i, wf_get(y[r * n + i]) * (wf_get(dy[r * n + i]) - dot));
    }
}

wf_status softmax_grad(const wf_call *call, void *)
{
    const wf_tensor *y = call->in[0];
    int64_t rows = wf_rows(y), n = wf_width(y);

    return wf_run(call, [&](auto zero) {
        typedef decltype(zero) T;

        return wf_launch(softmax_grad_kernel<T>, wf_grid(rows, WF_WARPS), WF_BLOCK, 0,
                         wf_cuda_of(call)->stream, (const T *)y->data,
                         (const T *)call->in[1]->data, (T *)call->out[0]->data, rows, n);
    });
}
} // namespace

const wf_kernel wf_cuda_permute = {permute, NULL, 0, WF_IN(0) | WF_OUT(0)};
const wf_kernel wf_cuda_broadcast = {broadcast, NULL, 0, WF_IN(0) | WF_OUT(0)};
const wf_kernel wf_cuda_slice = {slice, NULL, 0, WF_IN(0) | WF_OUT(0)};
const wf_kernel wf_cuda_slice_grad = {slice_grad, NULL, 0, WF_IN(1) | WF_OUT(0)};
const wf_kernel wf_cuda_sum_expand = {sum_expand, NULL, 0, WF_IN(0) | WF_OUT(0)};
const wf_kernel wf_cuda_softmax = {softmax, NULL, 0, WF_IN(0) | WF_OUT(0)};
const wf_kernel wf_cuda_softmax_grad = {softmax_grad, NULL, 0, WF_IN(0) | WF_IN(1) | WF_OUT(0)};

/*
 * kernels/cuda/moe.cu - experts on the GPU (kernels/moe.c): what is between the products of
 * moe_product.cu, a thread for an element of a row, and sums over the experts of a token. The
 * expressions are those of kernels/cpu/moe.c and moe_grad.c, and so are the bits of f32.
 */
#include "kernels/cuda/lanes_internal.h"
#include "kernels/cuda/moe_rows_internal.h"
#include "kernels/cuda/operands_internal.h"
#include "kernels/cuda/tree_internal.h"
#include "kernels/lanes.h"

namespace
{
enum { EXPERT_ROWS = WF_BLOCK / WF_LANES_OF_SUM, OPEN_EXPERTS = 24 };

/* h = silu(gate) up, of the rows that there are. */
template <class T>
__global__ void __launch_bounds__(WF_BLOCK)
    expert_act_kernel(const T *gate, const T *up, T *h, const int *rows, int64_t f)
{
    const int64_t step = (int64_t)gridDim.x * WF_BLOCK, n = *rows * f;

    for (int64_t i = (int64_t)blockIdx.x * WF_BLOCK + threadIdx.x; i < n; i += step)
        wf_put(h + i, (wf_lanes1_silu(wf_get(gate[i])) * wf_lanes1(wf_get(up[i]))).v);
}

/* A sum over 16 threads side by side, 8, 4, 2, 1 apart. */
__device__ __forceinline__ float sum_of_lanes(float x)
{
#pragma unroll
    for (int step = WF_LANES_OF_SUM / 2; step > 0; step /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}

/* Computes with 16 threads for a row of an expert its weight's gradient c . h, then dgate
   and dup, w dy, and w v of an adapter. */
template <class T>
__global__ void __launch_bounds__(WF_BLOCK) expert_grad_kernel(wf_moe_grad_rows g)
{
    const int64_t step = (int64_t)gridDim.x * EXPERT_ROWS, rows = *g.rows;
    const int lane = (int)threadIdx.x % WF_LANES_OF_SUM;
    int64_t r = (int64_t)blockIdx.x * EXPERT_ROWS + threadIdx.x / WF_LANES_OF_SUM;

    for (; r - threadIdx.x / WF_LANES_OF_SUM < rows;
         r += step) { /* the same in all threads of a block */
        const bool there = r < rows;
        const int64_t choice = there ? g.choice[r] : 0, token = there ? g.token[r] : 0;
        const float *c = g.c + r * g.f, w = there ? g.weights[choice] : 0.0f;
        const T *h = (const T *)g.h + r * g.f, *dy = (const T *)g.dy + token * g.d;
        const T *gate = (const T *)g.gate + r * g.f, *up = (const T *)g.up + r * g.f;
        float dot = 0.0f;

        for (int64_t i = lane; there && i < g.f; i += WF_LANES_OF_SUM)
            dot = fmaf(c[i], wf_get(h[i]), dot);
        dot = sum_of_lanes(dot);
        if (there && lane == 0 && g.dweights)
            g.dweights[choice] = dot + 0.0f;
        for (int64_t i = lane; there && !g.dweights && i < g.f; i += WF_LANES_OF_SUM) {
            g.terms[0][choice * g.f + i] = c[i];
            g.terms[1][choice * g.f + i] = wf_get(h[i]);
        }
        for (int64_t i = lane; there && i < g.f; i += WF_LANES_OF_SUM) {
            const wf_lanes1 x = wf_get(gate[i]), y = wf_get(up[i]), dh = c[i] * w;

            wf_put((T *)g.dgate + r * g.f + i, wf_lanes1_silu_grad(x, dh * y).v);
            wf_put((T *)g.dup + r * g.f + i, (dh * wf_lanes1_silu(x)).v);
        }
        for (int64_t i = lane; there && i < g.d; i += WF_LANES_OF_SUM)
            wf_put((T *)g.wdy + r * g.d + i, wf_get(dy[i]) * w);
        for (int64_t i = lane; there && i < g.rank; i += WF_LANES_OF_SUM)
            wf_put((T *)g.wv + r * g.rank + i, wf_get(((const T *)g.v)[r * g.rank + i]) * w);
    }
}

/* Computes with 16 threads the sum over features of a choice. */
__global__ void __launch_bounds__(WF_BLOCK)
    dot_rows_kernel(const float *c, const float *h, float *dw, int64_t choices, int64_t f)
{
    const int64_t step = (int64_t)gridDim.x * EXPERT_ROWS;
    const int lane = (int)threadIdx.x % WF_LANES_OF_SUM;
    int64_t r = (int64_t)blockIdx.x * EXPERT_ROWS + threadIdx.x / WF_LANES_OF_SUM;

    for (; r - threadIdx.x / WF_LANES_OF_SUM < choices; r += step) {
        float dot = 0.0f;

        for (int64_t i = lane; r < choices && i < f; i += WF_LANES_OF_SUM)
            dot = fmaf(c[r * f + i], h[r * f + i], dot);
        dot = sum_of_lanes(dot);
        if (r < choices && lane == 0)
            dw[r] = dot + 0.0f;
    }
}

/* A sum in the midpoint tree over all experts, of those that come, in order. */
struct expert_sum {
    float node[OPEN_EXPERTS], newest;
    int parts[OPEN_EXPERTS], open; /* the depth at which each node and its successor part */
    int64_t expert;                /* the newest one's; -1: there is none */
};

/* Nodes that lie below where two neighbours part are complete. */
__device__ __forceinline__ void add_expert(expert_sum &s, int64_t all, int64_t expert, float x)
{
    if (s.expert >= 0) {
        const int part = wf_tree_parts(all, 1, s.expert, expert);

        while (s.open > 0 && s.parts[s.open - 1] > part)
            s.newest = s.node[--s.open] + s.newest;
        s.node[s.open] = s.newest;
        s.parts[s.open++] = part;
    }
    s.newest = x;
    s.expert = expert;
}

/* y[t, i] = the tree over all experts of weight * row, of those that the token chose. A zero is
   +0, as where another rank adds +0. */
template <class T, class Y>
__global__ void __launch_bounds__(WF_BLOCK)
    combine_kernel(wf_moe_lists l, const T *rows, const float *weights, Y *y, int64_t d)
{
    const int64_t step = (int64_t)gridDim.x * WF_BLOCK, n = l.choices / l.k * d;

    for (int64_t e = (int64_t)blockIdx.x * WF_BLOCK + threadIdx.x; e < n; e += step) {
        const int64_t first = e / d * l.k, i = e % d;
        expert_sum s;
        bool valid = true;

        s.newest = 0.0f;
        s.open = 0;
        s.expert = -1;
        for (int64_t c = first; c < first + l.k; c++) {
            valid = valid && l.expert[c] != WF_MOE_NONE;
            if (l.row[c] < 0)
                continue;
            add_expert(s, l.all, l.first + l.expert[c],
                       wf_get(rows[l.row[c] * d + i]) * (weights ? weights[c] : 1.0f));
        }
        while (s.open > 0)
            s.newest = s.node[--s.open] + s.newest;
        wf_put(y + e, valid ? s.newest + 0.0f : NAN);
    }
}
} // namespace

wf_status wf_cuda_moe_check_types(const wf_call *call)
{
    bool bf16;

    return wf_check_types(call, &bf16);
}

cudaError_t wf_cuda_launch_moe_act(cudaStream_t stream, wf_dtype type, const void *gate,
                                   const void *up, void *h, const wf_moe_lists *l, int64_t f)
{
    const unsigned grid = wf_grid(l->choices * f, WF_BLOCK);
    const int *rows = l->begin + l->experts;

    return type == WF_BF16
               ? wf_launch(expert_act_kernel<wf_bf16>, grid, WF_BLOCK, 0, stream,
                           (const wf_bf16 *)gate, (const wf_bf16 *)up, (wf_bf16 *)h, rows, f)
               : wf_launch(expert_act_kernel<float>, grid, WF_BLOCK, 0, stream,
                           (const float *)gate, (const float *)up, (float *)h, rows, f);
}

cudaError_t wf_cuda_launch_moe_grad(cudaStream_t stream, wf_dtype type,
                                    const wf_moe_grad_rows *g, const wf_moe_lists *l)
{
    cudaError_t error =
        g->dweights ? wf_cuda_launch_moe_clear(stream, l, g->dweights, 1) : cudaSuccess;

    return error == cudaSuccess
               ? wf_launch(type == WF_BF16 ? expert_grad_kernel<wf_bf16>
                                           : expert_grad_kernel<float>,
                           wf_grid(l->choices, EXPERT_ROWS), WF_BLOCK, 0, stream, *g)
               : error;
}

template <class T>
static cudaError_t combine_experts(cudaStream_t stream, const wf_moe_lists *l, const T *rows,
                                   const float *weights, const wf_tensor *y)
{
    const int64_t d = wf_width(y);
    const unsigned grid = wf_grid(wf_count(y), WF_BLOCK);

    return y->dtype == WF_BF16 ? wf_launch(combine_kernel<T, wf_bf16>, grid, WF_BLOCK, 0,
                                           stream, *l, rows, weights, (wf_bf16 *)y->data, d)
                               : wf_launch(combine_kernel<T, float>, grid, WF_BLOCK, 0, stream,
                                           *l, rows, weights, (float *)y->data, d);
}

cudaError_t wf_cuda_launch_moe_combine(cudaStream_t stream, wf_dtype type,
                                       const wf_moe_lists *l, const void *rows,
                                       const float *weights, const wf_tensor *y)
{
    return type == WF_BF16 ? combine_experts(stream, l, (const wf_bf16 *)rows, weights, y)
                           : combine_experts(stream, l, (const float *)rows, weights, y);
}

cudaError_t wf_cuda_launch_moe_dot(cudaStream_t stream, const float *c, const float *h,
                                   float *dw, int64_t choices, int64_t f)
{
    return wf_launch(dot_rows_kernel, wf_grid(choices, EXPERT_ROWS), WF_BLOCK, 0, stream, c, h,
                     dw, choices, f);
}

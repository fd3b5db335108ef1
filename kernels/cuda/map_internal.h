/*
 * kernels/cuda/map_internal.h - elements one by one: y = f(x..), in one pass over memory.
 *
 * f is a struct with `__device__ void operator()(const float *in, float *out) const`.
 */
#ifndef WF_KERNELS_CUDA_MAP_INTERNAL_H
#define WF_KERNELS_CUDA_MAP_INTERNAL_H

#include "kernels/cuda/operands_internal.h"

template <int IN, int OUT> struct wf_flat {
    const void *in[IN];
    void *out[OUT];
    int64_t n;
};

template <class T, class F, int IN, int OUT>
__global__ void __launch_bounds__(WF_BLOCK) wf_map_kernel(F f, wf_flat<IN, OUT> a, bool wide)
{
    constexpr int PACK = wf_pack<T>::N;
    const int64_t step = (int64_t)gridDim.x * WF_BLOCK * PACK;

    for (int64_t i = ((int64_t)blockIdx.x * WF_BLOCK + threadIdx.x) * PACK; i < a.n;
         i += step) {
        wf_pack<T> raw[IN];
        float x[IN][PACK], y[OUT][PACK];

#pragma unroll
        for (int k = 0; k < IN; k++)
            raw[k] = wf_read((const T *)a.in[k] + i, a.n - i, wide);
#pragma unroll
        for (int k = 0; k < IN; k++)
            wf_unpack(raw[k], x[k]);
#pragma unroll
        for (int e = 0; e < PACK; e++) {
            float in[IN], out[OUT];

#pragma unroll
            for (int k = 0; k < IN; k++)
                in[k] = x[k][e];
            f(in, out);
#pragma unroll
            for (int k = 0; k < OUT; k++)
                y[k][e] = out[k];
        }
#pragma unroll
        for (int k = 0; k < OUT; k++)
            wf_store((T *)a.out[k] + i, a.n - i, wide, y[k]);
    }
}

/* T: how all of them are stored. */
template <class T, class F, int IN, int OUT>
static inline cudaError_t wf_map(cudaStream_t stream, F f, const wf_flat<IN, OUT> &a)
{
    uintptr_t bits = 0;

    for (int k = 0; k < IN; k++)
        bits |= (uintptr_t)a.in[k];
    for (int k = 0; k < OUT; k++)
        bits |= (uintptr_t)a.out[k];
    return wf_launch(wf_map_kernel<T, F, IN, OUT>,
                     wf_grid(wf_ceil(a.n, wf_pack<T>::N), WF_BLOCK), WF_BLOCK, 0, stream, f, a,
                     bits % 16 == 0);
}

/* A call whose operands and outputs are all alike. */
template <int IN, int OUT, class F> static inline wf_status wf_run_map(const wf_call *call, F f)
{
    wf_flat<IN, OUT> a;

    for (int k = 0; k < IN; k++)
        a.in[k] = call->in[k]->data;
    for (int k = 0; k < OUT; k++)
        a.out[k] = call->out[k]->data;
    a.n = wf_count(call->out[0]);
    return wf_run(call, [&](auto zero) {
        return wf_map<decltype(zero)>(wf_cuda_of(call)->stream, f, a);
    });
}

#endif

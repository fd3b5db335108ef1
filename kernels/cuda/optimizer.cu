/*
 * kernels/cuda/optimizer.cu - the rows of kernels/optimizer.c, with the expressions of
 * kernels/cpu/simd/optimizer.c: parameters and moments are f32, the gradient is f32 or bf16.
 */
#include "kernels/cuda/operands_internal.h"

namespace
{
enum { FLOATS = 4 }; /* elements of a thread: 16 bytes of each float */

struct parameter_update {
    float *p, *m, *v;
    const void *grad;
    int64_t n;
    wf_update u;
    const wf_now *now; /* NULL: all of u is as it stands */
    bool wide;
};

__device__ __forceinline__ wf_update update_now(const parameter_update &a)
{
    wf_update u = a.u;

    if (a.now) {
        u.lr = a.now->lr;
        u.bias1 = a.now->bias1;
        u.bias2 = a.now->bias2;
        u.grad_scale = a.now->grad_scale;
    }
    return u;
}

__device__ __forceinline__ void gradient_at(const float *g, int64_t n, bool wide, float *out)
{
    wf_load(g, n, wide, out);
}

__device__ __forceinline__ void gradient_at(const wf_bf16 *g, int64_t n, bool, float *out)
{
#pragma unroll
    for (int k = 0; k < FLOATS; k++)
        out[k] = k < n ? wf_get(g[k]) : 0.0f;
}

template <class G> __global__ void __launch_bounds__(WF_BLOCK) adamw_kernel(parameter_update a)
{
    const wf_update u = update_now(a);
    const int64_t step = (int64_t)gridDim.x * WF_BLOCK * FLOATS;

    for (int64_t i = ((int64_t)blockIdx.x * WF_BLOCK + threadIdx.x) * FLOATS; i < a.n;
         i += step) {
        int64_t n = a.n - i;
        float p[FLOATS], m[FLOATS], v[FLOATS], g[FLOATS];

        wf_load(a.p + i, n, a.wide, p);
        wf_load(a.m + i, n, a.wide, m);
        wf_load(a.v + i, n, a.wide, v);
        gradient_at((const G *)a.grad + i, n, a.wide, g);
#pragma unroll
        for (int k = 0; k < FLOATS; k++) {
            float gradient = g[k] * u.grad_scale, root, change;

            m[k] = fmaf(1.0f - u.beta1, gradient, u.beta1 * m[k]);
            v[k] = fmaf((1.0f - u.beta2) * gradient, gradient, u.beta2 * v[k]);
            root = sqrtf(v[k] * u.bias2);
            change = (m[k] * u.bias1) / (root + u.eps);
            change = fmaf(u.weight_decay, p[k], change);
            p[k] = fmaf(-u.lr, change, p[k]);
        }
        wf_store(a.p + i, n, a.wide, p);
        wf_store(a.m + i, n, a.wide, m);
        wf_store(a.v + i, n, a.wide, v);
    }
}

/* Without momentum m is neither read nor written. */
template <class G> __global__ void __launch_bounds__(WF_BLOCK) sgd_kernel(parameter_update a)
{
    const wf_update u = update_now(a);
    const int64_t step = (int64_t)gridDim.x * WF_BLOCK * FLOATS;
    const bool momentum = u.beta1 > 0.0f;

    for (int64_t i = ((int64_t)blockIdx.x * WF_BLOCK + threadIdx.x) * FLOATS; i < a.n;
         i += step) {
        int64_t n = a.n - i;
        float p[FLOATS], m[FLOATS], g[FLOATS];

        wf_load(a.p + i, n, a.wide, p);
        gradient_at((const G *)a.grad + i, n, a.wide, g);
        if (momentum)
            wf_load(a.m + i, n, a.wide, m);
#pragma unroll
        for (int k = 0; k < FLOATS; k++) {
            g[k] = fmaf(u.weight_decay, p[k], g[k] * u.grad_scale);
            if (momentum)
                g[k] = m[k] = fmaf(u.beta1, m[k], g[k]);
            p[k] = fmaf(-u.lr, g[k], p[k]);
        }
        wf_store(a.p + i, n, a.wide, p);
        if (momentum)
            wf_store(a.m + i, n, a.wide, m);
    }
}

parameter_update update_of(const wf_call *call)
{
    parameter_update a = {};
    uintptr_t bits;

    a.p = (float *)call->in[0]->data;
    a.grad = call->in[1]->data;
    a.m = (float *)call->in[2]->data;
    a.v = call->n_in > 3 ? (float *)call->in[3]->data : NULL;
    a.n = wf_count(call->in[0]);
    a.u = *(const wf_update *)call->attr;
    a.now = a.u.of_step ? wf_cuda_now(call) : NULL;
    bits = (uintptr_t)a.p | (uintptr_t)a.m | (uintptr_t)a.v;
    a.wide = (bits | (call->in[1]->dtype == WF_F32 ? (uintptr_t)a.grad : 0)) % 16 == 0;
    return a;
}

wf_status adamw(const wf_call *call, void *)
{
    parameter_update a = update_of(call);

    return wf_run(call, [&](auto zero) {
        return wf_launch(adamw_kernel<decltype(zero)>, wf_grid(wf_ceil(a.n, FLOATS), WF_BLOCK),
                         WF_BLOCK, 0, wf_cuda_of(call)->stream, a);
    });
}

wf_status sgd(const wf_call *call, void *)
{
    parameter_update a = update_of(call);

    return wf_run(call, [&](auto zero) {
        return wf_launch(sgd_kernel<decltype(zero)>, wf_grid(wf_ceil(a.n, FLOATS), WF_BLOCK),
                         WF_BLOCK, 0, wf_cuda_of(call)->stream, a);
    });
}
} // namespace

const wf_kernel wf_cuda_adamw = {adamw, NULL, 0, WF_IN(1)};
const wf_kernel wf_cuda_sgd = {sgd, NULL, 0, WF_IN(1)};

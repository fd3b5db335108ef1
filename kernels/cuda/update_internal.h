/* kernels/cuda/update_internal.h - what the updates of parameters by one launch share: numbers
   of the step, and AdamW's expression (kernels/cpu/simd/optimizer.c). */
#ifndef WF_KERNELS_CUDA_UPDATE_INTERNAL_H
#define WF_KERNELS_CUDA_UPDATE_INTERNAL_H

#include "kernels/cuda/operands_internal.h"

/* The numbers that all updates of a launch share. */
struct wf_updates {
    wf_update u;
    const wf_now *now;   /* NULL: all of u is as it stands */
    const int64_t *held; /* in a graph: not 0 where nothing is to change; else NULL */
};

static inline wf_updates wf_updates_of(const wf_call *call)
{
    wf_updates all = {};

    all.u = *(const wf_update *)call->attr;
    all.now = all.u.of_step ? wf_cuda_now(call) : NULL;
    all.held = wf_cuda_now(call) ? &wf_cuda_now(call)->held : NULL;
    return all;
}

/* Returns the numbers of a parameter's update, of which lr and weight_decay are its own. */
static __device__ __forceinline__ wf_update wf_update_now(const wf_updates &a, float lr,
                                                          float weight_decay)
{
    wf_update u = a.u;

    u.lr = lr;
    u.weight_decay = weight_decay;
    if (a.now) {
        u.lr = a.now->lr;
        u.bias1 = a.now->bias1;
        u.bias2 = a.now->bias2;
        u.grad_scale = a.now->grad_scale;
    }
    return u;
}

static __device__ __forceinline__ void wf_adamw_step(const wf_update &u, float g, float *p,
                                                     float *m, float *v)
{
    const float gradient = g * u.grad_scale;
    float root, change;

    *m = fmaf(1.0f - u.beta1, gradient, u.beta1 * *m);
    *v = fmaf((1.0f - u.beta2) * gradient, gradient, u.beta2 * *v);
    root = sqrtf(*v * u.bias2);
    change = (*m * u.bias1) / (root + u.eps);
    change = fmaf(u.weight_decay, *p, change);
    *p = fmaf(-u.lr, change, *p);
}

/* adamw8.cu: runs the first of n calls whose moments are stored in 8 bits, as many as one
   launch may have, and returns their number. */
int wf_cuda_adamw8(const wf_call *const *calls, int n, wf_status *status);

#endif

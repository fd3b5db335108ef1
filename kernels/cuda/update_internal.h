/* kernels/cuda/update_internal.h - what the updates of parameters by one launch share: numbers
   of the step, and each method as a struct: how many states it has, and its step (that of
   AdamW and SGD: kernels/cpu/simd/optimizer.c). */
#ifndef WF_KERNELS_CUDA_UPDATE_INTERNAL_H
#define WF_KERNELS_CUDA_UPDATE_INTERNAL_H

#include "kernels/cuda/operands_internal.h"
#include "kernels/update_steps_internal.h"

/* The numbers that all updates of a launch share. */
struct wf_updates {
    wf_update u;
    const wf_now *now;   /* NULL: all of u is as it stands */
    const int64_t *held; /* in a graph: not 0 where nothing is to change; else NULL */
};

/* Returns the numbers of a call; wf_update_attr begins with them. */
static inline const wf_update *wf_update_of(const wf_call *call)
{
    return (const wf_update *)call->attr;
}

static inline wf_updates wf_updates_of(const wf_call *call)
{
    wf_updates all = {};

    all.u = *wf_update_of(call);
    all.now = all.u.step_lr || all.u.step_scale ? wf_cuda_now(call) : NULL;
    all.held = wf_cuda_now(call) ? &wf_cuda_now(call)->held : NULL;
    return all;
}

/* Returns the rate of one call of a launch; where the graph brings the step's, its factor. */
static inline float wf_update_rate(const wf_updates &a, const wf_call *call)
{
    return a.now && a.u.step_lr ? wf_update_of(call)->lr_times : wf_update_of(call)->lr;
}

/* Returns the numbers of a parameter's update, of which rate and weight_decay are its own. */
static __device__ __forceinline__ wf_update wf_update_now(const wf_updates &a, float rate,
                                                          float weight_decay)
{
    wf_update u = a.u;

    u.lr = rate;
    u.weight_decay = weight_decay;
    if (a.now && u.step_lr) {
        u.lr = a.now->lr * rate;
        u.bias1 = a.now->bias1;
        u.bias2 = a.now->bias2;
    }
    if (a.now && u.step_scale)
        u.grad_scale = a.now->grad_scale;
    return u;
}

/* ---- methods: STATES, the levels of each state in 8 bits, whether they are kept, a step
   ---- */

struct wf_adamw_method {
    enum { STATES = 2 };

    static __device__ __forceinline__ int levels(int state)
    {
        return state;
    }
    static __device__ __forceinline__ bool keeps(const wf_update &)
    {
        return true;
    }
    static __device__ __forceinline__ void step(const wf_update &u, float g, float *p, float *m,
                                                float *v)
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
};

/* Without momentum m is neither read nor written. */
struct wf_sgd_method {
    enum { STATES = 1 };

    static __device__ __forceinline__ bool keeps(const wf_update &u)
    {
        return u.beta1 > 0.0f;
    }
    static __device__ __forceinline__ void step(const wf_update &u, float g, float *p, float *m,
                                                float *)
    {
        float change = fmaf(u.weight_decay, *p, g * u.grad_scale);

        if (keeps(u))
            change = *m = fmaf(u.beta1, *m, change);
        *p = fmaf(-u.lr, change, *p);
    }
};

struct wf_lion_method {
    enum { STATES = 1 };

    static __device__ __forceinline__ int levels(int)
    {
        return 0;
    }
    static __device__ __forceinline__ bool keeps(const wf_update &)
    {
        return true;
    }
    static __device__ __forceinline__ void step(const wf_update &u, float g, float *p, float *m,
                                                float *)
    {
        wf_lion_step(&u, g * u.grad_scale, p, m);
    }
};

struct wf_sign_method {
    enum { STATES = 0 };

    static __device__ __forceinline__ bool keeps(const wf_update &)
    {
        return false;
    }
    static __device__ __forceinline__ void step(const wf_update &u, float g, float *p, float *,
                                                float *)
    {
        wf_sign_step(&u, g * u.grad_scale, p);
    }
};

struct wf_keep_method : wf_sign_method {
    static __device__ __forceinline__ void step(const wf_update &u, float g, float *p, float *,
                                                float *)
    {
        *p = g * u.grad_scale;
    }
};

/* update8.cu: run the first of n calls whose states are stored in 8 bits, as many as one launch
   may have, and return their number. */
int wf_cuda_adamw8(const wf_call *const *calls, int n, wf_status *status);
int wf_cuda_lion8(const wf_call *const *calls, int n, wf_status *status);

#endif

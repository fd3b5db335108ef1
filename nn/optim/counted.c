/*
 * nn/optim/counted.c - the step of parameters whose gradients are counts
 * (wf_nn_parameter.counted): p = p - rate sign(g), of biases that balance experts (Wang et al.
 * 2024, "Auxiliary-loss-free load balancing strategy for mixture-of-experts"); or p = g, of the
 * counts that a loss of balance reads in the next step.
 */
#include "nn/optim/method_internal.h"

static void sign(const wf_update *u, int64_t n, float *p, const float *g, float *const *state)
{
    (void)state;
    for (int64_t i = 0; i < n; i++)
        p[i] -= u->lr * (float)((g[i] > 0) - (g[i] < 0));
}

static void keep(const wf_update *u, int64_t n, float *p, const float *g, float *const *state)
{
    (void)u, (void)state;
    for (int64_t i = 0; i < n; i++)
        p[i] = g[i];
}

wf_status wf_nn_counted_update(wf_tensor *t, wf_tensor *grad, float rate)
{
    const wf_update u = {.lr = rate, .grad_scale = 1};

    return wf_update_elements(t, grad, 0, NULL, rate > 0 ? sign : keep, &u);
}

/*
 * nn/optim/counted.c - the step of parameters whose gradients are counts
 * (wf_nn_parameter.counted): p = p - rate sign(g), of biases that balance experts (Wang et al.
 * 2024, "Auxiliary-loss-free load balancing strategy for mixture-of-experts"); or p = g, of the
 * counts that a loss of balance reads in the next step.
 */
#include "nn/optim/method_internal.h"

wf_status wf_nn_counted_update(wf_tensor *t, wf_tensor *grad, float rate)
{
    const wf_update u = {.lr = rate, .grad_scale = 1};

    return wf_update_elements(t, grad, 0, NULL, rate > 0 ? wf_update_sign : wf_update_keep, &u);
}

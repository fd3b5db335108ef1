/* nn/optim/adamw.c - AdamW and SGD as rows; their kernels are kernels/optimizer.c's. */
#include "nn/optim/method_internal.h"

wf_status wf_nn_adamw_update(const wf_update *u, wf_tensor *t, wf_tensor *grad,
                             wf_tensor *const *state)
{
    return wf_adamw(t, grad, state[0], state[1], u);
}

static wf_status sgd(const wf_update *u, wf_tensor *t, wf_tensor *grad, wf_tensor *const *state)
{
    return wf_sgd(t, grad, state[0] ? state[0] : grad, u);
}

const wf_nn_method_row wf_nn_adamw = {
    "adamw", .states = 2, .uses = WF_NN_USES_BETA1 | WF_NN_USES_BETA2 | WF_NN_USES_EPS,
    .update = wf_nn_adamw_update, .captured = true};
const wf_nn_method_row wf_nn_adamw8bit = {"adamw8bit",
                                          .states = 2,
                                          .state = {WF_DYNAMIC8, WF_DYNAMIC8U},
                                          .uses = WF_NN_USES_BETA1 | WF_NN_USES_BETA2 |
                                                  WF_NN_USES_EPS,
                                          .update = wf_nn_adamw_update,
                                          .captured = true};
const wf_nn_method_row wf_nn_sgd = {
    "sgd",         .states = 1,     .uses = WF_NN_USES_BETA1, .needs_beta1 = true,
    .update = sgd, .captured = true};

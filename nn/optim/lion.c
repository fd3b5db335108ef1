/*
 * nn/optim/lion.c - Lion (Chen et al. 2023, "Symbolic discovery of optimization algorithms"):
 *
 *     c = beta1 m + (1 - beta1) g
 *     p = p - lr (sign(c) + weight_decay p),  m = beta2 m + (1 - beta2) g
 *
 * Copy this file to add an optimizer by elements. sign(0) is 0.
 */
#include "nn/optim/method_internal.h"

static void lion(const wf_update *u, int64_t n, float *p, const float *g, float *const *state)
{
    float *m = state[0];

    for (int64_t i = 0; i < n; i++) {
        const float c = u->beta1 * m[i] + (1 - u->beta1) * g[i];
        const float sign = (float)((c > 0) - (c < 0));

        p[i] -= u->lr * (sign + u->weight_decay * p[i]);
        m[i] = u->beta2 * m[i] + (1 - u->beta2) * g[i];
    }
}

const wf_nn_method_row wf_nn_lion = {
    "lion", .states = 1, .uses = WF_NN_USES_BETA1 | WF_NN_USES_BETA2, .elements = lion};
const wf_nn_method_row wf_nn_lion8bit = {"lion8bit", .states = 1, .state = {WF_DYNAMIC8},
                                         .uses = WF_NN_USES_BETA1 | WF_NN_USES_BETA2,
                                         .elements = lion};

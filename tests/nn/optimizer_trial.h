/* tests/nn/optimizer_trial.h - what tests of optimizers share: a tiny model, gradients made by
   chance, and a comparison with plain doubles. */
#ifndef WF_TESTS_NN_OPTIMIZER_TRIAL_H
#define WF_TESTS_NN_OPTIMIZER_TRIAL_H

#include "nn/optim/optimizer.h"
#include "tests/nn/model_ranks.h"
#include <math.h>

typedef struct trial {
    wf_nn_optimizer_options options;
    int steps;
    double lr, scale;
} trial;

/* Between -1 and 1, another one for every parameter, step and element of the whole. */
static inline float arbitrary(int64_t parameter, int64_t step, int64_t index)
{
    return (float)sin(1.3 * (double)parameter + 0.7 * (double)step + 2.9 * (double)index);
}

static inline void fill(wf_tensor *t, int64_t parameter, int64_t step)
{
    for (int64_t i = 0; t && i < wf_tensor_local_count(t); i++)
        ((float *)t->data)[i] = arbitrary(parameter, step, whole_index(t, i));
}

enum { IDLE = 1 }; /* the number of a parameter that never has a gradient */

/* Gradients of a step; released by the scope. */
static inline void make_gradients(model_rank *r, int64_t step, wf_tensor **grad)
{
    for (int64_t i = 0; i < r->count; i++) {
        const wf_tensor *p = r->parameter[i]->tensor;

        grad[i] = i == IDLE ? NULL
                            : wf_tensor_new(r->ctx, WF_F32, p->ndim, p->dim, p->layout,
                                            WF_MEMORY_GRADIENT);
        fill(grad[i], i, step);
    }
}

static inline bool close_to(const wf_tensor *t, int64_t i, double want)
{
    return fabs((double)((const float *)t->data)[i] - want) < 1e-5 * fmax(1, fabs(want));
}

static const wf_nn_gpt_config tiny = {WF_NN_GPT2, .vocabulary = 11, .positions = 5, .layers = 1,
                                      .heads = 3, .kv_heads = 3,    .width = 6,     .ffn = 7};

#endif

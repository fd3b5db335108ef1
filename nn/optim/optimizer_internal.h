/* nn/optim/optimizer_internal.h - the fields of an optimizer. Not installed. */
#ifndef WF_NN_OPTIM_OPTIMIZER_INTERNAL_H
#define WF_NN_OPTIM_OPTIMIZER_INTERNAL_H

#include "nn/optim/optimizer.h"

struct wf_nn_optimizer {
    wf_context *ctx;
    wf_nn_optimizer_options options;
    const wf_nn_method_row *row;
    int64_t count, steps, skipped, began;
    wf_nn_parameter *const *parameter;
    wf_nn_mover mover; /* .move NULL: none */
    wf_tensor *(*state)[WF_NN_KEPT];
    wf_nn_group *group;
    int groups;
    int *group_of;    /* [count] -1: none */
    wf_update update; /* the step that was begun */
};

/* Makes the states of all parameters, zeros. Returns false after an error, in the context. */
bool wf_nn_optimizer_make_states(wf_nn_optimizer *optimizer, const wf_layout *const *layout);

#endif

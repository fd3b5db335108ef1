/* nn/layers/linear_internal.h - the parts of adapted linears, for MLPs in tiles. Not
   installed. */
#ifndef WF_NN_LAYERS_LINEAR_INTERNAL_H
#define WF_NN_LAYERS_LINEAR_INTERNAL_H

#include "nn/layers/linear.h"

/* Passes u = x A^T by the point "lora" and scales it. What is partial is scaled when it is
   summed; where u is whole its gradient may be partial, and is summed before it is scaled. */
wf_tensor *wf_nn_adapter_scaled(wf_nn_linear *m, wf_tensor *u);

/* Returns scale x A^T, which B takes; x and in: before and after the point "in". */
wf_tensor *wf_nn_adapter_of(wf_nn_linear *m, wf_tensor *x, wf_tensor *in);

/* The same of up to three members of a group; u gets NULL for those without an adapter. */
void wf_nn_adapters_of(wf_nn_linear_group *group, wf_nn_module *const *member, int count,
                       wf_tensor *x, wf_tensor *in, wf_tensor **u);

#endif

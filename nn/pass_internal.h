/* nn/pass_internal.h - leaves of passes, for nn/parameter.c. Not installed. */
#ifndef WF_NN_PASS_INTERNAL_H
#define WF_NN_PASS_INTERNAL_H

#include "nn/parameter.h"

/* Returns a parameter's leaves in the pass that is switched to. NULL on errors. */
wf_nn_leaves *wf_nn_leaves_now(wf_context *ctx, wf_nn_parameter *parameter);

/* Returns the slot of the use that comes next in forward: the one that an earlier run of the
   same ops took for it, or a new one. Numbers ascend in forward. -1 on errors. */
int wf_nn_leaves_slot(wf_context *ctx, wf_nn_leaves *leaves, int64_t number);

/* Forget all of a parameter that is freed. */
void wf_nn_leaves_free_all(wf_nn_parameter *parameter);

#endif

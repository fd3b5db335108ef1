/* nn/optim/method_internal.h - the rows of methods.def, and checks of rows. Not installed. */
#ifndef WF_NN_OPTIM_METHOD_INTERNAL_H
#define WF_NN_OPTIM_METHOD_INTERNAL_H

#include "nn/optim/optimizer.h"

#define METHOD(number, row) extern const wf_nn_method_row row;
#include "nn/optim/methods.def"

/* AdamW's step, which other rows take for what they have none for. */
wf_status wf_nn_adamw_update(const wf_update *u, wf_tensor *t, wf_tensor *grad,
                             wf_tensor *const *state);

/* Steps by -rate times the sign of the gradient, 0 where that is 0; with rate 0, sets
   the value to the gradient (nn/optim/counted.c). */
wf_status wf_nn_counted_update(wf_tensor *t, wf_tensor *grad, float rate);

/* Checks a row, and options for it. WF_EINVAL, WF_EUNSUPPORTED in the context. */
wf_status wf_nn_optimizer_check(wf_context *ctx, const wf_nn_optimizer_options *options);

#endif

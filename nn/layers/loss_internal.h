/* nn/layers/loss_internal.h - the parts of cross-entropy, for logits that are whole and for
   those of a chunk. Not installed. */
#ifndef WF_NN_LAYERS_LOSS_INTERNAL_H
#define WF_NN_LAYERS_LOSS_INTERNAL_H

#include "nn/layers/loss.h"

enum { WF_NN_SUM, WF_NN_PICKED };

/* Refuses terms of training that are none. WF_EINVAL */
wf_status wf_nn_loss_check(const wf_nn_loss *loss);

/* Returns the value of such a term now: 0 in evaluation. */
float wf_nn_loss_in_training(const wf_nn_loss *loss, float value);

/* Computes the maximum, and the sum of exponentials and what is picked, past their points. */
void wf_nn_loss_reduce(wf_nn_loss *loss, wf_tensor *logits, wf_tensor *targets, float smoothing,
                       wf_tensor **max, wf_tensor *part[2]);

/* Returns z log(sum)^2 of each token, which is added to its loss. */
wf_tensor *wf_nn_z_loss(wf_tensor *sum, wf_tensor *max, float z);

/* Returns dsum with that of wf_nn_z_loss, by the ops of its gradient. */
wf_tensor *wf_nn_z_loss_grad(wf_tensor *dsum, wf_tensor *sum, wf_tensor *max, wf_tensor *dloss,
                             float z);

#endif

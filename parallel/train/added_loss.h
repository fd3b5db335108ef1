/*
 * parallel/train/added_loss.h - losses that modules add to the step's own: balance of experts,
 * penalties of activations, losses of heads in the middle of a model.
 *
 *     static wf_tensor *router_forward(wf_nn_module *self, wf_tensor *x)
 *     {
 *         ..
 *         wf_par_add_loss(self, "balance", imbalance, 0.01f);
 *
 * The step then differentiates its loss + 0.01 * (mean of imbalance over the global batch), on
 * any mesh, over micro-steps and pipeline stages, with modules recomputed or not, with the same
 * bits.
 */
#ifndef WF_PARALLEL_TRAIN_ADDED_LOSS_H
#define WF_PARALLEL_TRAIN_ADDED_LOSS_H

#include "nn/module.h"

WF_BEGIN_DECLS

enum { WF_PAR_LOSS_NAME = 32 };

typedef struct wf_par_trainer wf_par_trainer;

/**
 * wf_par_add_loss - adds weight * mean(loss) to the loss of the step under way, from inside of
 * a module's forward
 *
 * The mean is over all elements of the global batch, those whose targets do not count (-1)
 * included. In evaluation and generation, and outside of a trainer's step, nothing is added.
 * Every micro-step has to add the same losses.
 *
 * @param module  whose forward runs; its path distinguishes the loss from those of other
 *                modules
 * @param name    of the sum over all modules that add it, in logs: letters, digits and _, at
 *                most WF_PAR_LOSS_NAME - 1 of them
 * @param loss    [batch, ..], a number per sequence or per element of one; or without dims, a
 *                mean of its own over the micro-step, which is reported as inexact where there
 *                are several
 * @param weight  factor of the mean in the step's loss; the log shows the mean without it
 * Layout:      any in which it is no partial sum
 * Collective:  where ranks split its elements, a number per sequence; and at the step's end,
 *              one for each call
 * Errors:      in the context, and returned: WF_ESHAPE (no loss of a micro-step), WF_EINVAL (a
 *              name or weight that is none, or a loss that a pipeline's plan has not met),
 *              WF_EUNSUPPORTED (a step that is captured as a graph), WF_ENOMEM
 * Gradient:    to loss: weight / (elements of the global batch)
 */
WF_API wf_status wf_par_add_loss(void *module, const char *name, wf_tensor *loss, float weight);

/** wf_par_step_loss - the losses of one name in a step: the sum over modules of their means. */
typedef struct wf_par_step_loss {
    char name[WF_PAR_LOSS_NAME];
    float mean;  /* without weight; 0 in a plan */
    int modules; /* calls in a micro-step whose means are added */
} wf_par_step_loss;

/** wf_par_step_losses - returns the losses that modules added in the last step that was
 * reduced, on all ranks alike, in the order of their first calls; NULL where there are none.
 * Owner: the trainer, until the next step. */
WF_API const wf_par_step_loss *wf_par_step_losses(const wf_par_trainer *trainer, int *count);

WF_END_DECLS

#endif

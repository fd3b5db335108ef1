/*
 * nn/added_loss.h - losses that modules add to the step's own: balance of experts, penalties of
 * activations, losses of heads in the middle of a model.
 *
 *     static wf_tensor *router_forward(wf_nn_module *self, wf_tensor *x)
 *     {
 *         ..
 *         wf_nn_add_loss(self, "imbalance", imbalance, 0.01f);
 *
 * The step then differentiates its loss + 0.01 * (mean of imbalance over the global batch), on
 * any mesh, over micro-steps and pipeline stages, with modules recomputed or not, with the same
 * bits.
 */
#ifndef WF_NN_ADDED_LOSS_H
#define WF_NN_ADDED_LOSS_H

#include "nn/module.h"

WF_BEGIN_DECLS

enum { WF_NN_LOSS_NAME = 32 };

/**
 * wf_nn_add_loss - adds weight * mean(loss) to the loss of the step under way, from inside of
 * a module's forward
 *
 * The mean is over all elements of the global batch, those whose targets do not count (-1)
 * included. In evaluation and generation, and outside of a trainer's step, nothing is added.
 * Every micro-step has to add the same losses.
 *
 * @param module  whose forward runs; its path distinguishes the loss from those of other
 *                modules
 * @param name    of the sum over all modules that add it, in logs: letters, digits and _, at
 *                most WF_NN_LOSS_NAME - 1 of them
 * @param loss    [batch, ..], a number per sequence or per element of one; or without dims, a
 *                mean of its own over the micro-step, which is reported as inexact where there
 *                are several. One that wants no gradient is logged alone, as those are whose
 *                gradient another op makes (wf_route_losses)
 * @param weight  factor of the mean in the step's loss; the log shows the mean without it
 * Layout:      any in which it is no partial sum
 * Collective:  where ranks split its elements, a number per sequence; and at the step's end,
 *              one for all losses that modules add
 * Errors:      in the context, and returned: WF_ESHAPE (no loss of a micro-step), WF_EINVAL (a
 *              name or weight that is none, or a loss that a pipeline's plan has not met),
 *              WF_EUNSUPPORTED (a step that is captured as a graph), WF_ENOMEM
 * Gradient:    to loss: weight / (elements of the global batch)
 */
WF_API wf_status wf_nn_add_loss(void *module, const char *name, wf_tensor *loss, float weight);

/** wf_nn_adds_losses - returns true where wf_nn_add_loss would hand a loss on: in the forward
 * of a training step that is recorded. For modules whose losses cost something to compute. */
WF_API bool wf_nn_adds_losses(const void *module);

/** wf_nn_loss_receiver - takes a loss that a module adds in a training step, of checked
 * arguments; `first` is false where the module runs once more in the same pass, and the value
 * was taken before. Returns the context's status. */
typedef wf_status wf_nn_loss_receiver(void *self, wf_nn_module *module, const char *name,
                                      wf_tensor *loss, float weight, bool first);

/** wf_nn_receive_losses - hands losses that modules add from now on to a receiver; NULL: no
 * longer to that with this self, if it is the one. */
WF_API void wf_nn_receive_losses(wf_context *ctx, wf_nn_loss_receiver *receiver, void *self);

WF_END_DECLS

#endif

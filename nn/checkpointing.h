/*
 * nn/checkpointing.h - activation checkpointing: activations are recomputed in backward instead
 * of kept (Chen et al. 2016).
 */
#ifndef WF_NN_CHECKPOINTING_H
#define WF_NN_CHECKPOINTING_H

#include "nn/module.h"

WF_BEGIN_DECLS

/**
 * wf_nn_recompute - keeps of every module of a type only input and output, and recomputes its
 * forward in backward
 *
 * Results keep their bits: dropout is a function of position. Actions of the modules inside are
 * repeated too: borders of a plan, gathers of units. Where gradients of weights are deferred
 * (wf_backward), recomputed activations are kept until those are made.
 *
 * @param type  of modules that are called by wf_nn_call: "block", "attention"; NULL: of none
 * Collective:  no
 * Errors:      WF_EINVAL: no module is of that type, or it has a call of its own
 */
WF_API wf_status wf_nn_recompute(wf_nn_module *root, const char *type);

/**
 * wf_nn_offload_inputs - moves the inputs that recomputed modules keep to host memory when they
 * have run, and back when their backward begins (core/offload.h)
 *
 * Nothing else may read such an input after the module: blocks of a chain are so.
 *
 * @param root  wf_nn_recompute was called for it
 * Errors:      WF_EINVAL: nothing is recomputed; WF_EUNSUPPORTED: the device's memory is the
 *              host's
 */
WF_API wf_status wf_nn_offload_inputs(wf_nn_module *root);

/**
 * wf_nn_note_loss - notes that the module that runs adds a loss to the step's own, which is
 * then differentiated on the tape that the module is recorded on, even where the module's
 * result has no gradient
 *
 * @param wants_gradient  the loss depends on parameters that are trained
 * Returns:               false where the module was run before, in the same pass: its loss was
 *                        counted then
 */
WF_API bool wf_nn_note_loss(wf_context *ctx, bool wants_gradient);

/** wf_nn_checkpoint - runs a module that is marked so, while a tape records; returns its
 * output. Owner: scope. */
WF_API wf_tensor *wf_nn_checkpoint(wf_nn_module *module, wf_tensor *x);

WF_END_DECLS

#endif

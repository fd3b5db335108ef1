/*
 * nn/checkpointing.h - activation checkpointing: activations are recomputed in backward instead
 * of kept (Chen et al. 2016).
 */
#ifndef WF_NN_CHECKPOINTING_H
#define WF_NN_CHECKPOINTING_H

#include "nn/module.h"

WF_BEGIN_DECLS

/**
 * wf_nn_recompute - of every module of a type keep only input and output, and run its forward
 * again when backward comes to it
 *
 * Nothing of that shows in a bit: dropout is a function of position. What modules inside do to
 * run happens again too: borders of a plan, gathers of units. Where gradients of weights are
 * deferred (wf_backward), what ran again is kept for them until they are made.
 *
 * @param type  of modules that are called by wf_nn_call: "block", "attention"; NULL: of none
 * Collective:  no
 * Errors:      WF_EINVAL: no module is of that type, or it has a call of its own
 */
WF_API wf_status wf_nn_recompute(wf_nn_module *root, const char *type);

/** wf_nn_checkpoint - the output of a module that is marked so, while a tape records. */
WF_API wf_tensor *wf_nn_checkpoint(wf_nn_module *module, wf_tensor *x);

WF_END_DECLS

#endif

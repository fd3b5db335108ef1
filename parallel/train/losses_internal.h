/*
 * parallel/train/losses_internal.h - from the losses of micro-steps to their mean over the
 * global batch. Not installed.
 *
 * A loss [batch, ..] is summed, and each of its elements counts 1 / (elements of the global
 * batch). A scalar is a mean that the model has taken itself over a micro-step, and counts 1 /
 * micro-steps.
 */
#ifndef WF_PARALLEL_TRAIN_LOSSES_INTERNAL_H
#define WF_PARALLEL_TRAIN_LOSSES_INTERNAL_H

#include "parallel/train/train_internal.h"

/* Names, for errors and traces, ops that a loss function runs outside of modules
   (wf_context_enter). */
#define WF_PAR_LOSS_FUNCTION "the loss function"

wf_status wf_par_losses_open(wf_par_trainer *t, wf_par_losses *l);
void wf_par_losses_close(wf_par_trainer *t, wf_par_losses *l);

/* Keep the sum of the loss of micro-step k; tape: that it is differentiated on, NULL: it is
   evaluated, and any number may be. WF_EINVAL (NULL), WF_ESHAPE (neither of the two, or a
   prediction). */
wf_status wf_par_losses_put(wf_par_trainer *t, const wf_par_batch *batch, int64_t k,
                            const wf_tape *tape, wf_tensor *loss);

/* The same of any losses, whose elements have this weight in their mean. */
wf_status wf_par_losses_keep(wf_par_trainer *t, wf_par_losses *l, int64_t k, wf_tensor *loss,
                             float weight);

/* Refuses a tensor that is no loss of a micro-step: [batch, ..] or without dims. WF_ESHAPE */
wf_status wf_par_losses_check(const wf_par_trainer *t, const wf_tensor *loss);

/* Returns the sum over all, retained, on every rank that has losses, and forgets those of the
   micro-steps; NULL on ranks that were given none, as those of a pipeline's first stages.
   Collective: over the former */
wf_tensor *wf_par_losses_total(wf_par_trainer *t, wf_par_losses *l);

/* The same of n losses, each put in every micro-step, into total[n], with one move of all of
   them; NULL after an error, which it returns. */
wf_status wf_par_losses_totals(wf_par_trainer *t, int64_t n, wf_par_losses *const *l,
                               wf_tensor **total);

/* Forget what was put. */
void wf_par_losses_clear(wf_par_trainer *t, wf_par_losses *l);

/* Returns a sum as what ops compute in: of what is stored as bf16 it is cast. */
wf_tensor *wf_par_losses_computed(wf_tensor *total);

/* The mean over the global batch, of the total; 0 in a plan. */
wf_status wf_par_losses_mean(wf_par_trainer *t, const wf_par_losses *l, wf_tensor *total,
                             float *mean);

#endif

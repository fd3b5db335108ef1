/* parallel/train/step_internal.h - inside of the parts of a step. Not installed. */
#ifndef WF_PARALLEL_TRAIN_STEP_INTERNAL_H
#define WF_PARALLEL_TRAIN_STEP_INTERNAL_H

#include "parallel/train/train_internal.h"

/* WF_EINVAL: `part` was called where another one comes next, which the text says. */
wf_status wf_par_misplaced(wf_par_trainer *t, const char *part);

/* options.loss, or WF_EINVAL where it is NULL. */
wf_par_loss_function *wf_par_loss_of(wf_par_trainer *t);

/* Warns once of parameters that no use of the step has reached, and refuses a step that reaches
   none; for engines whose ranks have all of the model. */
wf_status wf_par_check_unused(wf_par_trainer *t);

/* Refuses a bound of the gradients' norm that is negative or not finite. */
wf_status wf_par_clip_check(wf_par *par, float max_norm);

/* The next micro-step with options.loss. `given`, or NULL: its batch, which has been read. */
wf_status wf_par_micro_step(wf_par_trainer *t, const wf_par_data *data,
                            const wf_par_batch *given);

/* All that are left of them; `given`, or NULL: a batch for each micro-step of the step. */
wf_status wf_par_run_micro_steps(wf_par_trainer *t, const wf_par_data *data,
                                 const wf_par_batch *given);

/* Ends the action of a schedule that is under way, for traces, the flight recorder and what
   counts a model's work. */
void wf_par_action_end(const wf_par_trainer *t);

/* The gradient of a loss, of what ops compute in: what tensors are weighted with is not
   rounded. */
wf_tensor *wf_par_seed_of(const wf_par_trainer *t, wf_tensor *loss);

/* Forget what the step holds, without the other ranks: what is under way between ranks stays
   so. */
void wf_par_step_drop(wf_par_trainer *t);

/* Returns true where there was no error before; reports a part that comes out of order. */
bool wf_par_step_may_come(wf_par_trainer *t, const char *part, bool here);

#endif

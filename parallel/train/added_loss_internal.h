/* parallel/train/added_loss_internal.h - losses that modules add, for the engines of a step.
   Not installed. */
#ifndef WF_PARALLEL_TRAIN_ADDED_LOSS_INTERNAL_H
#define WF_PARALLEL_TRAIN_ADDED_LOSS_INTERNAL_H

#include "parallel/train/losses_internal.h"

/* Takes the losses that modules add from now on, or no longer. */
void wf_par_added_receive(wf_par_trainer *t, bool receive);

/* Makes room for a loss that modules will add. Errors: WF_ENOMEM */
wf_status wf_par_added_expect(wf_par_trainer *t, const char *path, const char *name);

/* Takes the mean of each over the global batch, where its module is here, and forgets those of
   micro-steps. Collective: over the ranks of a stage */
wf_status wf_par_added_means(wf_par_trainer *t);

/* Sums means that all ranks have by now, by name. */
wf_status wf_par_added_sum(wf_par_trainer *t);

/* Forgets what was put. */
void wf_par_added_clear(wf_par_trainer *t);
void wf_par_added_close(wf_par_trainer *t);

#endif

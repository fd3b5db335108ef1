/* parallel/train/added_loss.h - the losses that modules add to a step's own (nn/added_loss.h),
   as a trainer has summed them. */
#ifndef WF_PARALLEL_TRAIN_ADDED_LOSS_H
#define WF_PARALLEL_TRAIN_ADDED_LOSS_H

#include "nn/added_loss.h"

WF_BEGIN_DECLS

typedef struct wf_par_trainer wf_par_trainer;

/** wf_par_step_loss - the losses of one name in a step: the sum over modules of their means. */
typedef struct wf_par_step_loss {
    char name[WF_NN_LOSS_NAME];
    float mean;  /* without weight; 0 in a plan */
    int modules; /* calls in a micro-step whose means are added */
} wf_par_step_loss;

/** wf_par_step_losses - returns the losses that modules added in the last step that was
 * reduced, on all ranks alike, in the order of their first calls; NULL where there are none.
 * Owner: the trainer, until the next step. */
WF_API const wf_par_step_loss *wf_par_step_losses(const wf_par_trainer *trainer, int *count);

WF_END_DECLS

#endif

/* parallel/train/trainer_job_internal.h - whether all ranks open the same trainer. Not
   installed. */
#ifndef WF_PARALLEL_TRAIN_TRAINER_JOB_INTERNAL_H
#define WF_PARALLEL_TRAIN_TRAINER_JOB_INTERNAL_H

#include "parallel/train/train_internal.h"

/* Compares options, pipeline, model and plan of all ranks. Collective: over the world. Errors:
   WF_EMISMATCH in the context of all, which names what differs. */
wf_status wf_par_trainer_agree(wf_par_trainer *t);

#endif

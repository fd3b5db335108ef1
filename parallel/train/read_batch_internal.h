/* parallel/train/read_batch_internal.h - the batches of a trainer: made, and read. Not
   installed. */
#ifndef WF_PARALLEL_TRAIN_READ_BATCH_INTERNAL_H
#define WF_PARALLEL_TRAIN_READ_BATCH_INTERNAL_H

#include "parallel/train/train_internal.h"

/* Count the fields of the options; WF_EINVAL, WF_ESHAPE for a list that is none of fields. */
wf_status wf_par_fields_check(wf_par_trainer *t);

/* The global sequences of micro-step k, of all ranks. */
wf_sequences wf_par_sequences(const wf_par_trainer *t, int64_t k);

/* Which part of this rank's sequences of micro-steps first .. last are its own; it has none
   where it is idle. */
double wf_par_share_of(const wf_par_trainer *t, int64_t first, int64_t last);

/* A batch without tensors; with room for the sequences of a micro-step, which is the
   scope's. */
wf_par_batch wf_par_batch_without_tensors(const wf_par_trainer *t);
wf_par_batch wf_par_batch_new(wf_par_trainer *t);

/* What the data say of how many elements of the losses of a step count; -1 where they say
   nothing. */
wf_status wf_par_count(const wf_par_data *data, int64_t step, int64_t *count, wf_error *error);

/* Finds the same for the step under way, on a rank that may read nothing of it. */
wf_status wf_par_step_count(wf_par_trainer *t, const wf_par_data *data);

/* Bring this rank's sequences of micro-step k of a step there; in a plan nothing is read. */
wf_status wf_par_batch_read(wf_par_trainer *t, wf_par_batch *batch, const wf_par_data *data,
                            int64_t step, int64_t k);

#endif

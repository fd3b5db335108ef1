/* parallel/checkpoint/load_internal.h - whether a checkpoint fits what it is to be loaded into.
   Not installed. */
#ifndef WF_PARALLEL_CHECKPOINT_LOAD_INTERNAL_H
#define WF_PARALLEL_CHECKPOINT_LOAD_INTERNAL_H

#include "parallel/checkpoint/checkpoint.h"
#include "parallel/checkpoint/read_internal.h"

/* The tensors of a trainer's index, their shapes and their optimizer; of a local checkpoint the
   layout too. Errors: WF_EINVAL with what differs */
wf_status wf_load_fits_state(const wf_par_checkpoint *from, const wf_index *mine,
                             wf_error *error);

/* Names and shapes of a model's parameters; parameter NULL is WF_ENOMEM. Errors: WF_EINVAL with
   what differs */
wf_status wf_load_fits_parameters(const wf_par_checkpoint *from, int64_t count,
                                  wf_nn_parameter **parameter, wf_error *error);

#endif

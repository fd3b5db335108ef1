/* parallel/shard/muon_internal.h - Muon's step, which needs whole matrices, on whatever ranks
   hold. Not installed. */
#ifndef WF_PARALLEL_SHARD_MUON_INTERNAL_H
#define WF_PARALLEL_SHARD_MUON_INTERNAL_H

#include "nn/optim/optimizer.h"
#include "parallel/parallel_internal.h"

/*
 * Update the parameters that the optimizer orthogonalises (wf_nn_optimizer_is_matrix) and that
 * have a gradient. Collective over tp and shard.
 */
wf_status wf_par_muon_update(wf_par *par, wf_nn_optimizer *optimizer, int64_t count,
                             wf_nn_parameter *const *parameter, wf_tensor *const *grad);

#endif

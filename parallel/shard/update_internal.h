/* parallel/shard/update_internal.h - the optimizer's step on parameters as they are stored. Not
   installed. */
#ifndef WF_PARALLEL_SHARD_UPDATE_INTERNAL_H
#define WF_PARALLEL_SHARD_UPDATE_INTERNAL_H

#include "nn/optim/optimizer.h"
#include "parallel/parallel_internal.h"

/* An optimizer whose state has the layouts that the strategy gave it. Owner: caller. */
wf_nn_optimizer *wf_par_optimizer_new(wf_par *par, const wf_nn_optimizer_options *options,
                                      int64_t count, wf_nn_parameter *const *parameter);

/*
 * One step. Where the state is split and a parameter is not, each rank updates its part, and
 * the parts are gathered, bucket by bucket. Collective over shard then.
 */
wf_status wf_par_update(wf_par *par, wf_nn_optimizer *optimizer, int64_t count,
                        wf_nn_parameter *const *parameter, wf_tensor *const *grad, float lr,
                        float scale);

/* The same without wf_nn_optimizer_begin, which the caller has called. */
wf_status wf_par_update_parameters(wf_par *par, wf_nn_optimizer *optimizer, int64_t count,
                                   wf_nn_parameter *const *parameter, wf_tensor *const *grad);

#endif

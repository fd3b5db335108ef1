/* parallel/measure.h - numbers of a whole model that don't depend on its layout. */
#ifndef WF_PARALLEL_MEASURE_H
#define WF_PARALLEL_MEASURE_H

#include "nn/optimizer.h"
#include "parallel/plan.h"

WF_BEGIN_DECLS

/**
 * wf_par_norm - the square root of the sum of squares of all elements of some tensors
 *
 * Leaf: one row of dim 0 times one of dim 1's 8 cuts, in double; leaves are added exactly
 * (core/exact_sum.h), so neither order nor layout matters. Copies on several ranks count once.
 *
 * @param tensor  not partial; NULL entries are skipped
 * Collective:  over the world
 */
WF_API wf_status wf_par_norm(wf_par *par, int64_t count, wf_tensor *const *tensor,
                             double *norm);

/**
 * wf_par_digest - sum mod 2^64 of a mix of (path, kind, global index, bits) of all parameters
 * (kind 0) and of the optimizer's moments (kinds 1, 2); ties and copies count once
 *
 * @param optimizer  NULL: parameters alone
 * Collective:  over the world
 */
WF_API wf_status wf_par_digest(wf_par *par, int64_t count, wf_nn_parameter *const *parameter,
                               const wf_nn_optimizer *optimizer, uint64_t *digest);

WF_END_DECLS

#endif

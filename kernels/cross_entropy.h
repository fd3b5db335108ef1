/*
 * kernels/cross_entropy.h - the ops of cross-entropy over a vocabulary that may be split; they
 * return tensors and report errors as the ops of kernels/ops.h, which includes them, do.
 */
#ifndef WF_KERNELS_CROSS_ENTROPY_H
#define WF_KERNELS_CROSS_ENTROPY_H

#include "core/tensor.h"

WF_BEGIN_DECLS

/**
 * wf_logit_max - returns the maximum over the (part of the) vocabulary; no gradient
 *
 * Layout:      "...v->...": partial max where v is split
 */
WF_API wf_tensor *wf_logit_max(wf_tensor *logits);

/**
 * wf_logit_sum - computes sum[..] = sum_v exp(logits[.., v] - max[..]), picked[..] = logits[..,
 * target]
 *
 * @param targets  i32; one outside this rank's part of the vocabulary adds +0 to picked. Of a
 *                 row with target -1, which is not trained on, sum and picked are +0: no other
 *                 sum is less than 1
 * @param smoothing  the share e, 0 to 1, that all V logits have in what is picked: (1 - e)
 *                 logits[.., target] + e / V sum_v logits[.., v] (label smoothing, Szegedy et
 *                 al. 2016, as torch's cross_entropy has it)
 * Layout:      "...v,...,...->...,...": partial sums where v is split
 * Gradient:    to logits: exp(logits - max) * dsum + ((1 - e) [v = target] + e / V) * dpicked
 */
WF_API void wf_logit_sum(wf_tensor *logits, wf_tensor *max, wf_tensor *targets, float smoothing,
                         wf_tensor **sum, wf_tensor **picked);
WF_API wf_tensor *wf_logit_sum_grad(wf_tensor *logits, wf_tensor *max, wf_tensor *targets,
                                    wf_tensor *dsum, wf_tensor *dpicked, float smoothing);

/**
 * wf_logit_sum_grad_into, wf_cross_entropy_into - compute wf_logit_sum_grad and
 * wf_cross_entropy into a given tensor
 *
 * @param dlogits  may be logits, which its gradient then overwrites; NULL: a new tensor
 * @param loss     for instance rows of a larger tensor; NULL: a new tensor
 * Layout:      as without; the given tensor as the result
 * Owner:       the caller of the given tensor, which is also returned
 * Errors:      also WF_EINVAL while a tape records
 * Gradient:    none
 */
WF_API wf_tensor *wf_logit_sum_grad_into(wf_tensor *logits, wf_tensor *max, wf_tensor *targets,
                                         wf_tensor *dsum, wf_tensor *dpicked, float smoothing,
                                         wf_tensor *dlogits);
WF_API wf_tensor *wf_cross_entropy_into(wf_tensor *sum, wf_tensor *picked, wf_tensor *max,
                                        wf_tensor *loss);

/**
 * wf_cross_entropy - returns the loss log(sum) + max - picked, per token; +0 where sum is 0
 * (target -1)
 *
 * Layout:      "...,...,...->..."
 * Gradient:    to sum (dloss / sum) and picked (-dloss), both +0 where sum is 0; max cancels
 *              out
 */
WF_API wf_tensor *wf_cross_entropy(wf_tensor *sum, wf_tensor *picked, wf_tensor *max);
WF_API void wf_cross_entropy_grad(wf_tensor *sum, wf_tensor *dloss, wf_tensor **dsum,
                                  wf_tensor **dpicked);

/**
 * wf_logit_loss_into - computes a loss per token and the gradient of the logits at once, over a
 * vocabulary that is whole: with the bits of the ops above, and logits read once
 *
 * @param targets    i32, as of wf_logit_sum
 * @param dloss      [..] the gradient that the losses have
 * @param smoothing  as of wf_logit_sum
 * @param dlogits    filled; may be logits, which it then overwrites
 * @param loss       [..] filled; for instance rows of a larger tensor
 * Layout:      "...v!,...,...->...v!,..."
 * Owner:       the caller, of both
 * Errors:      also WF_EINVAL while a tape records
 * Gradient:    none
 */
WF_API wf_status wf_logit_loss_into(wf_tensor *logits, wf_tensor *targets, wf_tensor *dloss,
                                    float smoothing, wf_tensor *dlogits, wf_tensor *loss);

WF_END_DECLS

#endif

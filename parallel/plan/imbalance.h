/*
 * parallel/plan/imbalance.h - how uneven the loads of a mixture's experts are, for times of
 * plans and searches: by a factor, or as a run has counted them.
 */
#ifndef WF_PARALLEL_PLAN_IMBALANCE_H
#define WF_PARALLEL_PLAN_IMBALANCE_H

#include "parallel/simulate/cost.h"

WF_BEGIN_DECLS

/**
 * wf_plan_imbalance - sets what ranks have of tokens where they split experts
 *
 * @param text   a number from 1 on: the fullest rank's tokens over the mean; or a file of a
 *               run's rows (--log-jsonl with --moe-report), whose counts say it for any split
 *               of the experts: of each layer the fullest rank, in the mean of layers
 * @param sizes  its `fullest` is set; unchanged on errors
 * Errors:       WF_EINVAL, WF_EIO, WF_EDATA, WF_ENOMEM
 */
WF_API wf_status wf_plan_imbalance(const char *text, wf_sim_model *sizes, wf_error *error);

WF_END_DECLS

#endif

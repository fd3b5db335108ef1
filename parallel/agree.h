/* parallel/agree.h - checks that all ranks of a run were given the same settings. */
#ifndef WF_PARALLEL_AGREE_H
#define WF_PARALLEL_AGREE_H

#include "core/job.h"
#include "parallel/run.h"

WF_BEGIN_DECLS

/**
 * wf_par_compare_job - compares a job of all ranks: 16 bytes over a tree of ranks where it is
 * the same
 *
 * A trainer compares by itself its options, those of the run, the model with its sharding plan
 * and the pipeline (wf_par_trainer_open). A program adds its own settings, data or
 * hyperparameters, as entries of a job.
 *
 * Collective:  over the world
 * Errors:      WF_EMISMATCH in the context of all ranks: entries differ, which are named with
 *              both values, ranks and hosts; WF_ENOMEM; those of communication
 */
WF_API wf_status wf_par_compare_job(wf_par *par, const wf_job *job);

WF_END_DECLS

#endif

/* parallel/agree.h - whether all ranks of a run were given the same. */
#ifndef WF_PARALLEL_AGREE_H
#define WF_PARALLEL_AGREE_H

#include "core/job.h"
#include "parallel/run.h"

WF_BEGIN_DECLS

/**
 * wf_par_compare_job - compare a job of all ranks: 16 bytes over a tree of ranks where it is
 * the same
 *
 * A trainer compares by itself what it knows: its options, those of the run, the model with its
 * sharding plan, the pipeline (wf_par_trainer_open). A program adds what it alone knows, data
 * or hyperparameters of its own, as entries of a job.
 *
 * Collective:  over the world
 * Errors:      WF_EMISMATCH in the context of all ranks: entries differ, which are named with
 *              both values, ranks and hosts; WF_ENOMEM; those of communication
 */
WF_API wf_status wf_par_compare_job(wf_par *par, const wf_job *job);

WF_END_DECLS

#endif

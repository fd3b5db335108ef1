/*
 * parallel/plan/calibrate.h - the figures of this machine, measured with a model: a machine
 * file of one's own for plans that time steps (parallel/simulate/machine.h).
 */
#ifndef WF_PARALLEL_PLAN_CALIBRATE_H
#define WF_PARALLEL_PLAN_CALIBRATE_H

#include "parallel/plan/job.h"

WF_BEGIN_DECLS

/**
 * wf_plan_calibrate - trains a job's model for a few steps on every core at once, each a
 * data-parallel rank of one thread whose ops are timed, and times collectives between these:
 * FLOP/s of products and of attention, bytes/s of other ops, seconds beside an op, and the
 * links between ranks
 *
 * @param job      its mesh is replaced by as many copies as there are cores, on the CPU, and
 *                 its batch by two micro-batches of each; data are zeros, hooks are not called,
 *                 and there is no pipeline
 * @param machine  filled in, with a name
 * Collective:     no: it launches ranks of its own, threads of this process
 * Errors:         those of the job, and of reading this machine's cores; WF_ENOMEM
 */
WF_API wf_status wf_plan_calibrate(const wf_par_job *job, wf_sim_machine *machine,
                                   wf_error *error);

WF_END_DECLS

#endif

/* apps/gpt_train/run_job.h - what the processes of a run must have alike, and meeting them
   without a run. */
#ifndef WF_APPS_RUN_JOB_H
#define WF_APPS_RUN_JOB_H

#include "apps/gpt_train/train_job.h"

/* Returns what all processes of the run must have alike, or why this one has failed; NULL for
   one process alone. Owner: caller, wf_job_free. */
wf_job *app_run_job(const app_options *options, const app_train_job *run);

/* Says whether a run moves nothing, as a plan and a report: of several processes, one makes
   it. */
bool app_run_moves_nothing(const app_options *options);

/* Finds the numerics identity of a run, for its log, its checkpoints and the digests of its
   ranks; "" where nothing is computed. */
wf_status app_run_numerics(const app_options *options, char text[17], wf_error *error);

/* Returns what a process is asked for in place of a run; NULL: a run. */
const char *app_run_task(const app_options *options);

/* Meets the other processes where this one runs nothing, or can't: they would wait for it.
   *error becomes that of all. */
wf_status app_run_meet(const app_options *options, wf_launch_end *end, wf_error *error);

#endif

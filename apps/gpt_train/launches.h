/* apps/gpt_train/launches.h - launches of the ranks: one, or of an elastic run one after the
   other. */
#ifndef WF_APPS_TRAIN_LAUNCHES_H
#define WF_APPS_TRAIN_LAUNCHES_H

#include "apps/gpt_train/train_job.h"

/* Returns a choice of a flag, NULL for "auto". */
const char *app_launches_unless_auto(const char *choice);

/* Opens the log, to which rank 0 alone writes, and changes nothing in it. Owner: caller.
   Errors: those of wf_run_log_open */
wf_status app_launches_open_log(const app_options *options, bool continues,
                                const wf_launcher *launcher, const char *numerics,
                                wf_run_log **log, wf_error *error);

/* Closes a timeline: a disk that is full is reported, and ends no run. NULL is allowed. */
void app_launches_close_timeline(wf_timeline *timeline);

/* Launches the ranks, of an elastic run until it has ended. Errors: those of wf_launch */
wf_status app_launches_run(const app_options *options, app_train_job *job, wf_launch_end *end,
                           wf_error *error);

#endif

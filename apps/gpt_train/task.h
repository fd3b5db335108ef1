/* apps/gpt_train/task.h - what a process is asked for instead of a run: several processes must
   agree on it. */
#ifndef WF_APPS_TRAIN_TASK_H
#define WF_APPS_TRAIN_TASK_H

#include "apps/options/options.h"
#include <weft/weft.h>

/* Returns the flag that asks for something else than a run; NULL: a run. */
const char *app_task(const app_options *options);

/* Adds the task (NULL: a run), and the options of one, to what processes must have alike. */
void app_task_compare(const char *task, const app_options *options, wf_job *alike);

/* Meets the other processes where this one runs nothing, or can't: they would wait for it.
   *error becomes that of all. */
wf_status app_task_meet(const app_options *options, wf_launch_end *end, wf_error *error);

#endif

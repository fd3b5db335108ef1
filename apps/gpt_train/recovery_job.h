/*
 * apps/gpt_train/recovery_job.h - which run and which job a start belongs to, kept with what its ranks leave in
 * --recovery-dir: only the same job of the same run goes on with that.
 */
#ifndef WF_APPS_RECOVERY_JOB_H
#define WF_APPS_RECOVERY_JOB_H

#include "nn/dataset/dataset.h"
#include "apps/options/options.h"

enum { APP_RECOVERY_RUN = 96 };

/* The run that who starts its processes gives a name to (WEFT_RUN_ID, else the job of Slurm); "": it has none. */
void app_recovery_run(char run[APP_RECOVERY_RUN]);

/* The job as text: options that decide the numbers, by name, and a fingerprint of the data. Owner: caller, free; NULL: error. */
char *app_recovery_job(const app_options *options, const wf_dataset *data, wf_error *error);

/* Whether what a file has is of the same run and job. WF_EINVAL: by what it differs, with both values; WF_EDATA. */
wf_status app_recovery_check_run(const char *path, const char *mine, const char *theirs,
                                 wf_error *error);
wf_status app_recovery_check_job(const char *path, const char *mine, const char *theirs,
                                 wf_error *error);

#endif

/*
 * apps/gpt_train/recovery_job.h - which job a start belongs to, kept with what its ranks leave
 * in --recovery-dir: only the same job of the same run goes on with that
 * (parallel/recovery/elastic_files.h).
 */
#ifndef WF_APPS_RECOVERY_JOB_H
#define WF_APPS_RECOVERY_JOB_H

#include "nn/dataset/dataset.h"
#include "apps/options/options.h"

/* Returns the job as text: options that decide the numbers, by name, and a fingerprint of the
   data. Owner: caller, free; NULL: error. */
char *app_recovery_job(const app_options *options, const wf_dataset *data, wf_error *error);

#endif

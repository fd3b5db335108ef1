/*
 * apps/gpt_train/identity.h - the job that a start belongs to, kept with the state that its
 * ranks leave in --recovery-dir: only the same job of the same run continues with that
 * (parallel/recovery/elastic_files.h).
 */
#ifndef WF_APPS_TRAIN_IDENTITY_H
#define WF_APPS_TRAIN_IDENTITY_H

#include "apps/options/options.h"
#include "nn/dataset/dataset.h"

/* Returns the job as text: options that decide the numbers, by name, and a fingerprint of the
   data. Owner: caller, free; NULL: error. */
char *app_identity(const app_options *options, const wf_dataset *data, wf_error *error);

#endif

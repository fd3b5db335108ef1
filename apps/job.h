/* apps/job.h - what the processes of a run compare of files. */
#ifndef WF_APPS_JOB_H
#define WF_APPS_JOB_H

#include "core/job.h"
#include <stdbool.h>
#include <stdint.h>

/* A file's bytes, and a hash of its content: whole where it is small, else of its beginning, its end and stretches evenly
   between. */
typedef struct app_sample_sum {
    int64_t files, bytes;
    uint64_t hash;
} app_sample_sum;

/* Adds an open file, of which at most so many stretches are read, to a sum. Errors: WF_EIO with errno's reason. */
wf_status app_sample_file(int descriptor, int stretches, app_sample_sum *sum, wf_error *error);

/* Stretches of each of so many files, so that many take no longer than a few. */
int app_sample_stretches(int64_t files);

/*
 * An entry of what is in a file, or in the files of a folder that make a model: weights, their index, configs, tokenizers.
 * NULL adds nothing: what is not given is an entry of the flag. What cannot be read is left to who needs it, which says
 * so.
 */
void app_job_add_path(wf_job *job, const char *name, const char *path);

#endif

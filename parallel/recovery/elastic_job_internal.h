/* parallel/recovery/elastic_job_internal.h - which run and which job a file in a recovery
   folder is of. */
#ifndef WF_PARALLEL_RECOVERY_ELASTIC_JOB_INTERNAL_H
#define WF_PARALLEL_RECOVERY_ELASTIC_JOB_INTERNAL_H

#include "core/status.h"

/* Checks that a file is of the same run and job. WF_EINVAL: what differs, with both values;
   WF_EDATA: it is of no job. */
wf_status wf_elastic_check_run(const char *path, const char *mine, const char *theirs,
                               wf_error *error);
wf_status wf_elastic_check_job(const char *path, const char *mine, const char *theirs,
                               wf_error *error);

#endif

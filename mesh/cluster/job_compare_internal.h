/* mesh/cluster/job_compare_internal.h - whether the processes of a world were started for the
   same job. Not installed. */
#ifndef WF_MESH_CLUSTER_JOB_COMPARE_INTERNAL_H
#define WF_MESH_CLUSTER_JOB_COMPARE_INTERNAL_H

#include "core/job.h"
#include "mesh/comm/transport_internal.h"

/* The parties of a comparison of jobs, and their gather call: processes of a world, before its
   ranks are mapped, or ranks that are each alone in a process. */
typedef struct wf_job_peers {
    int n, mine;
    wf_gather_call *gather;
    void *world;
} wf_job_peers;

/*
 * Collective over the peers, with the same result on all. WF_EMISMATCH: entries differ, which
 * the text names with both values and processes; or the error that a process brings
 * (wf_job_fail).
 */
wf_status wf_job_compare(const wf_job *job, const wf_job_peers *peers, wf_error *error);

/* Is a wf_gather_call over a group of ranks, a wf_comm. */
wf_status wf_job_gather_ranks(void *comm, const void *mine, size_t bytes, char **all,
                              size_t *begin, wf_error *error);

#endif

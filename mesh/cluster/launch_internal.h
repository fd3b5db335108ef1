/* mesh/cluster/launch_internal.h - a launch, as what opens it and what runs it share it. Not
   installed. */
#ifndef WF_MESH_CLUSTER_LAUNCH_INTERNAL_H
#define WF_MESH_CLUSTER_LAUNCH_INTERNAL_H

#include "mesh/cluster/launch.h"
#include "mesh/cluster/affinity_internal.h"
#include "mesh/cluster/job_compare_internal.h"
#include "mesh/cluster/rank_map_internal.h"
#include "mesh/health/failure_detector_internal.h"
#include <pthread.h>
#include <stdatomic.h>

typedef struct started {
    struct launch *launch;
    wf_rank rank;
    int bound; /* its number among the ranks that are bound to cores */
    wf_status status;
    pthread_t thread;
} started;

/* On the heap, for a rank that is stuck may outlive the call. */
typedef struct launch {
    const wf_transport *transport;
    wf_status (*rank_main)(wf_rank *rank, void *arg);
    void *arg;
    void *world;
    wf_affinity *affinity; /* NULL: the system's choice */
    wf_detector_options detection;
    wf_detector *detector; /* NULL: there is nothing that ranks do not notice themselves */
    wf_comm **comm;        /* [n] */
    wf_job *job;           /* settings that processes must have alike */
    bool compares;         /* ranks compare it, since processes could not */
    wf_rank_map map;       /* the ranks that run here: */
    int n;                 /* their number .. */
    int process;           /* .. in this one of the world's processes */
    _Atomic uint32_t gate, running;
    struct launch *next; /* the next abandoned one */
    started rank[];
} launch;

/* ---- launch_open.c ---- */

/* The transport that is asked for, or that suits what started this process. */
const wf_transport *wf_launch_transport(const wf_launch_options *o, wf_error *error);

/* Opens a world whose ranks are attached and seen by the failure detector, and have not
   started: *out, which is NULL on failure. Where processes have to meet for that, *end says how
   it failed: with `stuck` they have not met, and one of this process's threads is still waiting
   for them. */
wf_status wf_launch_open(const wf_transport *t, const wf_launch_options *o, launch **out,
                         wf_launch_end *end, wf_error *error);

/* ---- launch_check.c ---- */

/* Compares each process's number, and its number on its host, with what its environment says,
   by which it has named itself to others. Collective over the processes; an error is the same
   on all of them. */
wf_status wf_launch_check(const wf_transport *t, void *world, const wf_processes *all,
                          wf_error *error);

/* A failure to open that need not be that of all processes: one of them reports one. */
static inline bool wf_launch_is_own(wf_status status)
{
    return status != WF_OK && status != WF_EINVAL && status != WF_EUNSUPPORTED;
}

/* Gives all of it back; no rank uses it any more. */
void wf_launch_close(launch *l);

#endif

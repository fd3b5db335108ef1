/*
 * mesh/cluster/affinity_internal.h - which cores the ranks of one process run on. Not
 * installed.
 *
 * Rank i of n, with t threads each, takes cores i t .. i t + t - 1 in hwloc's logical order, in
 * which neighbours share caches: so neighbours on the mesh's innermost axis do. Where there are
 * fewer cores than n t, or one rank, the system schedules all threads.
 */
#ifndef WF_MESH_CLUSTER_AFFINITY_INTERNAL_H
#define WF_MESH_CLUSTER_AFFINITY_INTERNAL_H

#include <stdbool.h>

typedef struct wf_affinity wf_affinity;

/* wf_affinity_allowed - lists the cores of this machine that the process may use: core i is bit
   i % 8 of set[i / 8], which is zero before. Returns their number; -1: unknown. */
int wf_affinity_allowed(unsigned char *set, int most);

/* wf_affinity_open - assigns cores to ranks. xml: a machine as lstopo wrote it; NULL: this one,
   as far as this process may use it. Returns NULL where there are no cores for each rank; and
   for one rank, which has no neighbour, while another process of one rank would take the same
   core. */
wf_affinity *wf_affinity_open(const char *xml, int ranks, int threads);

/* wf_affinity_close - frees it; NULL is allowed. */
void wf_affinity_close(wf_affinity *affinity);

/* wf_affinity_core - returns true where a rank may run on core `core` (in logical order). */
bool wf_affinity_core(const wf_affinity *affinity, int rank, int core);

/* wf_affinity_bind - binds the calling thread, and those that it will start, to a rank's cores,
   and memory that they touch first to the NUMA nodes there while these have any. Where the
   system refuses, only speed is lost. */
void wf_affinity_bind(const wf_affinity *affinity, int rank);

#endif

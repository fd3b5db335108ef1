/*
 * mesh/cluster/affinity_internal.h - which cores the ranks of one process run on. Not
 * installed.
 *
 * Rank i of n, with t threads each, takes cores i t .. i t + t - 1 in hwloc's logical order, in
 * which neighbours share caches: so neighbours on the mesh's innermost axis do. Where there are
 * fewer cores than n t, or one rank, the system places all threads.
 */
#ifndef WF_MESH_CLUSTER_AFFINITY_INTERNAL_H
#define WF_MESH_CLUSTER_AFFINITY_INTERNAL_H

#include <stdbool.h>

typedef struct wf_affinity wf_affinity;

/* wf_affinity_allowed - which cores of this machine the process may use: core i is bit i % 8 of
   set[i / 8], which is zero before. Returns how many; -1: unknown. */
int wf_affinity_allowed(unsigned char *set, int most);

/* wf_affinity_open - xml: a machine as lstopo wrote it; NULL: this one, as far as this process
   may use it. NULL where there are no cores for each rank; and for one rank, which has no
   neighbour to keep off, while another process of one rank would take the same core. */
wf_affinity *wf_affinity_open(const char *xml, int ranks, int threads);

/* wf_affinity_close - NULL is nothing. */
void wf_affinity_close(wf_affinity *affinity);

/* wf_affinity_core - whether a rank may run on core `core` (in logical order). */
bool wf_affinity_core(const wf_affinity *affinity, int rank, int core);

/* wf_affinity_bind - bind the calling thread, and those that it will start, to a rank's cores,
   and what memory they touch first to the NUMA nodes there while these have any. Where the
   system refuses, nothing is lost but time. */
void wf_affinity_bind(const wf_affinity *affinity, int rank);

#endif

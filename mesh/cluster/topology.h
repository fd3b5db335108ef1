/*
 * mesh/cluster/topology.h - the machine as hwloc sees it: packages, NUMA nodes, cores, caches.
 *
 * Only what this process may use counts (cgroups and affinity masks are respected). A
 * description in hwloc's XML may replace it, for a machine that is not here.
 */
#ifndef WF_MESH_CLUSTER_TOPOLOGY_H
#define WF_MESH_CLUSTER_TOPOLOGY_H

#include "core/status.h"
#include <stddef.h>

WF_BEGIN_DECLS

typedef struct wf_topology {
    int packages, numa_nodes, cores, threads; /* threads: hardware threads of all cores */
    size_t l2_bytes, l3_bytes;                /* size of one cache, 0 where there is none */
    size_t memory_bytes;
} wf_topology;

/**
 * wf_topology_read - reads the description of a machine
 *
 * @param xml  file that `lstopo file.xml` wrote; NULL: this machine
 * Errors:     WF_EIO (the file and the reason), WF_ENOMEM
 */
WF_API wf_status wf_topology_read(const char *xml, wf_topology *topology, wf_error *error);

/** wf_topology_print - writes "1 package, 2 cores, L2 1 MiB, L3 32 MiB, memory 23 GiB"; returns
 * text. */
WF_API char *wf_topology_print(const wf_topology *topology, char *text, size_t size);

WF_END_DECLS

#endif

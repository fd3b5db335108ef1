/* mesh/cluster/topology_internal.h - what is asked before hwloc reads a file. */
#ifndef WF_MESH_CLUSTER_TOPOLOGY_INTERNAL_H
#define WF_MESH_CLUSTER_TOPOLOGY_INTERNAL_H

#include "core/status.h"

/* Checks that hwloc can read a file: on a pipe it would wait for a writer. WF_EIO. */
wf_status wf_topology_file(const char *xml, wf_error *error);

#endif

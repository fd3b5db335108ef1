/* mesh/cluster/topology_internal.h - what is asked before hwloc reads a file. */
#ifndef WF_MESH_CLUSTER_TOPOLOGY_INTERNAL_H
#define WF_MESH_CLUSTER_TOPOLOGY_INTERNAL_H

#include "core/status.h"

/* Whether hwloc can read a file: it would wait for whoever writes to a pipe. WF_EIO. */
wf_status wf_topology_file(const char *xml, wf_error *error);

#endif

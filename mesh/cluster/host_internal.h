/* mesh/cluster/host_internal.h - a host while it is read through hwloc. Not installed. */
#ifndef WF_MESH_CLUSTER_HOST_INTERNAL_H
#define WF_MESH_CLUSTER_HOST_INTERNAL_H

#include "mesh/cluster/host.h"
#include <hwloc.h>

typedef struct wf_host_reader {
    const wf_host_options *options;
    hwloc_topology_t machine;
    wf_host *host;
    hwloc_obj_t *device, *nic; /* as in the host */
} wf_host_reader;

/* Returns the object that locates a device: itself, or the object that its bus hangs on. */
hwloc_obj_t wf_host_ancestor(const wf_host_reader *r, hwloc_obj_t object);
int wf_host_package(const wf_host_reader *r, hwloc_obj_t object);

/* Fill host->link, of every two devices. */
void wf_host_read_links(wf_host_reader *r);

/* Give each device a network card, when the links are known. Errors: WF_ENOMEM */
wf_status wf_host_choose_nics(wf_host_reader *r, wf_error *error);

#endif

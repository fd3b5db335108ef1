/*
 * mesh/cluster/host.h - a host as placement sees it: its devices, the link between any two of
 * them, and the network card nearest to each.
 *
 * A host is this machine, a file in hwloc's XML, or hwloc's synthetic text ("pack:2 core:8
 * pu:1"). A description knows of NVLink only where hwloc was built with NVML.
 */
#ifndef WF_MESH_CLUSTER_HOST_H
#define WF_MESH_CLUSTER_HOST_H

#include "core/status.h"
#include <stdbool.h>
#include <stdint.h>

WF_BEGIN_DECLS

enum { WF_HOST_NAME = 32, WF_HOST_MOST_DEVICES = 4096 };

/* Link between two devices, nearest first. */
typedef enum wf_link {
#define LINK(name, word, weight) WF_LINK_##name,
#include "mesh/cluster/links.def"
#undef LINK
    WF_LINKS
} wf_link;

typedef enum wf_device_choice {
    WF_DEVICES_AUTO, /* GPUs where there are any, else cores */
    WF_DEVICES_GPUS,
    WF_DEVICES_CORES
} wf_device_choice;

typedef struct wf_host_device {
    char name[WF_HOST_NAME]; /* "nvml0", "gpu0", "core0" */
    char bus[16];            /* PCI address; "" for a core */
    int package;             /* number in the host */
    int numa_node;
    int nic; /* the nearest; -1: the host has none */
    wf_link nic_link;
} wf_host_device;

typedef struct wf_host_nic {
    char name[WF_HOST_NAME]; /* "mlx5_0", "eth0" */
    int package;
} wf_host_nic;

typedef struct wf_host {
    bool gpus; /* devices are GPUs, not cores */
    int packages, numa_nodes, n_devices, n_nics;
    wf_host_device *device; /* [n_devices], in hwloc's order: neighbours are near */
    wf_host_nic *nic;       /* [n_nics]; only the InfiniBand ones, where there are such */
    uint8_t *link;          /* [n_devices][n_devices], a wf_link */
} wf_host;

typedef struct wf_host_options {
    const char *source; /* NULL: this machine; an XML file; or synthetic text */
    wf_device_choice devices;
    bool nvlink; /* all GPUs are one NVLink island, whether or not the description says so */
} wf_host_options;

/**
 * wf_host_read - reads the devices of a host
 *
 * Owner:   caller; wf_host_free
 * Errors:  WF_EIO (source, and why), WF_EINVAL (no such devices, or too many), WF_ENOMEM
 */
WF_API wf_status wf_host_read(const wf_host_options *options, wf_host **out, wf_error *error);

/** wf_host_free - frees a host; NULL is allowed. */
WF_API void wf_host_free(wf_host *host);

/** wf_host_link - returns the link between two devices of a host. */
WF_API wf_link wf_host_link(const wf_host *host, int a, int b);

/** wf_link_name - returns "nvlink", "network" and so on. Owner: static string. */
WF_API const char *wf_link_name(wf_link link);

/** wf_link_weight - returns the nominal picoseconds per byte of a link: see
 * mesh/cluster/links.def. */
WF_API double wf_link_weight(wf_link link);

WF_END_DECLS

#endif

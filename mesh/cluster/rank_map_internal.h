/*
 * mesh/cluster/rank_map_internal.h - which ranks run in which process, where a launcher started
 * several. Not installed.
 *
 * Each process sends all others which host it is on and which cores it may use, and the first
 * one of a host what lies between its cores. So all find the same placement
 * (mesh/cluster/placement.h) of the mesh, on hosts with as many seats as their processes run
 * ranks: whatever order the launcher gave, and however many processes each host has. Between
 * processes data passes memory, so no link there is nearer than WF_LINK_NUMA. Beyond 1,024
 * ranks they go to one host after the other.
 *
 * Ranks are then renamed along each axis, which brings none further from another, so that rank
 * 0 is in process 0: the one whose output a launcher shows first.
 */
#ifndef WF_MESH_CLUSTER_RANK_MAP_INTERNAL_H
#define WF_MESH_CLUSTER_RANK_MAP_INTERNAL_H

#include "mesh/cluster/placement.h"
#include "mesh/comm/transport_internal.h"

enum { WF_RANK_MAP_TEXT = 512 };

typedef struct wf_rank_map_options {
    int ranks;   /* ranks of the world */
    int threads; /* threads of a rank that want a core each; 0: not known */
    int n_axes;  /* axes of the mesh; 0: the launcher's order */
    const wf_placement_axis *axis;
    wf_rank_order order;
} wf_rank_map_options;

typedef struct wf_rank_map {
    int n;           /* ranks of this process */
    int *rank;       /* [n], ascending */
    int *local_rank; /* [n] their numbers among the ranks of this host, side by side */
    int sharing;     /* ranks that may use the same cores: of the host, or of this process */
    int *process;    /* [ranks of the world] which runs each */
    int local_processes; /* processes of this host */
    char *warning;       /* the cost of the placement, or NULL */
} wf_rank_map;

/* The processes of a world, and the call that brings together what they say. */
typedef struct wf_rank_map_peers {
    wf_processes all;
    wf_gather_call *gather;
    void *world; /* for gather */
} wf_rank_map_peers;

/* Collective over the processes; on success to be freed with wf_rank_map_free. */
wf_status wf_rank_map_find(const wf_rank_map_options *options, const wf_rank_map_peers *peers,
                           wf_rank_map *out, wf_error *error);

/* Makes the map that leaves no choice: n ranks from `first` on run here, process after process
   has as many, and the first of them is number `local` on its host. */
wf_status wf_rank_map_even(int ranks, int n, int first, int local, wf_rank_map *out,
                           wf_error *error);

void wf_rank_map_free(wf_rank_map *map);

#endif

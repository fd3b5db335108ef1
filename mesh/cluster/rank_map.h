/*
 * mesh/cluster/rank_map.h - which ranks run in which process, where a launcher started several. Not
 * installed.
 *
 * Each process tells all others which host it is on and which cores it may use, and the first one of
 * a host what lies between its cores. So all find the same placement (mesh/cluster/placement.h) of the
 * mesh, on hosts with as many seats as their processes run ranks: whatever order the launcher gave,
 * and however many processes each host has. Between processes data passes memory, so no link there
 * is nearer than WF_LINK_NUMA. Beyond 1,024 ranks they go to one host after the other.
 *
 * Ranks are then renamed along each axis, which brings none further from another, so that rank 0 is
 * in process 0: the one whose output a launcher shows first.
 */
#ifndef WF_MESH_CLUSTER_RANK_MAP_H
#define WF_MESH_CLUSTER_RANK_MAP_H

#include "mesh/cluster/launch.h"

enum { WF_SEATING_TEXT = 512 };

typedef struct wf_seating_wish {
    int ranks;   /* of the world */
    int threads; /* of a rank, that want a core each; 0: not known */
    int n_axes;  /* of the mesh; 0: the launcher's order */
    const wf_place_axis *axis;
    wf_rank_order order;
} wf_seating_wish;

typedef struct wf_seating {
    int n;         /* ranks of this process */
    int *rank;     /* [n], ascending */
    int *seat;     /* [n] their places among the ranks of this host, side by side */
    int sharing;   /* ranks that may use the same cores: of the host, or of this process */
    int *process;  /* [ranks of the world] which runs each */
    int local;     /* processes of this host */
    char *warning; /* what the placement costs, or NULL */
} wf_seating;

/* What all processes say, side by side: that of process p is at begin[p] .. begin[p + 1]. To be
   freed. */
typedef wf_status wf_gather_call(void *world, const void *mine, size_t bytes, char **all,
                                 size_t *begin, wf_error *error);

/* The processes that a transport joins. */
typedef struct wf_processes {
    int n, mine;
    int host; /* the number of the first process on the same host as this one */
    wf_gather_call *gather;
    void *world; /* for gather */
} wf_processes;

/* Collective over the processes; on success to be freed with wf_seating_free. */
wf_status wf_seating_find(const wf_seating_wish *wish, const wf_processes *processes,
                          wf_seating *out, wf_error *error);
void wf_seating_free(wf_seating *seating);

#endif

/* mesh/cluster/placement_internal.h - what the files of placement share. Not installed. */
#ifndef WF_MESH_CLUSTER_PLACEMENT_INTERNAL_H
#define WF_MESH_CLUSTER_PLACEMENT_INTERNAL_H

#include "mesh/cluster/placement.h"

/* Returns the link between two seats. */
static inline wf_link wf_seat_link(const wf_placement *p, wf_seat a, wf_seat b)
{
    return a.host != b.host ? WF_LINK_NETWORK
                            : wf_host_link(p->host[a.host], a.device, b.device);
}

/* Sets the axes of a placement, and their sizes. */
static inline void wf_placement_axes(wf_placement *p, int n, const wf_placement_axis *axis)
{
    p->n_axes = n;
    for (int i = 0; i < n; i++) {
        p->axis[i] = axis[i];
        p->size[i] = axis[i].size;
    }
}

/* Returns ranks from one coordinate along an axis to the next. */
static inline int wf_placement_stride(const wf_placement *p, int axis)
{
    return wf_grid_stride(p->n_axes, p->size, axis);
}

/* Returns the first rank of the group along an axis that a rank is in. */
static inline int wf_placement_first(const wf_placement *p, int rank, int axis)
{
    return wf_grid_first(p->n_axes, p->size, rank, axis);
}

/* Returns the worst link of the group of `size` ranks from `first` on; -1 for one rank. */
static inline int wf_placement_worst(const wf_placement *p, int first, int size, int stride)
{
    int worst = -1;

    for (int i = 0; i < size && worst < WF_LINK_NETWORK; i++)
        for (int j = 0; j < i; j++) {
            int link =
                (int)wf_seat_link(p, p->seat[first + i * stride], p->seat[first + j * stride]);

            worst = link > worst ? link : worst;
        }
    return worst;
}

/* Among all placements of these ranks on these seats (at most WF_PLACEMENT_EXHAUSTIVE), the
   others staying where they are, leave the cheapest in p->seat. Ranks ascend. */
void wf_placement_search(wf_placement *p, const int *rank, int ranks, const wf_seat *seat,
                         int seats);

/* Pack groups of axis `first`, then blocks along the others from the innermost outwards, into
   p->seat. */
wf_status wf_placement_pack(wf_placement *p, const wf_seat *seat, int seats, int first,
                            wf_error *error);

/* Change seats in p->seat, of two ranks or with one of `seats` that is free, as long as that is
   cheaper; for at most WF_PLACEMENT_SWAPS pairs of a rank and a seat. */
enum { WF_PLACEMENT_SWAPS = 1 << 15 };
wf_status wf_placement_swap(wf_placement *p, const wf_seat *seat, int seats, wf_error *error);

#endif

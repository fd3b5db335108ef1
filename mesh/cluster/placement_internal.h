/* mesh/cluster/placement_internal.h - what the files of placement share. Not installed. */
#ifndef WF_MESH_CLUSTER_PLACEMENT_INTERNAL_H
#define WF_MESH_CLUSTER_PLACEMENT_INTERNAL_H

#include "mesh/cluster/placement.h"

/* The link between two seats. */
static inline wf_link wf_seat_link(const wf_placement *p, wf_seat a, wf_seat b)
{
    return a.host != b.host ? WF_LINK_NETWORK
                            : wf_host_link(p->host[a.host], a.device, b.device);
}

/* Ranks from one coordinate along an axis to the next. */
static inline int wf_place_stride(const wf_placement *p, int axis)
{
    int stride = 1;

    for (int i = axis + 1; i < p->n_axes; i++)
        stride *= p->axis[i].size;
    return stride;
}

/* The first rank of the group along an axis that a rank is in. */
static inline int wf_place_first(int rank, int size, int stride)
{
    return rank - rank / stride % size * stride;
}

/* The worst link of the group of `size` ranks from `first` on; -1 for one rank. */
static inline int wf_place_worst(const wf_placement *p, int first, int size, int stride)
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

/* Among all placements of these ranks on these seats (at most WF_PLACE_EXHAUSTIVE), the others
   staying where they are, leave the cheapest in p->seat. Ranks ascend. */
void wf_place_search(wf_placement *p, const int *rank, int ranks, const wf_seat *seat,
                     int seats);

/* Pack groups of axis `first`, then blocks along the others from the innermost outwards, into
   p->seat. */
wf_status wf_place_pack(wf_placement *p, const wf_seat *seat, int seats, int first,
                        wf_error *error);

/* Change seats in p->seat, of two ranks or with one of `seats` that is free, as long as that is
   cheaper; for at most WF_PLACE_SWAPS pairs of a rank and a seat. */
enum { WF_PLACE_SWAPS = 1 << 15 };
wf_status wf_place_swap(wf_placement *p, const wf_seat *seat, int seats, wf_error *error);

#endif

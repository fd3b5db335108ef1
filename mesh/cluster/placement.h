/*
 * mesh/cluster/placement.h - placement: the device and host of each rank of a mesh.
 *
 * The cost of a placement, in picoseconds of all ranks together, is
 *
 *     sum over axes, over groups of ranks along the axis:
 *         ranks of the group * bytes that each receives * weight of the worst link between two
 *
 * and the cheapest placement is found; of equally cheap ones the one with low ranks on low
 * devices. Up to WF_PLACEMENT_EXHAUSTIVE devices it is found by search over all placements.
 * Beyond, groups of one axis are packed first, each where it fits most tightly, then these
 * blocks along the next axis, and so on; every axis is tried as the first, and within each host
 * of so few devices the search then chooses. That is tried on all hosts, and on as few as have
 * room; from the best of these, ranks then swap seats as long as that is cheaper (up to 32,768
 * pairs of a rank and a device).
 */
#ifndef WF_MESH_CLUSTER_PLACEMENT_H
#define WF_MESH_CLUSTER_PLACEMENT_H

#include "mesh/cluster/host.h"
#include "mesh/array/grid.h"

WF_BEGIN_DECLS

enum { WF_MAX_RANKS = 4096, WF_PLACEMENT_EXHAUSTIVE = 8 };

/* The order in which a launcher's processes get their ranks. */
typedef enum wf_rank_order {
    WF_ORDER_NEAR,    /* by the cheapest placement of the mesh */
    WF_ORDER_STARTED, /* the first process the first ranks, and so on */
    /* neighbours on the innermost axis as far from each other as those on the outermost could
       be: for comparison */
    WF_ORDER_TRANSPOSED
} wf_rank_order;

typedef struct wf_placement_axis {
    const char *name;
    int size;
    double bytes; /* those that a rank receives over it in a step */
} wf_placement_axis;

typedef struct wf_seat {
    int host, device;
} wf_seat;

typedef struct wf_placement {
    int n_hosts, n_axes, ranks;
    const wf_host *const *host; /* the caller's */
    wf_placement_axis axis[WF_MAX_AXES];
    int size[WF_MAX_AXES]; /* sizes of the axes, for mesh/array/grid.h */
    double weight[WF_LINKS];
    bool exhaustive;
    wf_seat *seat; /* [ranks] */
    double cost;
} wf_placement;

typedef struct wf_placement_options {
    int n_hosts, n_axes;
    const wf_host *const *host;    /* kept, not copied */
    const wf_placement_axis *axis; /* outermost first, as in wf_mesh_open; names are kept */
    /* The speed of a host's link, at most that of the links inside; 0: nominal. */
    double network_gbit;
} wf_placement_options;

/**
 * wf_placement_find - finds the cheapest placement, as above
 *
 * @param out   on success to be freed with wf_placement_free
 * Errors:      WF_EINVAL (fewer devices than ranks; sizes), WF_ENOMEM
 */
WF_API wf_status wf_placement_find(const wf_placement_options *options, wf_placement *out,
                                   wf_error *error);

/**
 * wf_placement_transposed - makes a placement on the same devices, but with the outermost axis
 * side by side and the innermost one spread, as a list of ranks in the wrong order gives
 *
 * Errors:  WF_ENOMEM
 */
WF_API wf_status wf_placement_transposed(const wf_placement *from, wf_placement *out,
                                         wf_error *error);

/** wf_placement_free - frees the arrays of a placement. */
WF_API void wf_placement_free(wf_placement *placement);

/** wf_placement_cost - returns the cost of any assignment of seats. */
WF_API double wf_placement_cost(const wf_placement *placement);

/** wf_placement_groups - counts the groups along an axis by their worst link. */
WF_API void wf_placement_groups(const wf_placement *placement, int axis, int count[WF_LINKS]);

/**
 * wf_placement_traffic - counts the bytes of a step by the link that they pass
 *
 * Every member of a group receives the same from each other member, as in Weft's collectives.
 *
 * @param bytes    [WF_LINKS] all hosts together
 * @param network  [n_hosts] that each host receives over the network; or NULL
 */
WF_API void wf_placement_traffic(const wf_placement *placement, double bytes[WF_LINKS],
                                 double *network);

/**
 * wf_placement_warning - describes a bad placement: groups of the innermost axis that do not
 * sit inside one host, and their cost
 *
 * Returns: text, or NULL where there is none
 *
 * Returns: text, or NULL where nothing is
 */
WF_API char *wf_placement_warning(const wf_placement *placement, char *text, size_t size);

WF_END_DECLS

#endif

/*
 * mesh/array/grid.h - the geometry of axes, as plain arithmetic: which coordinates a rank has,
 * and where axes cut a dim of a tensor. No rank has to run for it.
 *
 * A grid is given by the sizes of its n axes, outermost first: ranks along the last one are
 * neighbours.
 */
#ifndef WF_MESH_ARRAY_GRID_H
#define WF_MESH_ARRAY_GRID_H

#include "core/tensor.h"

WF_BEGIN_DECLS

enum { WF_MAX_AXES = 8, WF_AXIS_NAME = 16 };

/** wf_grid_ranks - returns the number of ranks of a grid. */
WF_API int64_t wf_grid_ranks(int n, const int *size);

/** wf_grid_stride - returns the distance in ranks of neighbours along an axis. */
WF_API int wf_grid_stride(int n, const int *size, int axis);

/** wf_grid_coordinate - returns a rank's coordinate along an axis. */
WF_API int wf_grid_coordinate(int n, const int *size, int rank, int axis);

/** wf_grid_first - returns the first rank of a rank's group along an axis. */
WF_API int wf_grid_first(int n, const int *size, int rank, int axis);

/** wf_grid_coordinates - fills in all n coordinates of a rank; wf_grid_rank - returns the rank
 * of coordinates. */
WF_API void wf_grid_coordinates(int n, const int *size, int64_t rank, int *coordinate);
WF_API int64_t wf_grid_rank(int n, const int *size, const int *coordinate);

/** wf_cutter - one of the axes that cut a dim together: its parts, and the index of one of them
 * (.index); a fine one ignores grains (wf_mesh_cut_finely). */
typedef struct wf_cutter {
    int64_t parts, index;
    bool fine;
} wf_cutter;

/**
 * wf_cut_together - returns where the part with these indices along n axes begins, the
 * outermost axis first
 *
 * Axes cut a dim together as one of all their parts does, which is wf_cut(size, grain, p1 * p2,
 * i1 * p2 + i2): 2 x 4 ranks have the cuts of 8, and p1 ranks alone those of every p2-th. From
 * the first fine axis of a dim of grains on, axes cut what those before them left, anywhere.
 *
 * @param axis  the index along the last one may be its `parts`, for where the part before it
 *              ends
 */
WF_API int64_t wf_cut_together(const wf_dim *dim, int n, const wf_cutter *axis);

/** wf_cut_along - computes wf_cut_together for every index along the last axis, whatever its
 * own is: cuts [its parts + 1] */
WF_API void wf_cut_along(const wf_dim *dim, int n, const wf_cutter *axis, int64_t *cuts);

/** wf_cut_largest - returns the indices in the largest part that n axes cut a dim into. */
WF_API int64_t wf_cut_largest(const wf_dim *dim, int n, const wf_cutter *axis);

WF_END_DECLS

#endif

/*
 * parallel/checkpoint/parts_internal.h - which rank of a saved mesh holds what part of a
 * tensor. All of it follows from (shape, mesh, layout), so a loader of another layout needs
 * nothing but those.
 */
#ifndef WF_PARALLEL_CHECKPOINT_PARTS_INTERNAL_H
#define WF_PARALLEL_CHECKPOINT_PARTS_INTERNAL_H

#include "mesh/array/mesh.h"
#include "core/files/part_internal.h"

/* A mesh as it was saved, without its ranks: outermost axis first. */
typedef struct wf_saved_mesh {
    int n_axes;
    char name[WF_MAX_AXES][WF_AXIS_NAME];
    int size[WF_MAX_AXES];
    bool fine[WF_MAX_AXES]; /* the axis cuts dims anywhere, also inside a grain */
    /* axes of a dim cut one after the other, as they did before format 2 of the index */
    bool nested;
} wf_saved_mesh;

/* The axes that split each dim, outermost first. */
typedef struct wf_saved_layout {
    int n_axes[WF_MAX_DIMS];
    int axis[WF_MAX_DIMS][WF_MAX_AXES];
    /* the coordinate on axis "pp" of the ranks that write it; -1: all ranks of it have
       copies */
    int pp;
} wf_saved_layout;

/* Returns the saved form of a mesh and of a layout of it (not partial); pp: as above. */
wf_saved_mesh wf_saved_mesh_of(const wf_mesh *mesh);
wf_saved_layout wf_saved_layout_of(const wf_layout *layout, int pp);

/* The axis of pipelines, "pp"; -1: it has none. */
int wf_saved_mesh_pp(const wf_saved_mesh *mesh);

/* Ranks of a mesh; the coordinates of one of them; the rank of coordinates. */
int64_t wf_saved_mesh_ranks(const wf_saved_mesh *mesh);
void wf_saved_mesh_coordinates(const wf_saved_mesh *mesh, int64_t rank, int *coordinate);
int64_t wf_saved_mesh_rank(const wf_saved_mesh *mesh, const int *coordinate);

/* The part that the rank of these coordinates holds. */
wf_part wf_saved_part(const wf_saved_mesh *mesh, const wf_saved_layout *layout, int ndim,
                      const wf_dim *dims, const int *coordinate);

/* Returns true where all ranks of two meshes that are alike but for `nested` hold the same
   parts of a tensor. */
bool wf_saved_same_parts(const wf_saved_mesh *a, const wf_saved_mesh *b,
                         const wf_saved_layout *layout, int ndim, const wf_dim *dims);

/*
 * Returns the rank that wrote the part of these coordinates: on axes that do not split the
 * tensor all ranks have copies, and they alternate by `number` of the tensor; of pipeline
 * ranks, that of layout->pp writes. coordinate is changed on those axes alone.
 */
int64_t wf_saved_writer(const wf_saved_mesh *mesh, const wf_saved_layout *layout, int ndim,
                        int64_t number, int *coordinate);

/*
 * Call `visit` with the coordinates of every different part that overlaps `mine` (copies once,
 * coordinates of axes that do not split are 0). Work grows with the parts that overlap and the
 * logarithm of the ranks. Stops at the first status that is not WF_OK and returns it.
 */
wf_status wf_saved_parts_visit(const wf_saved_mesh *mesh, const wf_saved_layout *layout,
                               int ndim, const wf_dim *dims, const wf_part *mine,
                               wf_status (*visit)(void *arg, const int *coordinate,
                                                  const wf_part *part),
                               void *arg);

#endif

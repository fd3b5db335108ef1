/* mesh/private.h - the inside of meshes and layouts. Not installed. */
#ifndef WF_MESH_PRIVATE_H
#define WF_MESH_PRIVATE_H

#include "core/private.h"
#include "mesh/mesh.h"

struct wf_layout {
    struct wf_layout *next; /* the mesh's list */
    const wf_mesh *mesh;
    int8_t n_axes[WF_MAX_DIMS];
    int8_t axis[WF_MAX_DIMS][WF_MAX_AXES]; /* ordered, outermost first */
    uint8_t sum, max;                      /* axes over which it is partial, a bit each */
};

struct wf_mesh {
    wf_context *ctx;
    wf_comm *world;
    int n_axes, ranks, rank;
    char name[WF_MAX_AXES][WF_AXIS_NAME];
    int size[WF_MAX_AXES];
    uint8_t fine; /* a bit per axis: its cuts ignore grains */
    wf_comm *comm[WF_MAX_AXES];
    wf_layout *layouts;
    void *gathered; /* what wf_mesh_gather brought last */
    size_t gathered_bytes;
};

/* The mesh's own copy of a layout; NULL where it is whole everywhere. */
const wf_layout *wf_layout_intern(wf_mesh *mesh, const wf_layout *layout);

/* A layout to change: a copy of `from`, or whole. */
wf_layout wf_layout_copy(const wf_mesh *mesh, const wf_layout *from);

/* Whether `axis` is the number of one. -1 never is; any other number that is none is an error of the
   mesh's context. */
bool wf_mesh_has_axis(const wf_mesh *mesh, int axis);

/* What an axis cuts a dim between. */
int64_t wf_mesh_grain(const wf_mesh *mesh, int axis, const wf_dim *dim);

/* Where an axis cuts n indices of a dim: part i begins at cut i. */
int64_t wf_mesh_cut(const wf_mesh *mesh, int axis, const wf_dim *dim, int64_t n, int i);

/* WF_ELAYOUT and a text where a tensor of ndim dims cannot have this layout. */
wf_status wf_layout_fits(wf_context *ctx, const wf_layout *layout, int ndim);

/* The same tensor in another layout, nothing recorded (mesh/redistribute.c). */
wf_tensor *wf_move_one(wf_tensor *x, const wf_layout *to);

/* The layouts of an op's outputs (mesh/rule.c). */
wf_status wf_layout_rule(const wf_call *call, const wf_signature *sig, const wf_layout **out);

#endif

/* mesh/array/array_internal.h - the inside of meshes and layouts. Not installed. */
#ifndef WF_MESH_ARRAY_ARRAY_INTERNAL_H
#define WF_MESH_ARRAY_ARRAY_INTERNAL_H

#include "core/context.h"
#include "core/distribution.h"
#include "core/signature.h"
#include "core/tape.h"
#include "mesh/array/mesh.h"

struct wf_layout {
    struct wf_layout *next; /* the mesh's list */
    const wf_mesh *mesh;
    int8_t n_axes[WF_MAX_DIMS];
    int8_t axis[WF_MAX_DIMS][WF_MAX_AXES]; /* ordered, outermost first */
    uint8_t sum, max;                      /* axes over which it is partial, a bit each */
};

typedef struct wf_rows_flight wf_rows_flight;

struct wf_mesh {
    wf_context *ctx;
    wf_comm *world;
    int n_axes, ranks, rank;
    char name[WF_MAX_AXES][WF_AXIS_NAME];
    int size[WF_MAX_AXES];
    uint8_t sharing; /* a bit per axis: wf_mesh_shares_model */
    uint8_t fine;    /* a bit per axis: its cuts ignore grains */
    wf_comm *comm[WF_MAX_AXES];
    wf_layout *layouts;
    wf_rows_flight *rows; /* moves of rows that were begun (rows_border.c) .. */
    void (*forget_rows)(struct wf_mesh *mesh); /* .. and what frees them */
    void *gathered;                            /* the result of the last wf_mesh_gather */
    size_t gathered_bytes;
};

/* wf_mesh_open without the context's table (distribution.c). */
wf_mesh *wf_mesh_new(wf_context *ctx, wf_comm *world, int n_axes, const wf_axis *axes,
                     wf_error *error);

/* Returns the mesh's own copy of a layout; NULL where it is whole everywhere. */
const wf_layout *wf_layout_intern(wf_mesh *mesh, const wf_layout *layout);

/* Returns a layout to change: a copy of `from`, or whole. */
wf_layout wf_layout_copy(const wf_mesh *mesh, const wf_layout *from);

/* Returns the layout in which the axes of dim i split dim `to`, after its own; none where that
   is below 0. */
const wf_layout *wf_layout_resplit(wf_mesh *mesh, const wf_layout *from, int i, int to);

/* Returns true where `axis` is the number of an axis. -1 never is; any other number that is
   none is an error of the mesh's context. */
bool wf_mesh_has_axis(const wf_mesh *mesh, int axis);

/* Lists the axes that cut dim i in a layout, with a rank's coordinates on them; returns how
   many. */
int wf_layout_cutters(const wf_mesh *mesh, const wf_layout *layout, int i, int rank,
                      wf_cutter axis[WF_MAX_AXES]);

/* Returns `layout`, but split on these axes as `like` is; dim d of `like` is dim d + `after`
   of it. */
const wf_layout *wf_layout_as_on(wf_mesh *mesh, unsigned axes, const wf_layout *like,
                                 const wf_layout *layout, int after);

/* Checks that a tensor of ndim dims can have this layout; else WF_ELAYOUT and a text. */
wf_status wf_layout_fits(wf_context *ctx, const wf_layout *layout, int ndim);

/* Returns the same tensor in another layout, nothing recorded, for a caller that only reads it
   (mesh/array/redistribute.c). */
wf_tensor *wf_move_one(wf_tensor *x, const wf_layout *to);

/* Decides the layouts of an op's outputs (mesh/array/sharding_rule.c). */
wf_status wf_layout_rule(const wf_call *call, const wf_signature *sig, const wf_layout **out);
/* Checks a view's layout: WF_ELAYOUT where some rank's part of the operand is not its part of
   the view: an axis that is cut finely may cut inside of what the view shows as one. */
wf_status wf_layout_view(const wf_call *call, const wf_signature *sig, const wf_layout *layout,
                         const wf_dim *dims);

/* Returns true for an op with WF_OP_PICKED whose partial operands are sums alike, the last one
   among them; with WF_OP_EXPERTS, over the axes that split the experts of the first operand:
   rows of choices, each of which the rank of its expert has, and reads. */
bool wf_layout_is_picked(const wf_call *call);

/* Returns the letters that output o is a sum over, a bit each; a sum over ranks where axes
   split them. */
uint32_t wf_layout_summed(const wf_call *call, const wf_signature *sig, int o);

/* Returns in how many parts a layout cuts a dim, where all of them are of one size; 0: they are
   not. */
int64_t wf_layout_even_parts(const wf_layout *layout, int d, const wf_dim *dim);

/* Reports to the context where outputs of these layouts are not the sums of one rank
   (mesh/array/exact.c). */
void wf_layout_report_sums(const wf_call *call, const wf_signature *sig,
                           const wf_layout *const *out);

#endif

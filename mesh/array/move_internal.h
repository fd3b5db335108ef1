/* mesh/array/move_internal.h - the steps of a redistribution. Not installed. */
#ifndef WF_MESH_ARRAY_MOVE_INTERNAL_H
#define WF_MESH_ARRAY_MOVE_INTERNAL_H

#include "mesh/array/array_internal.h"

enum { WF_MOVE_SLICE = WF_COLLECTIVE_KINDS, WF_MOVE_PARTIAL }; /* steps that move nothing */

typedef struct wf_move_step {
    int kind; /* a wf_collective_kind or one of the above */
    wf_reduction reduction;
    int axis;
    int from_dim; /* all-gather, all-to-all: the dim that the axis splits now */
    int dim;      /* the dim that the axis splits then; -1 for none */
} wf_move_step;

/* The next step on the way, false where there is none left. */
bool wf_move_next(wf_mesh *mesh, const wf_layout *from, const wf_layout *to,
                  wf_move_step *step);

#endif

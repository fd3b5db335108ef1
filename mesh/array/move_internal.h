/* mesh/array/move_internal.h - the steps of a redistribution. Not installed. */
#ifndef WF_MESH_ARRAY_MOVE_INTERNAL_H
#define WF_MESH_ARRAY_MOVE_INTERNAL_H

#include "core/nf4_tensor.h"
#include "mesh/array/array_internal.h"

enum { WF_MOVE_SLICE = WF_COLLECTIVE_KINDS, WF_MOVE_PARTIAL }; /* steps that move nothing */

typedef struct wf_move_step {
    int kind; /* a wf_collective_kind or one of the above */
    wf_reduction reduction;
    int axis;
    int from_dim; /* all-gather, all-to-all: the dim that the axis splits now */
    int dim;      /* the dim that the axis splits then; -1 for none */
} wf_move_step;

/* Finds the next step between two layouts, false where there is none left. */
bool wf_move_next(wf_mesh *mesh, const wf_layout *from, const wf_layout *to,
                  wf_move_step *step);

/* Returns the dim by which t is scattered over an axis on its way to be whole: of those that no
   axis splits, since another axis inside of one would be gathered and split anew, the outermost
   one that all members have as much of, so that parts lie in few rows; else the longest. */
int wf_move_scatter_dim(const wf_tensor *t, int axis);

/* Returns the layout of t after a step; its type in that layout: a sum that is scattered is
   rounded where it is stored, if that completes it; and whether t may take the step: WF_EDTYPE,
   WF_ELAYOUT, in the context. */
const wf_layout *wf_move_layout(const wf_move_step *step, const wf_tensor *t);
wf_dtype wf_move_dtype(const wf_move_step *step, const wf_tensor *t, const wf_layout *layout);
wf_status wf_move_check(const wf_move_step *step, const wf_tensor *t);

/* Return the elements that this rank holds in the dims before `dim`, and in those after it;
   after the rows of nf4, bytes. */
static inline int64_t wf_outer_count(const wf_tensor *t, int dim)
{
    int64_t n = 1;

    for (int i = 0; i < dim; i++)
        n *= t->local[i];
    return n;
}

static inline int64_t wf_inner_count(const wf_tensor *t, int dim)
{
    int64_t n = 1;

    if (t->dtype == WF_NF4) {
        const wf_nf4_part part = wf_nf4_part_of(t);

        n = (int64_t)wf_nf4_row_bytes(&part);
        for (int i = dim + 1; i < t->ndim - 1; i++)
            n *= t->local[i];
        return n;
    }
    for (int i = dim + 1; i < t->ndim; i++)
        n *= t->local[i];
    return n;
}

/* Returns the tensor after a step, in memory that all members see, where the step leaves all of
   them the same and they are threads of one process; NULL: it is to be this rank's own, or
   there is an error. */
wf_tensor *wf_move_shared(wf_context *ctx, const wf_move_step *step, const wf_tensor *t,
                          const wf_layout *layout);

/* Moves tensors like wf_move_run, for results that modules only read: where members of a group
   are threads of one process, a tensor that is whole on all of them is one memory that they
   share (core/sharing.h). */
wf_status wf_move_border(wf_context *ctx, int64_t count, wf_tensor *const *x,
                         const wf_layout *const *to, wf_tensor **y);

/* Begins a move like wf_move_begin. Not `background`: nothing is computed beside it, and no
   thread works on it. shares: results are only read, as in wf_move_border. */
wf_move *wf_move_start(wf_context *ctx, int64_t count, wf_tensor *const *x,
                       const wf_layout *const *to, bool background, bool shares);

/* Moves rows in blocks where wf_context_options.row_block says so: a product's, which is
   computed block by block, beside these moves; or a gather's, whose rows come later. NULL: it
   is neither, or there are errors. */
wf_tensor *wf_move_by_blocks(wf_tensor *x, const wf_layout *to);

/* Begins to gather rows of x, of dim 1, all at once; they come later. NULL: it is no such
   gather, or there are errors. */
wf_tensor *wf_gather_later(wf_tensor *x, const wf_layout *to);

/* Fill y, the tensor after a step that moves nothing, from x; nothing to do in a plan. */
void wf_move_local(wf_context *ctx, const wf_move_step *step, const wf_tensor *x, wf_tensor *y);

#endif

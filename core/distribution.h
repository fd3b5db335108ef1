/*
 * core/distribution.h - a mesh as a context sees it: a table of functions that give dispatch
 * the layouts of an op's outputs and the part of a tensor that this rank holds. Core passes
 * layouts on without looking inside.
 */
#ifndef WF_CORE_DISTRIBUTION_H
#define WF_CORE_DISTRIBUTION_H

#include "core/shape.h"

WF_BEGIN_DECLS

typedef struct wf_call wf_call;           /* core/op.h */
typedef struct wf_signature wf_signature; /* core/signature.h */

/** wf_distribution - the functions of a mesh that dispatch calls; a context of one rank has
 * none. */
typedef struct wf_distribution {
    /* Computes the layouts of the outputs of a call, or WF_ELAYOUT with both layouts and a
       remedy. */
    wf_status (*rule)(const wf_call *call, const wf_signature *sig, const wf_layout **out);
    /* Checks that a rank's part of a view's operand is its part of the view, on all ranks;
       WF_ELAYOUT. */
    wf_status (*view)(const wf_call *call, const wf_signature *sig, const wf_layout *layout,
                      const wf_dim *dims);
    /* Computes the part [start, start + local) of dim i of a shape that this rank holds. */
    void (*part)(const wf_layout *layout, int i, const wf_dim *dim, int64_t *start,
                 int64_t *local);
    /* Returns the number of parts of dim i. */
    int64_t (*parts)(const wf_layout *layout, int i);
    /* Returns the layout in which the axes of dim `from` split dim `to`, after its own; none
       where that is below 0. */
    const wf_layout *(*resplit)(void *mesh, const wf_layout *layout, int from, int to);
    /* Prints a layout: "[batch/shard, *, width/tp] partial(tp)". */
    void (*print)(const wf_layout *layout, char *text, size_t size);
    /* Redistributes a tensor, nothing recorded on the tape. */
    wf_tensor *(*move)(wf_tensor *x, const wf_layout *to);
    /* Begins to, where that is a gather of rows; the result's rows come later (core/later.h).
       NULL where it is none, or on errors. */
    wf_tensor *(*gather_later)(wf_tensor *x, const wf_layout *to);
    /* Returns the number of ranks that compute the same as this one in a call, 1 or more. */
    double (*alike)(const void *mesh, const wf_call *call);
    /* Returns true for a layout with a sum or maximum still to be taken. */
    bool (*partial)(const wf_layout *layout);
    /* Returns the layout of what such a sum or maximum gives. */
    const wf_layout *(*complete)(void *mesh, const wf_layout *layout);
} wf_distribution;

/**
 * wf_distribution_set - sets the table that is asked about layouts from now on
 *
 * @param distribution  the caller's, and there as long as the context; NULL: every tensor is
 *                      whole
 * @param mesh          what wf_distribution_mesh gives then; the caller's
 */
WF_API void wf_distribution_set(wf_context *ctx, const wf_distribution *distribution,
                                void *mesh);

/** wf_distribution_mesh - returns the mesh that wf_distribution_set was given last; NULL:
 * none. */
WF_API void *wf_distribution_mesh(const wf_context *ctx);

/** wf_parts_of - returns the number of parts of a tensor's dim: 1 where ranks do not split
 * it. */
WF_API int64_t wf_parts_of(const wf_tensor *t, int dim);

/** wf_scope_adopt - makes the innermost open scope the owner of a tensor that the caller
 * retains, and returns it; NULL where there is no memory to note it: t is then released. */
WF_API wf_tensor *wf_scope_adopt(wf_context *ctx, wf_tensor *t);

/** wf_completed - returns the whole sum or maximum that ranks hold terms of, or t itself where
 * it is none; nothing is recorded. Collective there. Owner: the innermost scope. */
WF_API wf_tensor *wf_completed(wf_tensor *t);

/** wf_resplit - moves t to where the ranks that split dim `from` split dim `to` instead, or
 * none where that is below 0; returns t itself where no ranks do. Nothing is recorded.
 * Collective there. Owner: the innermost scope. */
WF_API wf_tensor *wf_resplit(wf_tensor *t, int from, int to);

/** wf_laid_out_as - returns t, [..] of another tensor's shape, moved to its layout. Nothing is
 * recorded. Collective where ranks have to meet. Owner: the innermost scope. */
WF_API wf_tensor *wf_laid_out_as(wf_tensor *t, const wf_tensor *like);

/** wf_rounded - returns a complete sum as it is stored: t itself, or t rounded to t->rounds_to.
 * Owner: the innermost scope. */
WF_API wf_tensor *wf_rounded(wf_tensor *t);

WF_END_DECLS

#endif

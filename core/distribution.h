/*
 * core/distribution.h - what a mesh is to a context: a table of functions that tell dispatch
 * which layouts an op's outputs have and which part of a tensor is here. Core passes layouts on
 * without looking inside.
 */
#ifndef WF_CORE_DISTRIBUTION_H
#define WF_CORE_DISTRIBUTION_H

#include "core/shape.h"

WF_BEGIN_DECLS

typedef struct wf_call wf_call;           /* core/op.h */
typedef struct wf_signature wf_signature; /* core/signature.h */

/** wf_distribution - what a mesh does for dispatch; a context of one rank has none. */
typedef struct wf_distribution {
    /* Layouts of the outputs of a call, or WF_ELAYOUT with both layouts and the way out. */
    wf_status (*rule)(const wf_call *call, const wf_signature *sig, const wf_layout **out);
    /* Whether a rank's part of a view's operand is its part of the view, on all ranks;
       WF_ELAYOUT. */
    wf_status (*view)(const wf_call *call, const wf_signature *sig, const wf_layout *layout,
                      const wf_dim *dims);
    /* The part [start, start + local) of dim i of a shape that this rank holds. */
    void (*part)(const wf_layout *layout, int i, const wf_dim *dim, int64_t *start,
                 int64_t *local);
    /* In how many parts dim i is cut. */
    int64_t (*parts)(const wf_layout *layout, int i);
    /* For instance "[batch/shard, *, width/tp] partial(tp)". */
    void (*print)(const wf_layout *layout, char *text, size_t size);
    /* The same tensor in another layout, nothing recorded. */
    wf_tensor *(*move)(wf_tensor *x, const wf_layout *to);
    /* How many ranks compute the same as this one in a call, 1 or more. */
    double (*alike)(const void *mesh, const wf_call *call);
    /* True where a tensor of this layout still has a sum or max to be taken. */
    bool (*partial)(const wf_layout *layout);
} wf_distribution;

/**
 * wf_distribution_set - have this table asked about layouts from now on
 *
 * @param distribution  the caller's, and there as long as the context; NULL: every tensor is
 *                      whole
 * @param mesh          what wf_distribution_mesh gives then; the caller's
 */
WF_API void wf_distribution_set(wf_context *ctx, const wf_distribution *distribution,
                                void *mesh);

/** wf_distribution_mesh - the mesh that wf_distribution_set was called with last; NULL:
 * none. */
WF_API void *wf_distribution_mesh(const wf_context *ctx);

/** wf_scope_adopt - make the innermost open scope the owner of a tensor that the caller
 * retains, or NULL where there is no memory to note it: t is then released. Returns t. */
WF_API wf_tensor *wf_scope_adopt(wf_context *ctx, wf_tensor *t);

/** wf_rounded - a sum that is complete, as it is stored: t itself, or t rounded to
 * t->rounds_to. Owner: the innermost scope. */
WF_API wf_tensor *wf_rounded(wf_tensor *t);

WF_END_DECLS

#endif

/* mesh/array/move_shared.c - what a step leaves whole on all members of a group, in memory that
   all of them see. */
#include "core/sharing.h"
#include "mesh/array/move_internal.h"

/* Bytes from which on one memory for all members is worth its bookkeeping. */
enum { WORTH_SHARING = 1 << 10 };

wf_tensor *wf_move_shared(wf_context *ctx, const wf_move_step *step, const wf_tensor *t,
                          const wf_layout *layout)
{
    const wf_mesh *mesh = wf_mesh_of(ctx);
    wf_comm *comm = mesh->comm[step->axis];
    int64_t start[WF_MAX_DIMS], local[WF_MAX_DIMS];
    size_t bytes;
    wf_error error = {WF_OK, ""};
    wf_shared *shared = NULL;

    if (wf_context_device(ctx)->memory ||
        (step->kind != WF_ALL_REDUCE && step->kind != WF_ALL_GATHER))
        return NULL;
    for (int d = 0; d < t->ndim; d++) {
        start[d] = 0;
        local[d] = t->dim[d].size;
        if (layout)
            wf_layout_part(mesh, layout, d, &t->dim[d], mesh->rank, &start[d], &local[d]);
    }
    bytes = wf_local_bytes(t->dtype, t->ndim, t->dim, start, local);
    if (bytes >= WORTH_SHARING && wf_comm_share(comm, bytes, &shared, &error) != WF_OK)
        wf_fail(ctx, error.code, "redistribute: %s", error.text);
    return shared ? wf_tensor_shared(t, layout, wf_context_memory_kind_now(ctx), shared,
                                     wf_comm_rank(comm))
                  : NULL;
}

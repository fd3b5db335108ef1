/* parallel/train/verify.c - what a rank holds beside its buddy's copy of it; see train.h. */
#include "core/host_data.h"
#include "core/numerics/digest.h"
#include "parallel/agree_internal.h"
#include "parallel/train/measure_internal.h"
#include "parallel/train/train_internal.h"
#include <inttypes.h>
#include <stdlib.h>

/* Returns the digest of a copy, equal to that of the part of the tensor that it copies. */
static uint64_t digest_copy(const wf_nn_parameter *p, const wf_par_buddy *copy, int kind)
{
    int64_t size[WF_MAX_DIMS];
    wf_host_data view;
    const float *data = wf_data_read_f32(copy->tensor[kind], &view);
    uint64_t digest = 0;

    for (int d = 0; d < p->tensor->ndim; d++)
        size[d] = p->tensor->dim[d].size;
    if (data)
        digest = wf_digest_part(wf_digest_path(p->path), (uint32_t)kind, p->tensor->ndim, size,
                                copy->start, copy->local, data);
    wf_data_close(&view);
    return digest;
}

/* The digests of the originals on one axis go to the buddies, who look at their copies. */
static wf_status compare(wf_par_trainer *t, int axis, uint64_t *mine, uint64_t *before,
                         wf_error *error)
{
    int64_t n;
    const wf_par_buddy *list = wf_par_buddies_list(t->buddies, &n);

    for (int64_t k = 0; k < n; k++)
        for (int kind = 0; kind < WF_PAR_KINDS; kind++) {
            const wf_nn_parameter *p = t->parameter[list[k].i];
            const wf_tensor *own = wf_par_kept(p, t->optimizer, list[k].i, kind);

            mine[k * WF_PAR_KINDS + kind] =
                own && list[k].axis == axis ? wf_par_digest_held(own, p->path, (uint32_t)kind)
                                            : 0;
        }
    if (wf_par_buddies_pass(t->buddies, axis, mine, before,
                            (size_t)n * WF_PAR_KINDS * sizeof *mine) != WF_OK)
        return wf_context_status(t->par->ctx);
    for (int64_t k = 0; k < n && error->code == WF_OK; k++)
        for (int kind = 0; kind < WF_PAR_KINDS && error->code == WF_OK; kind++) {
            const wf_nn_parameter *p = t->parameter[list[k].i];
            uint64_t theirs = before[k * WF_PAR_KINDS + kind], copied;

            if (list[k].axis != axis || !list[k].tensor[kind])
                continue;
            copied = digest_copy(p, &list[k], kind);
            if (copied != theirs)
                wf_error_set(
                    error, WF_EDATA,
                    "rank %d and its buddy, rank %d, do not hold the same %s%s%s after "
                    "step %" PRId64 ": digests %016" PRIx64 " and %016" PRIx64
                    "; memory or arithmetic of one of them is wrong, and a replay from "
                    "an earlier checkpoint shows which",
                    wf_par_buddies_before(t->buddies, axis), wf_context_rank(t->par->ctx),
                    kind ? wf_nn_kept_words(kind) : "", kind ? " of " : "", p->path,
                    t->committed.step, theirs, copied);
        }
    return error->code;
}

wf_status wf_par_trainer_verify(wf_par_trainer *t)
{
    wf_context *ctx;
    wf_error error = {WF_OK, ""};
    uint64_t *digest;
    int64_t n;

    if (!t)
        return WF_EINVAL;
    ctx = t->par->ctx;
    if (!t->buddies)
        return wf_fail(ctx, WF_EINVAL,
                       "a trainer without buddies (WF_PAR_REDUNDANCY_BUDDY) has no copies that "
                       "could be compared");
    wf_par_buddies_list(t->buddies, &n);
    digest = calloc(2 * (size_t)n * WF_PAR_KINDS + 1, sizeof *digest);
    if (!digest)
        wf_fail(ctx, WF_ENOMEM, "no memory for the digests of %" PRId64 " shards", n);
    for (int axis = 0; digest && t->mirrored && axis < wf_mesh_axes(t->par->mesh); axis++)
        if (wf_par_is_dp(t->par, axis) && wf_context_status(ctx) == WF_OK)
            compare(t, axis, digest, digest + n * WF_PAR_KINDS, &error);
    free(digest);
    if (wf_context_status(ctx) == WF_OK && wf_agree(t->par, 0, NULL, &error) != WF_OK &&
        wf_context_status(ctx) == WF_OK)
        wf_fail(ctx, error.code, "%s", error.text);
    return wf_context_status(ctx);
}

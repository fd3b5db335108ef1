/* parallel/measure.c - global norm and digest. */
#include "parallel/measure.h"
#include "core/digest.h"
#include "core/exact_sum.h"
#include "core/host_data.h"
#include "parallel/strategy.h"
#include <math.h>
#include <string.h>

bool wf_par_counts_here(const wf_mesh *mesh, const wf_tensor *t)
{
    for (int axis = 0; axis < wf_mesh_axes(mesh); axis++)
        if (wf_layout_split_dim(t->layout, axis) < 0 && wf_mesh_coordinate(mesh, axis) != 0)
            return false;
    return true;
}

static void add_squares(wf_tensor *t, wf_exact_sum *sum)
{
    wf_context *ctx = t->ctx;
    wf_device *device = wf_context_device(ctx);
    wf_memory_kind kind = wf_context_memory_kind(ctx, WF_MEMORY_WORKSPACE);

    wf_scope_open(ctx);
    if (t->dtype != device->dtype)
        t = wf_cast(t, device->dtype);
    if (t && (device->far || !wf_context_planning(ctx))) /* a far one counts its workspace */
        device->sum_squares(t, sum);
    wf_scope_close(ctx);
    wf_context_memory_kind(ctx, kind);
}

wf_status wf_par_norm(wf_par *par, int64_t count, wf_tensor *const *tensor, double *norm)
{
    wf_exact_sum sum, total;
    const wf_exact_sum *all;

    memset(&sum, 0, sizeof sum);
    for (int64_t i = 0; i < count; i++)
        if (tensor[i] && wf_par_counts_here(par->mesh, tensor[i]))
            add_squares(tensor[i], &sum);
    if (wf_context_status(par->ctx) != WF_OK)
        return wf_context_status(par->ctx);
    all = wf_mesh_gather(par->mesh, &sum, sizeof sum);
    if (!all)
        return wf_context_status(par->ctx);
    total = all[0];
    for (int i = 1; i < wf_mesh_ranks(par->mesh); i++)
        wf_exact_merge(&total, &all[i]);
    *norm = sqrt(wf_exact_value(&total));
    return WF_OK;
}

static uint64_t digest_tensor(const wf_tensor *t, uint64_t path, uint32_t kind)
{
    int64_t size[WF_MAX_DIMS];
    wf_host_data view;
    const float *data = wf_data_read(t, &view);
    uint64_t digest = 0;

    for (int i = 0; i < t->ndim; i++)
        size[i] = t->dim[i].size;
    if (data)
        digest = wf_digest_part(path, kind, t->ndim, size, t->start, t->local, data);
    wf_data_close(&view);
    return digest;
}

wf_status wf_par_digest(wf_par *par, int64_t count, wf_nn_parameter *const *parameter,
                        const wf_nn_optimizer *optimizer, uint64_t *digest)
{
    uint64_t sum = 0;
    const uint64_t *all;

    if (wf_context_planning(par->ctx))
        return wf_fail(
            par->ctx, WF_EINVAL,
            "a plan has no values, and so no digest: open a context that does not plan");
    for (int64_t i = 0; i < count; i++) {
        uint64_t path = wf_digest_path(parameter[i]->path);

        if (wf_par_counts_here(par->mesh, parameter[i]->tensor))
            sum += digest_tensor(parameter[i]->tensor, path, 0);
        for (uint32_t k = 0; optimizer && k < 2; k++) {
            const wf_tensor *m = wf_nn_optimizer_moment(optimizer, i, (int)k);

            if (m && wf_par_counts_here(par->mesh, m))
                sum += digest_tensor(m, path, k + 1);
        }
    }
    all = wf_mesh_gather(par->mesh, &sum, sizeof sum);
    if (!all)
        return wf_context_status(par->ctx);
    *digest = 0;
    for (int i = 0; i < wf_mesh_ranks(par->mesh); i++)
        *digest += all[i];
    return WF_OK;
}

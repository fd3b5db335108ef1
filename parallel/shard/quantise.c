/* parallel/shard/quantise.c - see the header. */
#include "parallel/shard/quantise_internal.h"
#include "core/host_data.h"
#include "core/nf4_tensor.h"
#include <math.h>

/* The largest magnitudes of all blocks, as far as this rank has numbers of them. */
static wf_tensor *own_absmax(wf_par *par, const wf_tensor *t, const float *values)
{
    const wf_nf4_part part = wf_nf4_part_of(t);
    wf_dim blocks = wf_dim_width(wf_nf4_blocks(wf_tensor_count(t)));
    const wf_layout *layout = NULL;
    wf_host_data view;
    wf_tensor *absmax;
    float *to;

    for (int axis = 0; axis < wf_mesh_axes(par->mesh); axis++)
        if (wf_layout_split_dim(t->layout, axis) >= 0)
            layout = wf_layout_partial(par->mesh, layout, axis, WF_REDUCE_MAX);
    absmax = wf_tensor_new(par->ctx, WF_F32, 1, &blocks, layout, WF_MEMORY_WORKSPACE);
    if (!absmax || wf_context_dry_run(par->ctx))
        return absmax;
    to = wf_data_write(absmax, false, &view);
    if (to)
        wf_nf4_absmax(&part, values, to);
    wf_data_close(&view);
    return absmax;
}

static wf_status check(wf_context *ctx, int64_t blocks, const float *absmax)
{
    for (int64_t b = 0; b < blocks; b++)
        if (!isfinite(absmax[b]))
            return wf_fail(ctx, WF_EDATA,
                           "numbers %lld to %lld of a matrix have one that is not finite, and "
                           "nf4 has no such: store it as bf16",
                           (long long)b * WF_NF4_BLOCK, (long long)(b + 1) * WF_NF4_BLOCK - 1);
    return WF_OK;
}

wf_status wf_par_quantise(wf_par *par, wf_tensor *nf4, const float *values)
{
    const wf_layout *whole = NULL;
    wf_host_data view;
    const float *absmax;
    wf_tensor *own, *all = NULL;

    wf_scope_open(par->ctx);
    own = own_absmax(par, nf4, values);
    if (own && wf_par_move_run(par, WF_MEMORY_WORKSPACE, 1, &own, &whole, &all) == WF_OK &&
        !wf_context_dry_run(par->ctx)) {
        absmax = wf_data_read(all, &view);
        if (absmax && check(par->ctx, wf_tensor_count(all), absmax) == WF_OK)
            wf_nf4_store(nf4, values, absmax);
        wf_data_close(&view);
    }
    wf_scope_close(par->ctx);
    return wf_context_status(par->ctx);
}

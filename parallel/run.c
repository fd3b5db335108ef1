/* parallel/run.c - opening a rank's part of a run. */
#include "parallel/run.h"
#include "kernels/devices.h"
#include "parallel/parallel_internal.h"
#include "core/dtype.h"
#include "core/files/scratch.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void wf_par_report_axis(wf_par *par, int axis)
{
    int size = wf_mesh_size(par->mesh, axis), chunks = wf_context_chunks(par->ctx);

    if (size > chunks && chunks < WF_MAX_CHUNKS)
        wf_context_report_inexact(par->ctx, "not layout-exact: %s %d is above exact_tp %d",
                                  wf_mesh_axis_name(par->mesh, axis), size, chunks);
    else if (chunks % size)
        wf_context_report_inexact(par->ctx,
                                  "not layout-exact: %s %d does not nest in the %d chunks",
                                  wf_mesh_axis_name(par->mesh, axis), size, chunks);
}

/* Finds reasons against exactness that are known without a batch: a trainer judges how that is
   split. */
static void find_inexact(wf_par *par)
{
    const wf_par_options *o = &par->options;

    if (o->exact_off)
        wf_context_report_inexact(par->ctx, "not layout-exact: exact is off");
    else if (wf_dtype_is_narrow(o->reduce_dtype))
        wf_context_report_inexact(
            par->ctx, "not layout-exact: gradients are rounded to %s before ranks sum them",
            wf_dtype_name(o->reduce_dtype));
    if (!o->axes)
        wf_par_report_axis(par, wf_mesh_axis(par->mesh, "tp"));
}

static wf_status check_ranks(const wf_par_options *o, int ranks, wf_error *error)
{
    if (o->axes || wf_par_ranks(o) == ranks)
        return WF_OK;
    return wf_error_set(error, WF_EINVAL,
                        "pp %d x tp %d x dp %d%s%.0d is %lld ranks, but %d were started", o->pp,
                        o->tp, o->dp, o->cp > 1 ? " x cp " : "", o->cp > 1 ? o->cp : 0,
                        (long long)wf_par_ranks(o), ranks);
}

static wf_device *open_device(const wf_par_options *o, const wf_rank *rank, wf_error *error)
{
    bool threads = strcmp(wf_comm_transport(rank->world), "threads") == 0;

    return wf_device_open(o->device,
                          &(wf_device_options){.threads = o->threads,
                                               .local_rank = rank->local_rank,
                                               .local_size = rank->local_size,
                                               .in_place = threads,
                                               .plan = o->plan,
                                               .tf32 = o->tf32,
                                               .cuda_graph = o->cuda_graph},
                          error);
}

static wf_status check_base(const wf_par_options *o, const wf_device *device, wf_error *error)
{
    if (o->base_dtype != WF_NF4 || device->widen_nf4)
        return WF_OK;
    return wf_error_set(error, WF_EUNSUPPORTED,
                        "device %s takes no matrices in 4 bits (nf4): store what is frozen as "
                        "bf16, or use device cpu",
                        device->name);
}

static bool open_context(wf_par *par, const wf_rank *rank, wf_error *error)
{
    const wf_par_options *o = &par->options;
    const bool files = o->offload_dir && !o->plan; /* a plan makes no folder */
    wf_allocator scratch = {.alloc = NULL};
    wf_device *device;

    if (files && !(par->scratch = wf_scratch_open(o->offload_dir, error)))
        return false;
    if (files)
        scratch = wf_scratch_allocator(par->scratch);
    device = open_device(o, rank, error);
    if (device && o->allocator)
        device->allocator = *o->allocator;
    par->ctx = wf_context_open(device,
                               &(wf_context_options){.rank = rank->index,
                                                     .memory_limit = o->memory_limit,
                                                     .seed = o->seed,
                                                     .exact_off = o->exact_off,
                                                     .exact_tp = o->exact_tp,
                                                     .row_block = wf_par_row_block(o),
                                                     .compute_fp32 = o->compute_fp32,
                                                     .fp32_residual = o->fp32_residual,
                                                     .offload_allocator = scratch,
                                                     .offload_dir = o->offload_dir,
                                                     .plan = o->plan},
                               error);
    if (par->ctx)
        wf_context_on_warning(par->ctx, wf_par_print_warning, par);
    if (par->ctx && o->pace)
        wf_context_pace(par->ctx, &par->pace);
    return par->ctx != NULL;
}

/* Throttles a rank's collectives: of the groups that are split off from here on, too. */
static wf_status pace_world(wf_par *par, const wf_rank *rank, wf_error *error)
{
    par->world = rank->world;
    if (par->options.pace && wf_context_device(par->ctx)->memory)
        return wf_error_set(
            error, WF_EUNSUPPORTED,
            "a run at another machine's pace computes on the CPU: use device cpu, "
            "not %s",
            wf_context_device(par->ctx)->name);
    return par->options.pace ? wf_comm_pace(rank->world, &par->pace, error) : WF_OK;
}

static wf_mesh *open_mesh(wf_par *par, wf_rank *rank, wf_error *error)
{
    wf_axis axes[WF_MAX_AXES];
    int n = wf_par_mesh_axes(&par->options, axes, error);

    return n ? wf_mesh_open(par->ctx, rank->world, n, axes, error) : NULL;
}

static wf_status open_parts(wf_par *par, wf_rank *rank, wf_error *error)
{
    const wf_par_options *o = &par->options;
    const wf_par_strategy *strategy = wf_par_strategy_find(o->strategy, error);

    if (!strategy || wf_par_options_check(o, error) != WF_OK ||
        check_ranks(o, rank->size, error) != WF_OK || !open_context(par, rank, error) ||
        check_base(o, wf_context_device(par->ctx), error) != WF_OK ||
        pace_world(par, rank, error) != WF_OK)
        return WF_EINVAL;
    par->mesh = open_mesh(par, rank, error);
    if (!par->mesh || wf_par_find_axes(par, error) != WF_OK)
        return WF_EINVAL;
    par->policy = (wf_par_policy){.strategy = strategy,
                                  .axes = wf_par_sharding_axes(par, wf_par_innermost(par)),
                                  .prefetch = o->prefetch,
                                  .reshard = o->reshard};
    par->pp_axis = wf_mesh_axis(par->mesh, "pp");
    par->group = 1;
    wf_par_cut_finely(par);
    for (int axis = 0; axis < wf_mesh_axes(par->mesh); axis++)
        if (axis != par->pp_axis && !wf_par_is_dp(par, axis))
            wf_mesh_shares_model(par->mesh, axis);
    find_inexact(par);
    return WF_OK;
}

wf_par *wf_par_open(wf_rank *rank, const wf_par_options *options, wf_error *error)
{
    wf_par *par = calloc(1, sizeof *par);

    if (!par) {
        wf_error_set(error, WF_ENOMEM, "no memory for a rank's description");
        return NULL;
    }
    par->options = wf_par_options_filled(options);
    if (open_parts(par, rank, error) == WF_OK)
        return par;
    wf_par_close(par);
    return NULL;
}

void wf_par_close(wf_par *par)
{
    if (!par)
        return;
    wf_par_report_inexact(par);
    wf_par_drop_plans(par);
    wf_mesh_close(par->mesh);
    wf_context_close(par->ctx);
    wf_scratch_close(par->scratch);
    if (par->world && par->options.pace)
        wf_comm_pace(par->world, NULL, NULL);
    free(par);
}

wf_context *wf_par_context(const wf_par *par)
{
    return par->ctx;
}

wf_mesh *wf_par_mesh(const wf_par *par)
{
    return par->mesh;
}

wf_dtype wf_par_dtype(const wf_par *par)
{
    return par->options.dtype;
}

const char *wf_par_inexact(const wf_par *par)
{
    return wf_context_inexact(par->ctx);
}

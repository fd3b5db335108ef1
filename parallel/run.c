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

/* Kernels compute with two types; a plan, with each that is one. */
static bool may_store(const wf_par_options *o, wf_dtype dtype)
{
    return dtype == WF_F32 || dtype == WF_BF16 || (o->plan && wf_dtype_is_stored(dtype));
}

/* Checks when gradients are summed, what is given back after forward, and how tokens move. */
static wf_status check_moments(const wf_par_options *o, wf_error *error)
{
    if ((unsigned)o->accumulate > WF_PAR_GROUP || (unsigned)o->reshard > WF_PAR_RESHARD_NEVER ||
        (unsigned)o->dispatch > WF_PAR_DISPATCH_EXCHANGE)
        return wf_error_set(
            error, WF_EINVAL,
            "accumulate %d, reshard %d and dispatch %d: one of them is no value "
            "of its enum (parallel/run.h)",
            (int)o->accumulate, (int)o->reshard, (int)o->dispatch);
    if (o->accumulate_group && o->accumulate != WF_PAR_GROUP)
        return wf_error_set(
            error, WF_EINVAL,
            "accumulate_group %d is read with accumulate WF_PAR_GROUP alone: set "
            "both, or leave it 0",
            o->accumulate_group);
    if (o->accumulate == WF_PAR_GROUP &&
        (o->accumulate_group < 1 || (o->accumulate_group & (o->accumulate_group - 1))))
        return wf_error_set(
            error, WF_EINVAL,
            "accumulate_group %d: gradients are summed for groups of a power of two "
            "micro-steps, since the sum would else not be that of other layouts",
            o->accumulate_group);
    return WF_OK;
}

static wf_status check(const wf_par_options *o, int ranks, wf_error *error)
{
    if (o->axes && (o->pp > 1 || o->tp > 1 || o->dp > 1 || o->ep > 1 || o->etp > 1 ||
                    o->cp > 1 || o->dp_replicate || o->shard_group_size))
        return wf_error_set(
            error, WF_EINVAL,
            "a mesh has the axes that are given, or those of pp, tp, dp, ep, cp and groups of "
            "dp: give one of the two");
    if (o->dp_axes && !o->axes)
        return wf_error_set(error, WF_EINVAL,
                            "dp_axes names some of the axes that are given, and none are");
    if (o->pp < 1 || o->tp < 1 || o->dp < 1 || o->cp < 1 || o->threads < 1)
        return wf_error_set(error, WF_EINVAL,
                            "pp %d, tp %d, dp %d, cp %d and threads %d must be at least 1",
                            o->pp, o->tp, o->dp, o->cp, o->threads);
    if (o->cp_form && strcmp(o->cp_form, "auto") != 0 && strcmp(o->cp_form, "heads") != 0 &&
        strcmp(o->cp_form, "gather") != 0)
        return wf_error_set(error, WF_EINVAL, "cp_form %s is none of auto, heads and gather",
                            o->cp_form);
    if (o->offload_dir && !o->offload_optimizer)
        return wf_error_set(error, WF_EINVAL,
                            ".offload_dir %s is where the optimizer's state rests, and nothing "
                            "of it is offloaded: use .offload optimizer, or leave it out",
                            o->offload_dir);
    if (!o->axes && wf_par_ranks(o) != ranks)
        return wf_error_set(error, WF_EINVAL,
                            "pp %d x tp %d x dp %d%s%.0d is %lld ranks, but %d were started",
                            o->pp, o->tp, o->dp, o->cp > 1 ? " x cp " : "",
                            o->cp > 1 ? o->cp : 0, (long long)wf_par_ranks(o), ranks);
    if (!may_store(o, o->dtype) || !may_store(o, o->param_dtype) ||
        !may_store(o, o->reduce_dtype))
        return wf_error_set(error, WF_EINVAL,
                            "dtype %d, param_dtype %d and reduce_dtype %d must be WF_F32 or "
                            "WF_BF16; a plan takes every WIDE or NARROW row of core/dtype.def",
                            (int)o->dtype, (int)o->param_dtype, (int)o->reduce_dtype);
    if (o->base_dtype != WF_F32 && o->base_dtype != WF_NF4)
        return wf_error_set(error, WF_EINVAL, "base_dtype %d must be WF_F32 or WF_NF4",
                            (int)o->base_dtype);
    if (o->tf32 && !o->exact_off)
        return wf_error_set(
            error, WF_EINVAL,
            "tf32 rounds factors that exact mode multiplies as they are, with the CPU's "
            "bits: use it with .exact_off");
    if (o->prefetch < 0 || o->wrap_min_params < 0)
        return wf_error_set(error, WF_EINVAL,
                            "prefetch %d and wrap_min_params %lld cannot be negative",
                            o->prefetch, (long long)o->wrap_min_params);
    return check_moments(o, error);
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

static void fill_in_defaults(wf_par_options *o)
{
    if (!o->pp)
        o->pp = 1;
    if (!o->tp)
        o->tp = 1;
    if (!o->dp)
        o->dp = 1;
    if (!o->cp)
        o->cp = 1;
    if (!o->etp)
        o->etp = 1;
    if (!o->ep)
        o->ep = o->tp / o->etp;
    if (!o->threads)
        o->threads = 1;
    if (!o->strategy)
        o->strategy = WF_PAR_STRATEGY;
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

    if (!strategy || check(o, rank->size, error) != WF_OK || !open_context(par, rank, error) ||
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
    par->options = *options;
    fill_in_defaults(&par->options);
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

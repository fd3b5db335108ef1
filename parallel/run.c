/* parallel/run.c - opening a rank's part of a run. */
#include "parallel/run.h"
#include "kernels/devices.h"
#include "parallel/parallel_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Layouts nest in the 8 chunks and in the batch's halves only where both are powers of two. */
static void find_inexact(wf_par *par)
{
    const wf_par_options *o = &par->options;

    if (o->exact_off)
        wf_context_tell_inexact(par->ctx, "not layout-exact: exact is off");
    else if (o->reduce_dtype == WF_BF16)
        wf_context_tell_inexact(
            par->ctx, "not layout-exact: gradients are rounded to bf16 before ranks sum them");
    else if (o->tp != 1 && o->tp != 2 && o->tp != 4 && o->tp != 8)
        wf_context_tell_inexact(par->ctx,
                                "not layout-exact: tp %d does not nest in the 8 chunks", o->tp);
    else if (o->dp & (o->dp - 1))
        wf_context_tell_inexact(par->ctx, "not layout-exact: dp %d is not a power of two",
                                o->dp);
}

static wf_status check(const wf_par_options *o, int ranks, wf_error *error)
{
    if (o->cuda_graph && ranks > 1)
        return wf_error_set(
            error, WF_EUNSUPPORTED,
            "cuda_graph records the step of a single rank, and %d ranks meet on their hosts in "
            "every step: use tp 1 and dp 1, or leave cuda_graph off",
            ranks);
    if (o->tp < 1 || o->dp < 1 || o->threads < 1)
        return wf_error_set(error, WF_EINVAL, "tp %d, dp %d and threads %d must be at least 1",
                            o->tp, o->dp, o->threads);
    if ((int64_t)o->tp * o->dp != ranks)
        return wf_error_set(error, WF_EINVAL,
                            "tp %d x dp %d is %lld ranks, but %d were started", o->tp, o->dp,
                            (long long)o->tp * o->dp, ranks);
    if ((o->dtype != WF_F32 && o->dtype != WF_BF16) ||
        (o->param_dtype != WF_F32 && o->param_dtype != WF_BF16) ||
        (o->reduce_dtype != WF_F32 && o->reduce_dtype != WF_BF16))
        return wf_error_set(
            error, WF_EINVAL,
            "dtype %d, param_dtype %d and reduce_dtype %d must be WF_F32 or WF_BF16",
            (int)o->dtype, (int)o->param_dtype, (int)o->reduce_dtype);
    if (o->prefetch < 0 || o->wrap_min_params < 0)
        return wf_error_set(error, WF_EINVAL,
                            "prefetch %d and wrap_min_params %lld cannot be negative",
                            o->prefetch, (long long)o->wrap_min_params);
    return WF_OK;
}

/* Ranks of a host sit side by side, and those of a process too: so they have a GPU each where there
   are as many, whether processes see all of the host's or only their own. */
static wf_device *open_gpu(const wf_par_options *o, const wf_rank *rank, wf_par_gpu *gpu,
                           wf_error *error)
{
    bool in_place = strcmp(wf_comm_transport(rank->world), "threads") == 0;

    if (o->plan)
        return wf_cuda_device(&(wf_cuda_options){.plan = true, .tf32 = o->tf32}, error);
    gpu->gpus = wf_cuda_count(false, error);
    if (gpu->gpus == 0)
        return NULL;
    gpu->ordinal = rank->seat % gpu->gpus;
    gpu->ranks = rank->here;
    return wf_cuda_device(&(wf_cuda_options){.ordinal = gpu->ordinal,
                                             .readers = !in_place                ? 0
                                                        : gpu->ranks < gpu->gpus ? gpu->ranks
                                                                                 : gpu->gpus,
                                             .tf32 = o->tf32},
                          error);
}

static wf_device *open_device(wf_par *par, const wf_rank *rank, wf_error *error)
{
    const wf_par_options *o = &par->options;
    const char *name = o->device ? o->device : "cpu";

    if (o->tf32 && strcmp(name, "cuda") != 0) {
        wf_error_set(error, WF_EINVAL, "tf32 is of device cuda, not of %s", name);
        return NULL;
    }
    if (o->cuda_graph && strcmp(name, "cuda") != 0) {
        wf_error_set(error, WF_EINVAL, "cuda_graph is of device cuda, not of %s", name);
        return NULL;
    }
    if (strcmp(name, "cpu") == 0)
        return wf_cpu_device(o->threads, error);
    if (strcmp(name, "cuda") == 0)
        return open_gpu(o, rank, &par->gpu, error);
    wf_error_set(error, WF_EINVAL, "there is no device %s: use cpu or cuda", name);
    return NULL;
}

static bool open_context(wf_par *par, const wf_rank *rank, wf_error *error)
{
    const wf_par_options *o = &par->options;
    wf_device *device = open_device(par, rank, error);

    if (device && o->allocator)
        device->allocator = *o->allocator;
    par->ctx = wf_context_open(device,
                               &(wf_context_options){.rank = rank->index,
                                                     .memory_limit = o->memory_limit,
                                                     .seed = o->seed,
                                                     .exact_off = o->exact_off,
                                                     .plan = o->plan},
                               error);
    return par->ctx != NULL;
}

wf_par *wf_par_open(wf_rank *rank, const wf_par_options *options, wf_error *error)
{
    wf_par *par = calloc(1, sizeof *par);
    int replicate, shard;

    if (!par) {
        wf_error_set(error, WF_ENOMEM, "no memory for a rank's description");
        return NULL;
    }
    par->options = *options;
    if (!par->options.tp)
        par->options.tp = 1;
    if (!par->options.dp)
        par->options.dp = 1;
    if (!par->options.threads)
        par->options.threads = 1;
    if (!par->options.strategy)
        par->options.strategy = WF_PAR_STRATEGY;
    par->strategy = wf_par_strategy_find(par->options.strategy, error);
    if (!par->strategy || check(&par->options, rank->size, error) != WF_OK ||
        wf_par_axes(&par->options, &replicate, &shard, error) != WF_OK ||
        !open_context(par, rank, error)) {
        wf_par_close(par);
        return NULL;
    }
    par->reduced = par->options.dp > 1 &&
                   (par->options.accumulate == WF_PAR_REDUCED ||
                    (par->options.accumulate == WF_PAR_AUTO && par->strategy->reduce_each));
    par->mesh = wf_mesh_open(
        par->ctx, rank->world, 4,
        (wf_axis[]){
            {"pp", 1}, {"replicate", replicate}, {"shard", shard}, {"tp", par->options.tp}},
        error);
    if (!par->mesh) {
        wf_par_close(par);
        return NULL;
    }
    wf_mesh_cut_finely(par->mesh, wf_mesh_axis(par->mesh, "shard"));
    find_inexact(par);
    return par;
}

void wf_par_close(wf_par *par)
{
    if (!par)
        return;
    wf_par_drop_plans(par);
    wf_mesh_close(par->mesh);
    wf_context_close(par->ctx);
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

const wf_par_gpu *wf_par_gpu_of(const wf_par *par)
{
    return par->gpu.gpus ? &par->gpu : NULL;
}

int wf_par_dp(const wf_par *par)
{
    return par->options.dp;
}

int wf_par_dp_rank(const wf_par *par)
{
    wf_mesh *mesh = par->mesh;
    int shard = wf_mesh_axis(mesh, "shard");

    return wf_mesh_coordinate(mesh, wf_mesh_axis(mesh, "replicate")) *
               wf_mesh_size(mesh, shard) +
           wf_mesh_coordinate(mesh, shard);
}

const wf_layout *wf_par_batch_layout(const wf_par *par)
{
    wf_mesh *mesh = par->mesh;
    const wf_layout *layout = wf_layout_split(mesh, NULL, 0, wf_mesh_axis(mesh, "replicate"));

    return wf_layout_split(mesh, layout, 0, wf_mesh_axis(mesh, "shard"));
}

const char *wf_par_inexact(const wf_par *par)
{
    return wf_context_inexact(par->ctx);
}

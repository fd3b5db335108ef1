/* parallel/run.c - opening a rank's part of a run. */
#include "parallel/run.h"
#include "kernels/devices.h"
#include "parallel/strategy.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    const wf_par_strategy *strategy;
} table[] = {
#define STRATEGY(name, strategy, words) {#name, strategy},
#include "parallel/strategies.def"
#undef STRATEGY
};

enum { STRATEGIES = sizeof table / sizeof *table };

const char *wf_par_strategy_name(int i)
{
    for (int s = 0; s < STRATEGIES; s++)
        if (table[s].strategy && i-- == 0)
            return table[s].name;
    return NULL;
}

const wf_par_strategy *wf_par_strategy_find(const char *name, wf_error *error)
{
    for (int i = 0; i < STRATEGIES; i++) {
        if (strcmp(table[i].name, name) != 0)
            continue;
        if (!table[i].strategy)
            wf_error_set(error, WF_EUNSUPPORTED,
                         "strategy %s is not built in this version; use no_shard", name);
        return table[i].strategy;
    }
    wf_error_set(error, WF_EINVAL, "there is no strategy %s; use no_shard", name);
    return NULL;
}

/* Layouts nest in the 8 leaves and in the batch's halves only where both are powers of two. */
static void find_inexact(wf_par *par)
{
    const wf_par_options *o = &par->options;
    bool tp = o->tp != 1 && o->tp != 2 && o->tp != 4 && o->tp != 8;
    bool dp = (o->dp & (o->dp - 1)) != 0;

    if (o->exact_off)
        snprintf(par->inexact, sizeof par->inexact, "not layout-exact: exact is off");
    else if (tp)
        snprintf(par->inexact, sizeof par->inexact,
                 "not layout-exact: tp %d does not nest in the 8 leaves", o->tp);
    else if (dp)
        snprintf(par->inexact, sizeof par->inexact,
                 "not layout-exact: dp %d is not a power of two", o->dp);
}

static wf_status check(const wf_par_options *o, int ranks, wf_error *error)
{
    if (o->tp < 1 || o->dp < 1 || o->threads < 1)
        return wf_error_set(error, WF_EINVAL, "tp %d, dp %d and threads %d must be at least 1",
                            o->tp, o->dp, o->threads);
    if ((int64_t)o->tp * o->dp != ranks)
        return wf_error_set(error, WF_EINVAL,
                            "tp %d x dp %d is %lld ranks, but %d were started", o->tp, o->dp,
                            (long long)o->tp * o->dp, ranks);
    return WF_OK;
}

static bool open_context(wf_par *par, int rank, wf_error *error)
{
    const wf_par_options *o = &par->options;
    wf_device *device = wf_cpu_device(o->threads, error);

    if (device && o->allocator)
        device->allocator = *o->allocator;
    par->ctx = wf_context_open(device,
                               &(wf_context_options){.rank = rank,
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
    par->strategy =
        wf_par_strategy_find(options->strategy ? options->strategy : "no_shard", error);
    if (!par->strategy || check(&par->options, rank->size, error) != WF_OK ||
        !open_context(par, rank->index, error)) {
        wf_par_close(par);
        return NULL;
    }
    par->strategy->axes(par->options.dp, &replicate, &shard);
    par->mesh = wf_mesh_open(
        par->ctx, rank->world, 4,
        (wf_axis[]){
            {"pp", 1}, {"replicate", replicate}, {"shard", shard}, {"tp", par->options.tp}},
        error);
    if (!par->mesh) {
        wf_par_close(par);
        return NULL;
    }
    find_inexact(par);
    return par;
}

void wf_par_close(wf_par *par)
{
    if (!par)
        return;
    wf_par_drop_places(par);
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
    return par->inexact[0] ? par->inexact : NULL;
}

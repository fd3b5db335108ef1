/* apps/gpt_train/elastic_run.c - see the header. */
#include "apps/gpt_train/elastic_run.h"
#include "apps/gpt_train/dry_run.h"
#include <inttypes.h>
#include <stdio.h>

/* Returns whether the numbers of a run stay what they are on this mesh, and it fits where that
   is known. */
static bool serves(const wf_plan_request *o)
{
    wf_plan run;

    return wf_plan_request_serves(o, &run) &&
           (!o->device_memory || run.report.memory.peak <= (size_t)o->device_memory);
}

typedef struct shrinking {
    const app_options *asked;
    app_options *options; /* those of the shape that was tried last */
} shrinking;

static bool shape_serves(void *arg, const wf_elastic_shape *shape)
{
    const shrinking *s = arg;
    app_options *o = s->options;
    wf_plan_request *r;
    app_plan plan;

    *o = *s->asked;
    o->dp = shape->dp;
    o->micro_batch_size = shape->micro_batch;
    o->dp_replicate = shape->dp_replicate;
    if (o->rank >= app_options_ranks(o))
        o->rank = app_options_ranks(o) - 1;
    r = app_plan_of(o, &plan);
    if (!serves(r) && !wf_plan_choose_single(r, serves))
        return false;
    o->micro_batch_size = r->micro_batch_size;
    snprintf(o->accumulate, sizeof o->accumulate, "%s", r->accumulate);
    return true;
}

static wf_status shrink(void *options, int64_t ranks, wf_error *error)
{
    app_options *o = options;
    const app_options asked = *o;
    wf_elastic_shape shape = {.dp = o->dp,
                              .others = o->tp * o->pp,
                              .dp_replicate = o->dp_replicate,
                              .shard_group_size = o->shard_group_size,
                              .global_batch = o->global_batch_size,
                              .micro_batch = o->micro_batch_size};
    char others[64];

    snprintf(others, sizeof others, "--tp %" PRId64 " --pp %" PRId64, o->tp, o->pp);
    if (wf_elastic_shrink(&shape, ranks, o->min_dp, shape_serves, &(shrinking){&asked, o},
                          others, error) != WF_OK)
        *o = asked;
    return error->code;
}

void app_elastic_name(const void *options, char *text, size_t size)
{
    const app_options *o = options;

    snprintf(text, size, "--pp %" PRId64 " --dp %" PRId64 " --tp %" PRId64, o->pp, o->dp,
             o->tp);
}

static int64_t count_ranks(const void *options)
{
    return app_options_ranks(options);
}

const wf_elastic_meshes app_elastic_meshes = {.size = sizeof(app_options),
                                              .ranks = count_ranks,
                                              .shrink = shrink,
                                              .name = app_elastic_name};

wf_status app_elastic_processes(app_options *o, int *processes, wf_error *error)
{
    return wf_elastic_processes(&app_elastic_meshes, o, o->nnodes ? o->nnodes : *processes,
                                processes, error);
}

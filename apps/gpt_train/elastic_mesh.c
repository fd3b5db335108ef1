/* apps/gpt_train/elastic_mesh.c - the mesh that a run goes on with when ranks are lost; see elastic.h. */
#include "apps/gpt_train/dry_run.h"
#include "apps/gpt_train/elastic.h"
#include <inttypes.h>

/* Whether the numbers of a run stay what they are on this mesh, and it fits where that is known. */
static bool serves(const wf_plan_request *o)
{
    wf_plan run;

    return wf_plan_request_serves(o, &run) &&
           (!o->device_memory || run.report.memory.peak <= (size_t)o->device_memory);
}

/* The options of dp ranks; false: they do not divide what is to be divided. */
static bool with_dp(const app_options *asked, int64_t dp, app_options *o)
{
    int64_t most = asked->global_batch_size / dp;

    *o = *asked;
    o->dp = dp;
    if (o->rank >= app_options_ranks(o))
        o->rank = app_options_ranks(o) - 1;
    o->micro_batch_size = 1;
    if (asked->global_batch_size % dp == 0)
        o->micro_batch_size = most < asked->micro_batch_size ? most : asked->micro_batch_size;
    while (most % o->micro_batch_size)
        o->micro_batch_size--;
    if (asked->dp_replicate && asked->dp % asked->dp_replicate == 0) {
        int64_t group = asked->dp / asked->dp_replicate;

        if (dp % group)
            return false;
        o->dp_replicate = dp / group;
    }
    return !asked->shard_group_size || dp % asked->shard_group_size == 0;
}

wf_status app_elastic_mesh(app_options *options, int64_t ranks, wf_error *error)
{
    const app_options asked = *options;
    wf_plan_request *r;
    app_plan plan;
    int64_t of_each = asked.tp * asked.pp, most = ranks / of_each;

    for (int64_t dp = most < asked.dp ? most : asked.dp; dp >= asked.min_dp; dp--) {
        if (!with_dp(&asked, dp, options))
            continue;
        r = app_plan_of(options, &plan);
        if (!serves(r) && !wf_plan_choose_single(r, serves))
            continue;
        options->micro_batch_size = r->micro_batch_size;
        snprintf(options->accumulate, sizeof options->accumulate, "%s", r->accumulate);
        return WF_OK;
    }
    *options = asked;
    return wf_error_set(error, WF_ELOST,
                        "%" PRId64 " ranks are left, and no --dp from --min-dp %" PRId64
                        " on that they are enough for, with --tp %" PRId64 " --pp %" PRId64
                        ", and --global-batch-size %" PRId64
                        " keeps the numbers and fits in memory",
                        ranks, asked.min_dp, asked.tp, asked.pp, asked.global_batch_size);
}

wf_status app_elastic_processes(app_options *o, int *processes, wf_error *error)
{
    int64_t asked = o->nnodes ? o->nnodes : *processes, each = app_options_ranks(o) / asked;
    int n = *processes;

    if (app_options_ranks(o) % asked)
        return wf_error_set(error, WF_EINVAL,
                            "--nnodes %" PRId64 " does not divide the %" PRId64 " ranks", asked,
                            app_options_ranks(o));
    if (n < asked && app_elastic_mesh(o, n * each, error) != WF_OK)
        return error->code;
    for (n = 1; app_options_ranks(o) % n || app_options_ranks(o) / n > each; n++)
        continue;
    *processes = n;
    return WF_OK;
}

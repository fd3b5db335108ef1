/* parallel/plan/search_open.c - a search that a request asks for: what it needs, over how many
   ranks, and its end. */
#include "parallel/parallel_internal.h"
#include "parallel/plan/request_internal.h"
#include "parallel/plan/search_internal.h"
#include "mesh/cluster/topology.h"
#include <stdlib.h>
#include <string.h>

void wf_search_close(wf_search *s)
{
    for (int i = 0; s && i < s->tables; i++)
        wf_pipe_table_free(s->table[i].table);
    if (s) {
        free(s->candidate);
        free(s->top);
    }
    free(s);
}

/* Leaves out what ranks of axes do, which a request has no more; `stages` is pointed
   to. */
static void leave_ranks(wf_plan_request *o, wf_par_pipeline_options *stages)
{
    o->pp = o->tp = o->dp = o->cp = 1;
    o->ep = 0;
    o->etp = 1;
    o->dp_replicate = o->shard_group_size = o->rank = 0;
    o->sequence_parallel = false;
    snprintf(o->cp_form, sizeof o->cp_form, "auto");
    wf_par_options_leave_axes(&o->job.mesh);
    if (!o->job.pipeline)
        return;
    *stages = *o->job.pipeline;
    stages->split_messages = false;
    o->job.pipeline = stages;
}

/* Takes the sizes of the model: those of the job, or what is known of any model. */
static wf_status take_sizes(wf_search *s, wf_error *error)
{
    const wf_plan_request *o = s->options;
    wf_plan_request one = *o;
    wf_par_pipeline_options stages;
    wf_plan plan;

    s->timed = !o->job.sizes;
    if (!s->timed) {
        s->model = *o->job.sizes;
        return WF_OK;
    }
    leave_ranks(&one, &stages);
    one.micro_batch_size = one.global_batch_size;
    if (wf_plan_request_step(&one, &plan, error) == WF_OK)
        s->model = (wf_sim_model){.layers = o->job.pipeline ? plan.chain_steps - 1 : 0,
                                  .heads = WF_MAX_RANKS,
                                  .seq = wf_par_job_tokens(&o->job)};
    return error->code;
}

wf_search *wf_search_open(const wf_plan_request *options, wf_error *error)
{
    wf_search *s = calloc(1, sizeof *s);

    if (!s) {
        wf_error_set(error, WF_ENOMEM, "no memory for a search");
        return NULL;
    }
    s->options = options;
    s->threads = options->threads_per_rank;
    s->inexact = strcmp(options->search, "inexact") == 0;
    if (wf_sim_machine_read(options->machine, &s->machine, error) == WF_OK &&
        take_sizes(s, error) == WF_OK)
        return s;
    wf_search_close(s);
    return NULL;
}

static int64_t ranks_of(const wf_search *s)
{
    const wf_plan_request *o = s->options;
    bool given = o->given[WF_SETTING_pp] || o->given[WF_SETTING_tp] ||
                 o->given[WF_SETTING_dp] || o->given[WF_SETTING_cp];

    return o->ranks ? o->ranks : given ? wf_plan_ranks(o) : s->machine.devices;
}

/* As many threads as a run of a candidate gives its ranks on this host: their workspaces count,
   too. */
static wf_status choose_threads(wf_search *s, wf_error *error)
{
    wf_topology host;

    if (s->options->given[WF_SETTING_threads_per_rank])
        return WF_OK;
    if (wf_topology_read(NULL, &host, error) == WF_OK)
        s->threads = host.cores > s->ranks ? host.cores / s->ranks : 1;
    return error->code;
}

/* Refuses ranks of experts that cannot be on the ranks of tp that were given, nor on those of
   dp where these were, too. */
static wf_status check_given(const wf_plan_request *o, wf_error *error)
{
    wf_par_options mesh = {
        .tp = (int)o->tp, .ep = (int)o->ep, .etp = (int)o->etp, .dp = (int)o->dp};
    const int part = wf_par_ep_part(&mesh);
    wf_axis axes[WF_MAX_AXES];

    if (!o->given[WF_SETTING_tp] || (!o->ep && o->etp < 2))
        return WF_OK;
    if (!o->given[WF_SETTING_dp])
        mesh.dp = part > 1 ? part : 1;
    return wf_par_mesh_axes(&mesh, axes, error) ? WF_OK : error->code;
}

wf_search *wf_search_made(const wf_plan_request *options, wf_error *error)
{
    wf_search *s;

    if (!options->machine) {
        wf_error_set(error, WF_EINVAL, "a search has no times without .machine: give one");
        return NULL;
    }
    if (wf_plan_ranks(options) != options->pp * options->tp * options->cp * options->dp) {
        wf_error_set(
            error, WF_EINVAL,
            "a search lays ranks out over axes pp, dp, ep, tp and cp, and this mesh has "
            "another one: plan its layouts one by one");
        return NULL;
    }
    if (check_given(options, error) != WF_OK)
        return NULL;
    s = wf_search_open(options, error);
    if (!s)
        return NULL;
    s->ranks = ranks_of(s);
    if (choose_threads(s, error) == WF_OK)
        wf_search_go(s, error);
    if (error->code == WF_OK)
        return s;
    wf_search_close(s);
    return NULL;
}

wf_status wf_search_run(const wf_plan_request *options, FILE *out, wf_error *error)
{
    wf_search *s = wf_search_made(options, error);
    wf_plan_list list = {.layout = NULL};

    if (s && wf_search_list(s, &list, error) == WF_OK)
        wf_search_print(s, &list, out);
    if (s) { /* the comparisons are among them */
        list.simulated = s->simulated;
        list.planned = s->planned;
    }
    if (error->code == WF_OK && options->json)
        wf_search_write_json(&list, options->json, error);
    wf_plan_list_free(&list);
    wf_search_close(s);
    return error->code;
}

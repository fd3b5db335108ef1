/* apps/options/options_mesh.c - rules of the mesh: how many ranks there are, and which flags
   belong to a pipeline. */
#include "apps/options/options_table.h"
#include "parallel/plan/job.h"
#include "parallel/plan/request.h"
#include <string.h>

typedef struct text {
    char text[96];
} text;

int64_t app_options_ranks(const app_options *o)
{
    return o->pp * o->tp * o->dp * o->cp;
}

int64_t app_options_micro_steps(const app_options *o)
{
    int64_t each = o->dp * o->micro_batch_size;

    return (o->global_batch_size + each - 1) / each;
}

int64_t app_options_idle(const app_options *o)
{
    int64_t each = o->dp * o->micro_batch_size;

    return app_options_micro_steps(o) * each - o->global_batch_size;
}

bool app_options_pipelined(const app_options *o)
{
    const wf_par_pipeline_options stages = {.schedule = o->pp_schedule,
                                            .stages_per_rank = (int)o->pp_virtual,
                                            .split = o->pp_split,
                                            .resident = (int)o->pp_resident};

    return wf_plan_pipelined(o->pp, &stages, o->recompute);
}

/* Returns "--tp 2 x --dp 4", after "--pp 2 x " where there is a pipeline. */
static text mesh_text(const app_options *o)
{
    text t;
    int n = o->pp > 1 ? snprintf(t.text, sizeof t.text, "--pp %lld x ", (long long)o->pp) : 0;

    n += snprintf(t.text + n, sizeof t.text - (size_t)n, "--tp %lld x --dp %lld",
                  (long long)o->tp, (long long)o->dp);
    if (o->cp > 1)
        snprintf(t.text + n, sizeof t.text - (size_t)n, " x --cp %lld", (long long)o->cp);
    return t;
}

/* Returns whether a strategy splits parameters over data-parallel ranks, so that they are
   gathered. */
static bool splits_parameters(const app_options *o)
{
    const wf_par_strategy *strategy;
    int i = 0;

    while ((strategy = wf_par_strategy_at(i++)) && strcmp(strategy->name, o->strategy) != 0)
        continue;
    return strategy && strategy->split_parameters && o->dp > 1;
}

void app_options_warn(const app_options *o, FILE *out)
{
    bool search = strcmp(o->search, "off") != 0;
    /* copies in bf16 are made of fp32 masters as shards are gathered */
    bool gathers = search || splits_parameters(o) || strcmp(o->param_dtype, "fp32") != 0;
    const char *whole = "no rank gathers parameters (--dp, --strategy)";
    const struct {
        app_option_id id;
        bool effect;
        const char *why;
    } rows[] = {
        {APP_OPTION_strategy, search || o->dp > 1, "--dp is 1"},
        {APP_OPTION_accumulate, search || o->dp > 1, "--dp is 1"},
        {APP_OPTION_prefetch, gathers, whole},
        {APP_OPTION_reshard_after_forward, gathers, whole},
        {APP_OPTION_pp_resident, gathers, whole},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (o->given[rows[i].id] && !rows[i].effect)
            fprintf(out, "gpt_train: warning: %s has no effect: %s\n",
                    app_option_flag(&app_option_rows[rows[i].id]).text, rows[i].why);
}

static wf_status check_world(app_options *o, wf_error *error)
{
    enum { MOST_RANKS = 4096, MOST_PLANNED = 1 << 20 };
    long long ranks = app_options_ranks(o), most = o->plan ? MOST_PLANNED : MOST_RANKS;

    if (ranks > most)
        return wf_error_set(
            error, WF_EINVAL, "%s = %lld ranks, and %s at most %lld; lower one of them",
            mesh_text(o).text, ranks, o->plan ? "a plan has" : "one machine runs", most);
    if (!o->given[APP_OPTION_rank])
        o->rank = ranks - 1;
    if (o->rank >= ranks)
        return wf_error_set(error, WF_EINVAL,
                            "--rank %lld is not one of the %lld ranks of %s, 0 to %lld",
                            (long long)o->rank, ranks, mesh_text(o).text, ranks - 1);
    return WF_OK;
}

/* Checks flags of a pipeline, which is asked for by its ranks, or chosen by a search: the rows
   after theirs belong to it. */
static wf_status check_pipeline(app_options *o, wf_error *error)
{
    for (int i = APP_OPTION_pp_schedule; i <= APP_OPTION_pp_resident; i++)
        if (o->given[i] && !o->given[APP_OPTION_pp] && strcmp(o->search, "off") == 0)
            return wf_error_set(error, WF_EINVAL,
                                "%s belongs to --pp N, the ranks that hold stages; use both, "
                                "with --pp 1 for stages of one rank",
                                app_option_flag(&app_option_rows[i]).text);
    if (o->given[APP_OPTION_pp] && o->pp == 1 &&
        (o->pp_depth || strcmp(o->pp_send, "split") == 0))
        return wf_error_set(error, WF_EINVAL,
                            "%s is of messages between the ranks of --pp, and --pp is 1: use "
                            "--pp 2 or more, or leave it out",
                            o->pp_depth ? "--pp-depth" : "--pp-send split");
    return WF_OK;
}

const char *app_options_uncaptured(const app_options *o)
{
    if (app_options_pipelined(o))
        return "the schedule of a pipeline";
    if (o->elastic && app_options_ranks(o) > 1)
        return "--elastic on, whose ranks may be lost between the parts of a graph";
    if (strcmp(o->offload, "none") != 0)
        return "--offload, which copies to the host in the middle of a step";
    if (o->n_expert && (o->moe_z_weight > 0 || strcmp(o->moe_balance, "sequence") == 0 ||
                        strcmp(o->moe_balance, "global") == 0))
        return "losses that experts add (--moe-z-weight, --moe-balance sequence or global)";
    return NULL;
}

static wf_status check_cuda_graph(app_options *o, wf_error *error)
{
    const char *why = o->cuda_graph ? app_options_uncaptured(o) : NULL;

    if (!why)
        return WF_OK;
    return wf_error_set(error, WF_EINVAL,
                        "--cuda-graph on: steps are not captured with %s; leave that out, or "
                        "use --cuda-graph off",
                        why);
}

static wf_status check_elastic(app_options *o, wf_error *error)
{
    if (!o->elastic && (o->min_dp > 1 || o->rejoin_after || o->recovery_dir))
        return wf_error_set(error, WF_EINVAL, "%s belongs to --elastic on; use it with that",
                            o->min_dp > 1     ? "--min-dp"
                            : o->rejoin_after ? "--rejoin-after"
                                              : "--recovery-dir");
    if (o->check_replicas && !o->from_config[APP_OPTION_check_replicas] &&
        app_options_ranks(o) == 1 && strcmp(o->search, "off") == 0)
        return wf_error_set(error, WF_EINVAL,
                            "--check-replicas compares what several ranks hold alike, and "
                            "there is one: use more, or leave it out");
    if (o->verify_every && strcmp(o->redundancy, "buddy") != 0)
        return wf_error_set(error, WF_EINVAL,
                            "--verify-every compares copies that --redundancy buddy makes; use "
                            "both");
    if (!o->elastic || o->plan)
        return WF_OK;
    if (o->replay || !o->steps)
        return wf_error_set(error, WF_EINVAL, "--elastic on is of a run that trains, and %s",
                            o->replay ? "--replay repeats steps" : "--steps is 0");
    if (o->min_dp > o->dp)
        return wf_error_set(error, WF_EINVAL, "--min-dp %lld is more than --dp %lld",
                            (long long)o->min_dp, (long long)o->dp);
    return WF_OK;
}

/* Asks what a run would refuse of the layout; a search asks it of each layout that it looks
   at. */
static wf_status check_layout(const app_options *o, wf_error *error)
{
    const wf_par_job job = {.mesh = {.pp = (int)o->pp,
                                     .tp = (int)o->tp,
                                     .dp = (int)o->dp,
                                     .ep = (int)o->ep,
                                     .etp = (int)o->etp,
                                     .cp = (int)o->cp,
                                     .cp_form = o->cp_form,
                                     .strategy = o->strategy,
                                     .dp_replicate = (int)o->dp_replicate,
                                     .shard_group_size = (int)o->shard_group_size,
                                     .sequence_parallel = o->sequence_parallel,
                                     .tp_comm_overlap = o->tp_comm_overlap,
                                     .tp_comm_block = (size_t)o->tp_comm_block},
                            .train = {.redundancy = strcmp(o->redundancy, "buddy") == 0
                                                        ? WF_PAR_REDUNDANCY_BUDDY
                                                        : WF_PAR_REDUNDANCY_NONE}};

    return strcmp(o->search, "off") == 0 ? wf_par_job_check(&job, error) : WF_OK;
}

wf_status app_options_check_mesh(app_options *o, wf_error *error)
{
    wf_status status = check_world(o, error);

    if (status == WF_OK)
        status = check_layout(o, error);
    if (status == WF_OK)
        status = check_pipeline(o, error);
    if (status == WF_OK)
        status = check_elastic(o, error);
    return status == WF_OK ? check_cuda_graph(o, error) : status;
}

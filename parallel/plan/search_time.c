/* parallel/plan/search_time.c - one layout's step in time: the settings of a request as a
   candidate, with its own table and cut. */
#include "core/dtype.h"
#include "parallel/plan/request_internal.h"
#include "parallel/plan/search_internal.h"
#include <string.h>

/* Returns the index of a word in a list; -1: it is not there. */
static int index_of(const char *word, const char *const *list)
{
    int i = 0;

    while (list[i] && strcmp(list[i], word) != 0)
        i++;
    return list[i] ? i : -1;
}

/* Returns the candidate that the options describe; its schedule and strategy may be none that a
   search tries. */
static wf_search_candidate candidate_of(const wf_plan_request *o)
{
    wf_plan_job made;
    int replicate = 1, shard = 1;
    int strategy = wf_strategy_index(o->strategy);
    const char *accumulate = strcmp(o->accumulate, "auto") != 0             ? o->accumulate
                             : wf_strategy_to_search(strategy)->reduce_each ? "reduced"
                                                                            : "local";
    wf_search_candidate c = {.pp = (int32_t)o->pp,
                             .tp = (int32_t)o->tp,
                             .cp = (int32_t)o->cp,
                             .micro = (int32_t)o->micro_batch_size,
                             .sequence_parallel = o->sequence_parallel};

    wf_par_axes(&wf_plan_request_job(o, &made)->mesh, &replicate, &shard, NULL);
    c.replicate = (int32_t)replicate;
    c.shard = (int32_t)shard;
    if (shard == 1 && replicate > 1) { /* copies alone are one axis here */
        c.shard = (int32_t)replicate;
        c.replicate = 1;
    }
    c.ep = (int32_t)wf_plan_ep(o);
    c.features = o->etp > 1;
    c.micros = (int32_t)wf_plan_micro_steps(o);
    c.strategy = (int8_t)strategy;
    c.schedule = (int8_t)wf_pipe_schedule_find(o->pp_schedule);
    c.recompute = (int8_t)index_of(o->recompute, wf_search_recompute);
    c.accumulate = (int8_t)(strncmp(accumulate, "group", 5) == 0
                                ? 1
                                : index_of(accumulate, wf_search_accumulate));
    c.dtype = (int8_t)wf_dtype_find(o->dtype);
    c.per_rank = (int16_t)(o->pp_virtual ? o->pp_virtual : wf_search_schedule(&c).per_rank);
    return c;
}

/* A pipeline's own table and cut, as the run has them. */
static wf_status time_pipeline(wf_search *s, const wf_search_candidate *c,
                               wf_search_found *found, wf_error *error)
{
    int64_t first[WF_SEARCH_STAGES + 1];
    wf_par_pipeline *pipeline;
    wf_plan_job made;

    if (wf_par_job_pipeline(wf_plan_request_job(s->options, &made), &pipeline, error) != WF_OK)
        return error->code;
    for (int i = 0; i <= wf_par_pipeline_stages(pipeline) && i <= WF_SEARCH_STAGES; i++)
        first[i] = wf_par_pipeline_first(pipeline, i);
    if (!wf_search_simulate_table(s, c, wf_par_pipeline_table(pipeline), first, WF_SIM_PATH,
                                  found))
        wf_error_set(error, WF_EINVAL, "schedule %s stands still, or has more than %d stages",
                     s->options->pp_schedule, WF_SEARCH_STAGES);
    wf_par_pipeline_free(pipeline);
    return error->code;
}

wf_status wf_search_time(const wf_plan_request *options, wf_search_found *found, char *machine,
                         wf_error *error)
{
    wf_search_candidate c;
    wf_plan_job made;
    wf_search *s;

    s = wf_search_open(options, error);
    if (!s)
        return error->code;
    c = candidate_of(options);
    c.gather_keys =
        c.cp > 1 && (strcmp(options->cp_form, "gather") == 0 || wf_search_must_gather(s, &c));
    s->ranks = wf_plan_ranks(options);
    *found = (wf_search_found){.candidate = c};
    snprintf(machine, WF_SIM_NAME, "%s", s->machine.name);
    if (s->machine.rate[c.dtype] <= 0)
        wf_error_set(error, WF_EINVAL, "%s has no device.%s: take .dtype bf16",
                     options->machine, options->dtype);
    else if (s->timed)
        wf_search_time_plans(options, &s->machine, WF_SIM_PATH, found, error);
    else if (wf_plan_request_job(options, &made)->pipeline)
        time_pipeline(s, &c, found, error);
    else if (!wf_search_simulate(s, &c, WF_SIM_PATH, found))
        wf_error_set(error, WF_ENOMEM, "no memory to simulate a step");
    wf_search_close(s);
    return error->code;
}

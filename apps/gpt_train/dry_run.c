/* apps/gpt_train/dry_run.c - the job of the flags, planned; see the header. */
#include "apps/gpt_train/dry_run.h"
#include "apps/gpt_train/exam.h"
#include "apps/gpt_train/saving.h"
#include "apps/gpt_train/setup.h"
#include "apps/gpt_train/sample.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* What saves, with the options that it was opened with. */
typedef struct planned_saving {
    app_saving texts;
    wf_saving saving;
    app_options options;
} planned_saving;

/* Opens what saves checkpoints, which takes memory of its own. */
static wf_status open_saving(wf_par_running *r, void *arg)
{
    planned_saving *s = r->own = calloc(1, sizeof *s);
    wf_saving_options options;

    if (!s)
        return wf_fail(wf_par_context(r->par), WF_ENOMEM, "no memory for a plan");
    s->options = *(const app_options *)arg; /* its texts stay the caller's */
    s->options.async_save = r->job->async_save;
    options = app_saving_options(&s->options, "");
    return app_saving_open(&s->texts, &s->options, r->par, (wf_nn_gpt *)r->model, &options) ==
                   WF_OK
               ? wf_saving_open(&s->saving, &options, r->par, r->model, r->trainer, NULL)
               : wf_context_status(wf_par_context(r->par));
}

/* Takes what evaluation tasks and a sample take, where the run has any. */
static wf_status take_rest(wf_par_running *r, void *arg)
{
    const app_options *o = arg;
    wf_nn_gpt *gpt = (wf_nn_gpt *)r->model;
    wf_par_trainer *pipelined = r->job->pipeline ? r->trainer : NULL;

    if (r->trainer && o->eval_ema)
        wf_par_trainer_average(r->trainer, true);
    if (r->trainer)
        app_exam_plan(o, r->par, gpt, pipelined);
    if (r->trainer && o->eval_ema)
        wf_par_trainer_average(r->trainer, false);
    if (o->sample)
        app_sample_plan(o, &(app_sampled){r->par, gpt, pipelined, NULL});
    return wf_context_status(wf_par_context(r->par));
}

static wf_status close_saving(wf_par_running *r, void *arg)
{
    (void)arg;
    planned_saving *s = r->own;

    if (s) {
        wf_saving_close(&s->saving);
        app_saving_close(&s->texts);
    }
    free(r->own);
    return WF_OK;
}

static void take_words(const app_options *o, wf_plan_request *r)
{
#define TAKE_COUNT(field)  r->field = o->field
#define TAKE_SWITCH(field) r->field = o->field
#define TAKE_TEXT(field)   r->field = o->field
#define TAKE_WORD(field)   snprintf(r->field, sizeof r->field, "%s", o->field)
#define SETTING(kind, field, help)                                                             \
    TAKE_##kind(field);                                                                        \
    r->given[WF_SETTING_##field] = o->given[APP_OPTION_##field];
#include "parallel/plan/settings.def"
#undef SETTING
}

wf_plan_request *app_plan_of(const app_options *o, app_plan *plan)
{
    wf_plan_request *r = &plan->request;
    wf_par_job *job = &plan->setup.job;

    plan->setup = app_setup_job_of(o);
    snprintf(plan->name, sizeof plan->name, "%s of %" PRId64 " blocks", o->arch, o->n_layer);
    app_model_facts(o, plan->facts, sizeof plan->facts);
    job->name = plan->name;
    job->facts = plan->facts;
    job->begin = open_saving;
    job->after = o->sample || o->eval_requests ? take_rest : NULL;
    job->end = close_saving;
    job->sizes = &plan->setup.sizes;
    job->pipeline = &plan->setup.pipeline; /* used where the settings have one */
    *r = (wf_plan_request){.job = *job,
                           .rank = o->rank,
                           .rank_given = o->given[APP_OPTION_rank],
                           .device_memory = o->device_memory,
                           .machine = o->machine,
                           .paced = o->paced,
                           .planned = o->plan,
                           .ranks = o->ranks,
                           .find_batch = o->find_batch,
                           .whole_batches = o->whole_batches,
                           .no_pipeline = strcmp(o->transport, "nccl") == 0,
                           .notes = stderr,
                           .json = o->json,
                           .chakra = o->chakra,
                           .memory_timeline = o->memory_timeline};
    take_words(o, r);
    r->async_save = o->async_save && o->save;
    snprintf(r->search, sizeof r->search, "%s", o->search);
    return r;
}

wf_status app_setup_pipeline(const app_options *o, wf_par_pipeline **pipeline, wf_error *error)
{
    app_plan p;
    wf_plan_job made;

    return wf_par_job_pipeline(wf_plan_request_job(app_plan_of(o, &p), &made), pipeline, error);
}

wf_status dry_run_step(const app_options *o, wf_plan *plan, wf_error *error)
{
    app_plan p;

    return wf_plan_request_step(app_plan_of(o, &p), plan, error);
}

void app_choose_sums(app_options *o, bool say)
{
    app_plan p;
    wf_plan_request *r = app_plan_of(o, &p);

    wf_plan_choose_sums(r, say ? stdout : NULL);
    o->micro_batch_size = r->micro_batch_size;
    snprintf(o->accumulate, sizeof o->accumulate, "%s", r->accumulate);
}

wf_status app_memory_check(const app_options *o, const wf_launcher *launcher, wf_error *error)
{
    app_plan p;

    return o->memory_check ? wf_plan_memory_check(app_plan_of(o, &p), launcher, error) : WF_OK;
}

void app_plan_explain(const app_options *o, wf_error *error)
{
    app_plan p;

    wf_plan_explain(app_plan_of(o, &p), error);
}

wf_status dry_run_axes(const app_options *o, wf_place_axis axis[DRY_RUN_AXES], wf_error *error)
{
    static const char *const names[DRY_RUN_AXES] = {"pp", "replicate", "shard", "tp"};
    wf_plan plan;

    if (dry_run_step(o, &plan, error) != WF_OK)
        return error->code;
    for (int a = 0; a < DRY_RUN_AXES; a++) {
        const wf_par_traffic *t = &plan.report.traffic[a];

        axis[a] = (wf_place_axis){names[a], t->ranks, wf_comm_counters_received(&t->counters)};
    }
    return WF_OK;
}

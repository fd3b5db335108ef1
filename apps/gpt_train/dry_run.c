/* apps/gpt_train/dry_run.c - see the header. */
#include "apps/gpt_train/dry_run.h"
#include "apps/gpt_train/saving.h"
#include "apps/gpt_train/setup.h"
#include "apps/gpt_train/train_loop.h"

enum { STEPS = 2 };

typedef struct job {
    const app_options *o;
    int64_t steps; /* the last one is reported; 0: a sample alone */
    bool all;      /* an evaluation and a sample after the last step, where the run has any */
    size_t limit;  /* bytes of the rank; 0: none */
    wf_par_pipeline *pipeline;
    dry_run *run;
} job;

/* An evaluation between the steps is taken too, since what it gathers may stay for the next step. */
static void take_steps(job *j, wf_par *par, wf_nn_gpt *gpt)
{
    wf_nn_module *model = &gpt->base;
    wf_par_train_options options = app_setup_training(j->o);
    wf_context *ctx = wf_par_context(par);
    const wf_par_data none = {.read = NULL};
    wf_par_report *report = &j->run->report;
    wf_par_trainer *trainer = NULL;
    app_saving saving = {.options = NULL};
    float loss;

    wf_par_plan(par, model, wf_par_gpt_plan);
    app_setup_materialize(j->pipeline, par, model);
    options.pipeline = j->pipeline;
    if (j->steps || options.pipeline) {
        trainer = wf_par_trainer_open(par, model, &options);
        app_saving_open(&saving, j->o, par, gpt, trainer, "", NULL);
    }
    for (int step = 1; step <= j->steps && wf_context_status(ctx) == WF_OK; step++) {
        wf_par_step result;

        wf_par_report_begin(par, report);
        if (wf_par_train_step(trainer, step, &none, &result) == WF_OK)
            wf_par_report_end(par, model, report);
        if (step < j->steps && app_setup_evaluates(j->o, step))
            wf_par_evaluate(trainer, 1, &none, NULL, &loss); /* every batch gathers alike */
    }
    if (j->all && wf_context_status(ctx) == WF_OK) {
        if (j->o->eval_interval && trainer)
            wf_par_evaluate(trainer, 1, &none, NULL, &loss);
        if (j->o->sample)
            app_sample_plan(j->o,
                            &(app_sampled){par, gpt, options.pipeline ? trainer : NULL, NULL});
        wf_pool_report(wf_context_pool(ctx), &report->memory);
    }
    snprintf(j->run->inexact, sizeof j->run->inexact, "%s",
             wf_par_inexact(par) ? wf_par_inexact(par) : "");
    app_saving_close(&saving);
    wf_par_trainer_close(trainer);
}

static wf_status dry_rank(wf_rank *rank, void *arg)
{
    job *j = arg;
    wf_par_options options = app_setup_rank(j->o, true);
    wf_nn_gpt *model;
    wf_par *par;

    options.memory_limit = j->limit;
    par = wf_par_open(rank, &options, &rank->error);

    if (!par)
        return rank->error.code;
    model = app_setup_model(j->o, wf_par_context(par));
    if (model) {
        take_steps(j, par, model);
        wf_nn_free(&model->base);
    }
    rank->error = *wf_context_error(wf_par_context(par));
    wf_par_close(par);
    return rank->error.code;
}

static wf_status launch(job *j, int rank, wf_error *error)
{
    const app_options *o = j->o;

    *j->run = (dry_run){.inexact = ""};
    *error = (wf_error){WF_OK, ""};
    if (app_setup_pipeline(o, &j->pipeline, error) == WF_OK)
        wf_launch(&(wf_launch_options){.ranks = (int)app_options_ranks(o),
                                       .transport = "fake",
                                       .rank = rank},
                  dry_rank, j, error);
    wf_par_pipeline_free(j->pipeline);
    j->pipeline = NULL;
    return error->code;
}

static int64_t steps_of(const app_options *o)
{
    return o->steps == 1 ? 1 : STEPS;
}

wf_status dry_run_step(const app_options *o, dry_run *run, wf_error *error)
{
    job j = {.o = o, .steps = steps_of(o), .run = run};

    return launch(&j, (int)o->rank, error);
}

wf_status dry_run_within(const app_options *o, bool start, size_t limit, dry_run *run,
                         wf_error *error)
{
    job j = {.o = o,
             .steps = start ? o->steps > 0 : steps_of(o),
             .all = start,
             .limit = limit,
             .run = run};

    return launch(&j, (int)o->rank, error);
}

wf_status dry_run_start(const app_options *o, int rank, dry_run *run, wf_error *error)
{
    job j = {.o = o, .steps = o->steps > 0, .all = true, .run = run};

    return launch(&j, rank, error);
}

static double received(const wf_ledger *ledger)
{
    double bytes = 0;

    for (int k = 0; k < WF_COLLECTIVE_KINDS; k++)
        bytes += (double)ledger->of[k].bytes;
    return bytes;
}

wf_status dry_run_axes(const app_options *o, wf_place_axis axis[DRY_RUN_AXES], wf_error *error)
{
    static const char *const names[DRY_RUN_AXES] = {"pp", "replicate", "shard", "tp"};
    dry_run run;

    if (dry_run_step(o, &run, error) != WF_OK)
        return error->code;
    for (int a = 0; a < DRY_RUN_AXES; a++) {
        const wf_par_traffic *t = &run.report.traffic[a];

        axis[a] = (wf_place_axis){names[a], t->ranks, received(&t->ledger)};
    }
    return WF_OK;
}

double dry_run_traffic(const dry_run *run)
{
    double bytes = 0;

    for (int i = 0; i < run->report.n_traffic; i++)
        bytes += received(&run->report.traffic[i].ledger);
    return bytes;
}

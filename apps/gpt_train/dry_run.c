/* apps/gpt_train/dry_run.c - see the header. */
#include "apps/gpt_train/dry_run.h"
#include "apps/gpt_train/exam.h"
#include "apps/gpt_train/saving.h"
#include "apps/gpt_train/setup.h"
#include "apps/gpt_train/sample.h"
#include "parallel/train/profile.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 2 };

typedef struct job {
    const app_options *o;
    int64_t steps; /* the last one is reported; 0: a sample alone */
    bool all;      /* an evaluation and a sample after the last step, where the run has any */
    size_t limit;  /* bytes of the rank; 0: none */
    wf_par_pipeline *pipeline;
    wf_par_profile *profile;   /* NULL, or what writes down what actions take */
    const wf_journal *journal; /* NULL, or what writes down the last step */
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
    options.profile = j->profile;
    if (j->steps || options.pipeline) {
        trainer = wf_par_trainer_open(par, model, &options);
        app_saving_open(&saving, j->o, par, gpt, trainer, "", NULL);
    }
    for (int step = 1; step <= j->steps && wf_context_status(ctx) == WF_OK; step++) {
        wf_par_step result;

        wf_par_report_begin(par, report);
        if (step == j->steps && j->journal)
            wf_mesh_journal(wf_par_mesh(par), j->journal);
        if (wf_par_train_step(trainer, step, &none, &result) == WF_OK)
            wf_par_report_end(par, model, report);
        if (step < j->steps && app_setup_evaluates(j->o, step))
            wf_par_evaluate(trainer, 1, &none, NULL, &loss); /* every batch gathers alike */
    }
    if (j->journal)
        wf_mesh_journal(wf_par_mesh(par), NULL);
    if (j->all && wf_context_status(ctx) == WF_OK) {
        if (j->o->eval_interval && trainer)
            wf_par_evaluate(trainer, 1, &none, NULL, &loss);
        if (trainer)
            app_exam_plan(j->o, par, gpt, options.pipeline ? trainer : NULL);
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

/* A rank of a pipeline that is there, or of none. */
static wf_status run_rank(job *j, int rank, wf_error *error)
{
    *j->run = (dry_run){.inexact = ""};
    return wf_launch(&(wf_launch_options){.ranks = (int)app_options_ranks(j->o),
                                          .transport = "fake",
                                          .rank = rank},
                     dry_rank, j, error);
}

/* Takes away the number of the rank that was planned: what is refused is refused of every rank. */
static void drop_rank(wf_error *error)
{
    int rank, n = 0;

    if (error->code != WF_OK && sscanf(error->text, "rank %d: %n", &rank, &n) == 1 && n)
        memmove(error->text, error->text + n, strlen(error->text + n) + 1);
}

static wf_status launch(job *j, int rank, wf_error *error)
{
    *error = (wf_error){WF_OK, ""};
    if (app_setup_pipeline(j->o, &j->pipeline, error) == WF_OK)
        run_rank(j, rank, error);
    drop_rank(error);
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

bool dry_run_serves(const app_options *o, dry_run *run)
{
    wf_error error = {WF_OK, ""};

    return dry_run_step(o, run, &error) == WF_OK && (!*run->inexact || !o->exact);
}

wf_status dry_run_journal(const app_options *o, int rank, const wf_journal *journal,
                          dry_run *run, wf_error *error)
{
    job j = {.o = o, .steps = steps_of(o), .journal = journal, .run = run};

    return launch(&j, rank, error);
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

/* ---- all ranks of a pipeline ---- */

/* A rank that is planned already and has as many steps in each of its stages, both ends of the model among them or not; -1: none. */
static int find_alike(const wf_par_pipeline *p, int rank, const bool *planned, int *like)
{
    const wf_pipe_table *table = wf_par_pipeline_table(p);
    int stages = wf_par_pipeline_stages(p), ranks = wf_pipe_table_shape(table).ranks;

    for (int other = 0; other < ranks; other++) {
        bool alike = planned[other];
        int to = -1;

        for (int s = 0; s < stages && alike; s++) {
            if (wf_pipe_table_rank(table, s) != rank)
                continue;
            while (++to < stages && wf_pipe_table_rank(table, to) != other)
                ;
            alike = to < stages &&
                    wf_par_pipeline_first(p, s + 1) - wf_par_pipeline_first(p, s) ==
                        wf_par_pipeline_first(p, to + 1) - wf_par_pipeline_first(p, to) &&
                    (s == 0) == (to == 0) && (s + 1 == stages) == (to + 1 == stages);
            like[s] = to;
        }
        if (alike)
            return other;
    }
    return -1;
}

/* Ranks of a pipeline whose stages have the same steps take the same in actions that are alike. */
typedef struct peaks {
    job j;
    bool *planned;            /* [ranks] */
    wf_par_profile **profile; /* [ranks] of those that are */
    int *like;                /* [stages] */
    int64_t count;
} peaks;

static wf_status peak_of(peaks *p, int rank, size_t *bytes, wf_error *error)
{
    const wf_pipe_table *table = wf_par_pipeline_table(p->j.pipeline);
    int each = (int)(app_options_ranks(p->j.o) / p->j.o->pp);
    int alike = find_alike(p->j.pipeline, rank, p->planned, p->like);
    wf_par_profile_memory memory = {.unknown = 1};

    if (alike >= 0 &&
        wf_par_profile_replay(p->profile[alike], table, rank, p->like, &memory, error) != WF_OK)
        return error->code;
    *bytes = memory.peak;
    if (!memory.unknown && (!p->j.limit || *bytes <= p->j.limit))
        return WF_OK;
    if (!memory.unknown)
        return wf_error_set(error, WF_ENOMEM, "pipeline rank %d takes %zu bytes", rank, *bytes);
    p->profile[rank] = p->j.profile = wf_par_profile_new();
    p->planned[rank] = p->profile[rank] != NULL;
    p->count++;
    if (run_rank(&p->j, (rank + 1) * each - 1, error) == WF_OK)
        *bytes = p->j.run->report.memory.peak;
    return error->code;
}

static wf_status find_peaks(peaks *p, dry_run_peak *peak, wf_error *error)
{
    int ranks = (int)p->j.o->pp, last = ranks - 1;
    size_t bytes = 0;

    for (int i = 0; i < ranks && error->code == WF_OK; i++) {
        int rank = i == 1  ? last
                   : i > 1 ? i - 1
                           : 0; /* both ends first: one of them is mostly the fullest */

        if (peak_of(p, rank, &bytes, error) == WF_OK && bytes > peak->bytes) {
            peak->bytes = bytes;
            peak->rank = rank;
        }
    }
    peak->planned = p->count;
    return error->code;
}

static wf_status pipeline_peaks(peaks *p, dry_run_peak *peak, wf_error *error)
{
    size_t ranks = (size_t)p->j.o->pp;

    if (app_setup_pipeline(p->j.o, &p->j.pipeline, error) != WF_OK)
        return error->code;
    p->planned = calloc(ranks, sizeof *p->planned);
    p->profile = calloc(ranks, sizeof *p->profile);
    p->like = calloc((size_t)wf_par_pipeline_stages(p->j.pipeline), sizeof *p->like);
    if (p->planned && p->profile && p->like)
        find_peaks(p, peak, error);
    else
        wf_error_set(error, WF_ENOMEM, "no memory for the plans of %zu ranks", ranks);
    for (size_t i = 0; p->profile && i < ranks; i++)
        wf_par_profile_free(p->profile[i]);
    free(p->planned);
    free((void *)p->profile);
    free(p->like);
    wf_par_pipeline_free(p->j.pipeline);
    return error->code;
}

wf_status dry_run_peaks(const app_options *o, size_t limit, dry_run_peak *peak, wf_error *error)
{
    dry_run run;
    peaks p = {.j = {.o = o, .steps = steps_of(o), .limit = limit, .run = &run}};

    *peak = (dry_run_peak){.planned = 1};
    if (app_options_pipelined(o))
        return pipeline_peaks(&p, peak, error);
    if (launch(&p.j, (int)app_options_ranks(o) - 1, error) == WF_OK)
        peak->bytes = run.report.memory.peak;
    return error->code;
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

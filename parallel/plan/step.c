/* parallel/plan/step.c - a rank of a job on the fake device; see plan.h. */
#include "mesh/cluster/launch.h"
#include "nn/chain.h"
#include "parallel/plan/plan_internal.h"
#include "parallel/report/memory_timeline.h"
#include <stdio.h>
#include <string.h>

enum { STEPS = 2 };

/* Takes what a run takes after its last step: an evaluation, and what the job does then. */
static void take_rest(const wf_par_job *job, wf_par_running *r, wf_par_report *report)
{
    wf_context *ctx = wf_par_context(r->par);
    const wf_par_data none = {.read = NULL};
    float loss;

    if (job->eval_interval && r->trainer)
        wf_par_evaluate(r->trainer, 1, &none, NULL, &loss);
    if (job->after)
        job->after(r, job->arg);
    wf_pool_report(wf_context_pool(ctx), &report->memory);
}

/* Takes an evaluation between the steps too, since what it gathers may stay for the next
   step. */
static void take_steps(wf_planned *p, wf_par_running *r)
{
    const wf_par_job *job = p->job;
    wf_context *ctx = wf_par_context(r->par);
    const wf_par_data none = {.read = NULL};
    wf_par_report *report = &p->plan->report;
    float loss;

    for (int64_t step = 1; step <= p->steps && wf_context_status(ctx) == WF_OK; step++) {
        wf_par_step result;

        wf_par_report_begin(r->par, report);
        if (step == p->steps && p->options.oplog)
            wf_mesh_oplog(wf_par_mesh(r->par), p->options.oplog);
        if (step == p->steps && p->memory)
            wf_memory_timeline_begin(p->memory);
        if (wf_par_train_step(r->trainer, step, &none, &result) == WF_OK)
            wf_par_report_end(r->par, r->model, report);
        if (step == p->steps && p->memory)
            wf_memory_timeline_end(p->memory);
        if (step < p->steps && wf_par_job_evaluates(job, step))
            wf_par_evaluate(r->trainer, 1, &none, NULL, &loss); /* every batch gathers alike */
    }
    if (p->options.oplog)
        wf_mesh_oplog(wf_par_mesh(r->par), NULL);
    if (p->options.start && wf_context_status(ctx) == WF_OK)
        take_rest(job, r, report);
}

static void plan_rank(wf_planned *p, wf_par *par, wf_nn_module *model)
{
    const wf_par_job *job = p->job;
    wf_par_train_options options = job->train;
    wf_par_running r = {.job = job, .par = par, .model = model, .pipeline = p->pipeline};

    wf_par_job_materialize(p->pipeline, par, model);
    options.pipeline = p->pipeline;
    options.profile = p->profile;
    if (p->steps || options.pipeline) {
        r.trainer = wf_par_trainer_open(par, model, &options);
        if (job->begin)
            job->begin(&r, job->arg);
    }
    p->plan->chain_steps = model->chain ? wf_nn_chain_steps(model) : 0;
    take_steps(p, &r);
    snprintf(p->plan->inexact, sizeof p->plan->inexact, "%s",
             wf_par_inexact(par) ? wf_par_inexact(par) : "");
    if (job->end)
        job->end(&r, job->arg);
    wf_par_trainer_close(r.trainer);
}

/* Draws the memory of the last step, if that was asked for. */
static void draw_memory(const wf_planned *p, wf_rank *rank)
{
    wf_error error = {WF_OK, ""};
    char title[WF_MEMORY_TITLE];

    if (p->memory && rank->error.code == WF_OK &&
        wf_memory_timeline_write(p->memory, wf_memory_timeline_title(rank->index, title),
                                 p->options.memory_timeline, &error) != WF_OK)
        rank->error = error;
}

static wf_status dry_rank(wf_rank *rank, void *arg)
{
    wf_planned *p = arg;
    wf_par_options options = p->job->mesh;
    wf_nn_module *model;
    wf_par *par;

    options.plan = true;
    options.memory_limit = p->options.limit;
    par = wf_par_open(rank, &options, &rank->error);
    if (!par)
        return rank->error.code;
    if (p->options.memory_timeline)
        p->memory = wf_memory_timeline_open(wf_context_pool(wf_par_context(par)), &rank->error);
    model = wf_par_job_model(par, (void *)(uintptr_t)p->job); /* only read */
    if (model) {
        plan_rank(p, par, model);
        wf_nn_free(model);
    }
    if (wf_context_status(wf_par_context(par)) != WF_OK)
        rank->error = *wf_context_error(wf_par_context(par));
    draw_memory(p, rank);
    wf_memory_timeline_close(p->memory);
    p->memory = NULL;
    wf_par_close(par);
    return rank->error.code;
}

void wf_planned_drop_rank(wf_error *error)
{
    int rank, n = 0;

    if (error->code == WF_OK)
        return;
    if (sscanf(error->text, "rank %d: %n", &rank, &n) != 1 || !n)
        sscanf(error->text, "rank %d, %n", &rank, &n); /* the module that it is in follows */
    if (n)
        memmove(error->text, error->text + n, strlen(error->text + n) + 1);
}

wf_status wf_planned_rank(wf_planned *p, int rank, wf_error *error)
{
    *p->plan = (wf_plan){.inexact = ""};
    wf_launch(&(wf_launch_options){.ranks = (int)wf_par_ranks(&p->job->mesh),
                                   .transport = "fake",
                                   .rank = rank},
              dry_rank, p, error);
    wf_planned_drop_rank(error);
    return error->code;
}

int64_t wf_planned_steps(const wf_par_job *job)
{
    return wf_par_rampup_sizes(&job->train) + (job->steps == 1 ? 1 : STEPS);
}

wf_status wf_plan_step(const wf_par_job *job, int rank, const wf_plan_options *options,
                       wf_plan *plan, wf_error *error)
{
    wf_planned p = {.job = job, .plan = plan};

    *error = (wf_error){WF_OK, ""};
    if (options)
        p.options = *options;
    p.steps = !p.options.start ? wf_planned_steps(job)
              : job->steps     ? wf_par_rampup_sizes(&job->train) + 1
                               : 0;
    if (wf_par_job_pipeline(job, &p.pipeline, error) == WF_OK)
        wf_planned_rank(&p, rank, error);
    wf_planned_drop_rank(error);
    wf_par_pipeline_free(p.pipeline);
    return error->code;
}

double wf_comm_counters_received(const wf_comm_counters *counters)
{
    double bytes = 0;

    for (int k = 0; k < WF_COLLECTIVE_KINDS; k++)
        bytes += (double)counters->of[k].bytes;
    return bytes;
}

double wf_plan_traffic(const wf_plan *plan)
{
    double bytes = 0;

    for (int i = 0; i < plan->report.n_traffic; i++)
        bytes += wf_comm_counters_received(&plan->report.traffic[i].counters);
    return bytes;
}

/* apps/gpt_train/dry_run.c - the job of the flags, planned; see the header. */
#include "apps/gpt_train/dry_run.h"
#include "apps/gpt_train/exam.h"
#include "apps/gpt_train/saving.h"
#include "apps/gpt_train/setup.h"
#include "apps/gpt_train/sample.h"
#include <stdlib.h>

/* Opens what saves checkpoints, which takes memory of its own. */
static wf_status open_saving(wf_par_running *r, void *arg)
{
    app_saving *saving = r->own = calloc(1, sizeof *saving);

    if (!saving)
        return wf_fail(wf_par_context(r->par), WF_ENOMEM, "no memory for a plan");
    return app_saving_open(saving, arg, r->par, (wf_nn_gpt *)r->model, r->trainer, "", NULL);
}

/* Takes what evaluation tasks and a sample take, where the run has any. */
static wf_status take_rest(wf_par_running *r, void *arg)
{
    const app_options *o = arg;
    wf_nn_gpt *gpt = (wf_nn_gpt *)r->model;
    wf_par_trainer *pipelined = app_options_pipelined(o) ? r->trainer : NULL;

    if (r->trainer)
        app_exam_plan(o, r->par, gpt, pipelined);
    if (o->sample)
        app_sample_plan(o, &(app_sampled){r->par, gpt, pipelined, NULL});
    return wf_context_status(wf_par_context(r->par));
}

static wf_status close_saving(wf_par_running *r, void *arg)
{
    (void)arg;
    if (r->own)
        app_saving_close(r->own);
    free(r->own);
    return WF_OK;
}

static app_setup_job planned_job(const app_options *o)
{
    app_setup_job s = app_setup_job_of(o);

    s.job.begin = open_saving;
    s.job.after = take_rest;
    s.job.end = close_saving;
    return s;
}

static wf_status plan_with(const app_options *o, int rank, const wf_plan_options *options,
                           wf_plan *plan, wf_error *error)
{
    app_setup_job s = planned_job(o);

    return wf_plan_step(app_setup_job_use(&s), rank, options, plan, error);
}

wf_status dry_run_step(const app_options *o, wf_plan *plan, wf_error *error)
{
    return plan_with(o, (int)o->rank, NULL, plan, error);
}

bool dry_run_serves(const app_options *o, wf_plan *plan)
{
    wf_error error = {WF_OK, ""};

    return dry_run_step(o, plan, &error) == WF_OK && (!*plan->inexact || !o->exact);
}

wf_status dry_run_journal(const app_options *o, int rank, const wf_journal *journal,
                          wf_plan *plan, wf_error *error)
{
    return plan_with(o, rank, &(wf_plan_options){.journal = journal}, plan, error);
}

wf_status dry_run_within(const app_options *o, bool start, size_t limit, wf_plan *plan,
                         wf_error *error)
{
    return plan_with(o, (int)o->rank, &(wf_plan_options){.start = start, .limit = limit}, plan,
                     error);
}

wf_status dry_run_start(const app_options *o, int rank, wf_plan *plan, wf_error *error)
{
    return plan_with(o, rank, &(wf_plan_options){.start = true}, plan, error);
}

wf_status dry_run_peaks(const app_options *o, size_t limit, wf_plan_peak *peak, wf_error *error)
{
    app_setup_job s = planned_job(o);

    return wf_plan_peaks(app_setup_job_use(&s), limit, peak, error);
}

wf_status dry_run_axes(const app_options *o, wf_place_axis axis[DRY_RUN_AXES], wf_error *error)
{
    static const char *const names[DRY_RUN_AXES] = {"pp", "replicate", "shard", "tp"};
    wf_plan plan;

    if (dry_run_step(o, &plan, error) != WF_OK)
        return error->code;
    for (int a = 0; a < DRY_RUN_AXES; a++) {
        const wf_par_traffic *t = &plan.report.traffic[a];

        axis[a] = (wf_place_axis){names[a], t->ranks, wf_ledger_received(&t->ledger)};
    }
    return WF_OK;
}

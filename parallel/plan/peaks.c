/* parallel/plan/peaks.c - plans a rank for each coordinate of a pipeline: as few of them as
   determine the others. */
#include "parallel/plan/plan_internal.h"
#include "parallel/stages/pipeline_internal.h"
#include <stdlib.h>
#include <string.h>

/* Ranks whose stages are of the same kinds take the same in actions that are alike. */
typedef struct ranks {
    wf_planned j;
    int count, each;          /* coordinates; ranks of each */
    wf_par_profile **profile; /* [count] of those that were planned */
    int *like;                /* [stages] */
    wf_plan_ranks_of *of;
} ranks;

/* Fills this rank's plan from the profile of one that is alike. False: that lacks something. */
static bool replay(ranks *p, int rank, int other, wf_plan *run)
{
    const wf_pipe_table *table = wf_par_pipeline_table(p->j.pipeline);
    const wf_plan *from = &p->of->run[other];
    wf_par_profile_memory m;
    wf_error unknown = {WF_OK, ""};

    if (wf_par_profile_replay(p->profile[other], table, rank, p->like, &m, &unknown) != WF_OK ||
        m.unknown || m.varied)
        return false;
    *run = (wf_plan){.inexact = "", .chain_steps = from->chain_steps};
    memcpy(run->inexact, from->inexact, sizeof run->inexact);
    run->report.parameters = from->report.parameters;
    run->report.share = from->report.share;
    run->report.flops = from->report.flops + m.flops;
    run->report.model_flops = from->report.model_flops + m.model_flops;
    run->report.memory.peak = m.peak;
    memcpy(run->report.memory.at_peak, m.at_peak, sizeof m.at_peak);
    memcpy(run->report.memory.phase, m.phase, sizeof m.phase);
    wf_par_alike_module(p->j.pipeline, rank, p->like, m.module);
    memcpy(run->report.memory.module, m.module, sizeof m.module);
    return true;
}

static wf_status plan_rank(ranks *p, int rank, wf_error *error)
{
    p->profile[rank] = p->j.profile = wf_par_profile_new();
    p->of->planned++;
    p->of->is_planned[rank] = true;
    p->j.plan = &p->of->run[rank];
    return wf_planned_rank(&p->j, rank * p->each + p->of->member, error);
}

static wf_status look_at(ranks *p, int rank, wf_error *error)
{
    wf_plan *run = &p->of->run[rank];
    int other = 0;

    while (other < p->count &&
           !(p->profile[other] && wf_par_ranks_alike(p->j.pipeline, rank, other, p->like) &&
             replay(p, rank, other, run)))
        other++;
    if (other == p->count)
        return plan_rank(p, rank, error);
    run->report.rank = rank * p->each + p->of->member;
    if (p->j.options.limit && run->report.memory.peak > p->j.options.limit)
        wf_error_set(error, WF_ENOMEM, "pipeline rank %d takes %zu bytes", rank,
                     run->report.memory.peak);
    return error->code;
}

static wf_status look_at_all(ranks *p, wf_error *error)
{
    for (int i = 0; i < p->count && error->code == WF_OK; i++)
        look_at(p,
                i == 1  ? p->count - 1
                : i > 1 ? i - 1
                        : 0, /* both ends first: one of them is mostly the fullest */
                error);
    for (int i = 0; i < p->count; i++)
        if (p->of->run[i].report.memory.peak > p->of->run[p->of->fullest].report.memory.peak)
            p->of->fullest = i;
    return error->code;
}

/* The first reason against exactness that a rank has is that of all. */
static void report_inexact(wf_plan_ranks_of *of)
{
    int first = 0;

    while (first < of->count && !*of->run[first].inexact)
        first++;
    for (int i = 0; first < of->count && i < of->count; i++)
        if (i != first)
            memcpy(of->run[i].inexact, of->run[first].inexact, sizeof of->run->inexact);
}

static wf_status open_ranks(ranks *p, const wf_par_job *job, wf_error *error)
{
    size_t count;

    if (wf_par_job_pipeline(job, &p->j.pipeline, error) != WF_OK) {
        wf_planned_drop_rank(error);
        return error->code;
    }
    p->count = wf_pipe_table_shape(wf_par_pipeline_table(p->j.pipeline)).ranks;
    p->each = (int)(wf_par_ranks(&job->mesh) / p->count);
    count = (size_t)p->count;
    p->of->count = p->count;
    p->of->run = calloc(count, sizeof *p->of->run);
    p->of->is_planned = calloc(count, sizeof *p->of->is_planned);
    p->of->after = calloc(count, sizeof *p->of->after);
    p->profile = calloc(count, sizeof *p->profile);
    p->like = calloc((size_t)wf_par_pipeline_stages(p->j.pipeline), sizeof *p->like);
    if (!p->of->run || !p->of->is_planned || !p->of->after || !p->profile || !p->like)
        wf_error_set(error, WF_ENOMEM, "no memory for the plans of %d ranks", p->count);
    return error->code;
}

static void close_ranks(ranks *p)
{
    for (int i = 0; p->profile && i < p->count; i++)
        wf_par_profile_free(p->profile[i]);
    free((void *)p->profile);
    free(p->like);
    wf_par_pipeline_free(p->j.pipeline);
}

wf_status wf_plan_ranks_make(const wf_par_job *job, int64_t member, size_t limit, bool whole,
                             wf_plan_ranks_of *of, wf_error *error)
{
    ranks p = {.j = {.job = job, .steps = wf_planned_steps(job), .options = {.limit = limit}},
               .of = of};

    *error = (wf_error){WF_OK, ""};
    *of = (wf_plan_ranks_of){.member = member < 0 ? 0 : (int)member};
    if (open_ranks(&p, job, error) == WF_OK) {
        of->member = member < 0 ? p.each - 1 : of->member;
        look_at_all(&p, error);
        if (error->code == WF_OK && whole && !of->is_planned[of->fullest])
            plan_rank(&p, of->fullest, error);
        report_inexact(of);
    }
    close_ranks(&p);
    return error->code;
}

void wf_plan_ranks_close(wf_plan_ranks_of *of)
{
    free(of->run);
    free(of->is_planned);
    free(of->after);
    *of = (wf_plan_ranks_of){.count = 0};
}

static wf_status pipeline_peaks(const wf_par_job *job, size_t limit, wf_plan_peak *peak,
                                wf_error *error)
{
    wf_plan_ranks_of of;

    if (wf_plan_ranks_make(job, -1, limit, false, &of, error) == WF_OK)
        *peak = (wf_plan_peak){of.run[of.fullest].report.memory.peak, of.fullest, of.planned};
    wf_plan_ranks_close(&of);
    return error->code;
}

wf_status wf_plan_peaks(const wf_par_job *job, size_t limit, wf_plan_peak *peak,
                        wf_error *error)
{
    const wf_plan_options options = {.limit = limit};
    wf_plan plan;

    *peak = (wf_plan_peak){.planned = 1};
    if (job->pipeline)
        return pipeline_peaks(job, limit, peak, error);
    if (wf_plan_step(job, (int)wf_par_ranks(&job->mesh) - 1, &options, &plan, error) == WF_OK)
        peak->bytes = plan.report.memory.peak;
    return error->code;
}

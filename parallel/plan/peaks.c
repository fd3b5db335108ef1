/* parallel/plan/peaks.c - finds the fullest rank of a job, by plans of as few ranks as
   determine the others. */
#include "parallel/plan/plan_internal.h"
#include <stdlib.h>

/* A rank that is planned already and has as many steps in each of its stages, both ends of the
   model among them or not; -1: none. */
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

/* Ranks of a pipeline whose stages have the same steps take the same in actions that are
   alike. */
typedef struct peaks {
    wf_planned j;
    bool *planned;            /* [ranks] */
    wf_par_profile **profile; /* [ranks] of those that are */
    int *like;                /* [stages] */
    int64_t count;
} peaks;

static wf_status peak_of(peaks *p, int rank, size_t *bytes, wf_error *error)
{
    const wf_pipe_table *table = wf_par_pipeline_table(p->j.pipeline);
    int each = (int)(wf_par_ranks(&p->j.job->mesh) / wf_pipe_table_shape(table).ranks);
    int alike = find_alike(p->j.pipeline, rank, p->planned, p->like);
    wf_par_profile_memory memory = {.unknown = 1};

    if (alike >= 0 &&
        wf_par_profile_replay(p->profile[alike], table, rank, p->like, &memory, error) != WF_OK)
        return error->code;
    *bytes = memory.peak;
    if (!memory.unknown && (!p->j.options.limit || *bytes <= p->j.options.limit))
        return WF_OK;
    if (!memory.unknown)
        return wf_error_set(error, WF_ENOMEM, "pipeline rank %d takes %zu bytes", rank, *bytes);
    p->profile[rank] = p->j.profile = wf_par_profile_new();
    p->planned[rank] = p->profile[rank] != NULL;
    p->count++;
    if (wf_planned_rank(&p->j, (rank + 1) * each - 1, error) == WF_OK)
        *bytes = p->j.plan->report.memory.peak;
    return error->code;
}

static wf_status find_peaks(peaks *p, wf_plan_peak *peak, wf_error *error)
{
    int ranks = wf_pipe_table_shape(wf_par_pipeline_table(p->j.pipeline)).ranks,
        last = ranks - 1;
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

static wf_status pipeline_peaks(peaks *p, wf_plan_peak *peak, wf_error *error)
{
    size_t ranks;

    if (wf_par_job_pipeline(p->j.job, &p->j.pipeline, error) != WF_OK)
        return error->code;
    ranks = (size_t)wf_pipe_table_shape(wf_par_pipeline_table(p->j.pipeline)).ranks;
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

wf_status wf_plan_peaks(const wf_par_job *job, size_t limit, wf_plan_peak *peak,
                        wf_error *error)
{
    wf_plan plan;
    peaks p = {.j = {.job = job,
                     .steps = wf_planned_steps(job),
                     .options = {.limit = limit},
                     .plan = &plan}};

    *peak = (wf_plan_peak){.planned = 1};
    if (job->pipeline)
        return pipeline_peaks(&p, peak, error);
    if (wf_plan_step(job, (int)wf_par_ranks(&job->mesh) - 1, &p.j.options, &plan, error) ==
        WF_OK)
        peak->bytes = plan.report.memory.peak;
    return error->code;
}

/* parallel/program/rank_ahead.c - which steps are launched before the one before them is
   finished, where the device judges steps (wf_par_train_launch). */
#include "parallel/program/rank_internal.h"
#include "parallel/train/ahead.h"

int64_t wf_run_reported(const wf_run_rank_state *r)
{
    int64_t step = r->resumed + (r->job->steps - r->resumed < 2 ? 1 : 2), before;
    const wf_par_train_options *train = &r->job->train;

    for (int64_t at = step; train->rampup.start && at <= r->job->steps; at++)
        if (wf_par_step_batch(train, at, &before) == train->global_batch)
            return at;
    return step;
}

const char *wf_run_waits(const wf_run_rank_state *r)
{
    const wf_run *run = r->run;
    const char *why = wf_par_train_at_once(r->r.trainer);

    if (why)
        return why;
    if (r->elastic.into || run->recovery_dir || run->elastic->leave_after)
        return "state that lost ranks leave to others";
    if (run->digest != WF_RUN_DIGEST_OFF)
        return "a digest after each step";
    if (run->log_digests || run->replay)
        return "digests of ranks after each step";
    if (run->between.function)
        return "work of the program between steps";
    return r->loads ? "a report of experts' loads" : NULL;
}

/* Returns true where something that is due after a step needs its parameters. */
static bool needs_parameters(const wf_run_rank_state *r, int64_t step)
{
    const wf_run *run = r->run;

    return run->flip.step == step || (run->verify_every && step % run->verify_every == 0) ||
           (wf_par_job_evaluates(r->job, step) && r->job->eval_data.read) ||
           wf_saving_due(&r->saving, step);
}

/* Returns true where a step is reported by itself, by what was counted while it ran. */
static bool is_measured(const wf_run_rank_state *r, int64_t step)
{
    return step == wf_run_reported(r) &&
           (r->run->memory_timeline || r->run->comm_report || r->run->report_json);
}

/* All ranks have to decide alike, so what differs from rank to rank, as when a signal comes, is
   asked of what all have said at the end of the step before. */
bool wf_run_may_follow(const wf_run_rank_state *r, int64_t step)
{
    const wf_par_train_options *train = &r->job->train;
    int64_t before;

    /* The first step is made at once, and the second one takes the memory of graphs. */
    if (step < r->resumed + 2 || step >= wf_run_parts_last(r) || r->stop ||
        wf_context_status(r->ctx) != WF_OK || wf_run_waits(r))
        return false;
    return wf_par_step_batch(train, step, &before) ==
               wf_par_step_batch(train, step + 1, &before) &&
           !needs_parameters(r, step) && !is_measured(r, step) && !is_measured(r, step + 1) &&
           r->asked == 0 && wf_rank_trace_may_follow(&r->trace, step);
}

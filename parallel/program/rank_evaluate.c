/* parallel/program/rank_evaluate.c - the validation loss after a step, and requests that end it
   early. */
#include "parallel/program/rank_internal.h"
#include "parallel/recovery/elastic_files.h"
#include "parallel/recovery/signal_requests.h"

uint64_t wf_run_requests(const wf_run_rank_state *r)
{
    bool leaves = r->run->recovery_dir && wf_elastic_files_leave(r->run->recovery_dir);

    return wf_saving_requests(&r->saving) | (leaves ? WF_SIGNAL_LEAVE : 0);
}

bool wf_run_stop(void *running)
{
    wf_run_rank_state *r = running;
    const uint64_t mine = wf_run_requests(r);
    const uint64_t *all = wf_mesh_gather(wf_par_mesh(r->r.par), &mine, sizeof mine);

    for (int i = 0; all && i < r->rank.size; i++)
        r->requests |= (unsigned)all[i];
    return r->requests & WF_SIGNAL_STOP;
}

/* Returns true where an evaluation has reached its end; the same on all ranks, but for
   errors. */
static bool is_whole(const wf_run_rank_state *r)
{
    return wf_context_status(r->ctx) == WF_OK && !(r->requests & WF_SIGNAL_STOP);
}

/* Adds the program's own scalars to the record. */
static void score(wf_run_rank_state *r, wf_step_log *record, wf_log_scalar *scalar)
{
    bool average = r->job->train.evaluate_average;
    int count = 0;

    if (!r->run->hooks.score ||
        (average && wf_par_trainer_average(r->r.trainer, true) != WF_OK))
        return;
    r->run->hooks.score(&r->r, scalar, &count, r->job->arg);
    if (average)
        wf_par_trainer_average(r->r.trainer, false);
    if (!is_whole(r))
        return;
    record->scalars = scalar;
    record->scalar_count = count;
}

/* Evaluates. It may take longer than a scheduler waits, so a request to stop ends it before its
   next batch: nothing is logged of a part. */
wf_status wf_run_evaluate(wf_run_rank_state *r, int64_t step, wf_step_log *record,
                          wf_log_scalar *scalar)
{
    const wf_par_job *job = r->job;
    int64_t batches = job->eval_batches ? job->eval_batches : 1;
    bool due = wf_par_job_evaluates(job, step) && job->eval_data.read;

    if (due && !(r->requests & WF_SIGNAL_STOP)) {
        wf_par_evaluate_until(r->r.trainer, batches, &job->eval_data, NULL, r->r.stop, r,
                              &record->val_loss);
        record->has_val_loss = is_whole(r);
        if (record->has_val_loss) {
            wf_saving_validated(&r->saving, record->val_loss);
            score(r, record, scalar);
        }
    }
    r->unevaluated = due && (r->requests & WF_SIGNAL_STOP);
    return wf_context_status(r->ctx);
}

/* parallel/program/rank_steps.c - the steps of a rank, from the state that there is: a
   checkpoint's, or that of lost ranks. */
#include "parallel/program/rank_internal.h"
#include "parallel/recovery/elastic_files.h"

/* Restores the state that ranks of the launch before have left, with what of its last step they
   had not reached; or loads a checkpoint, or begins. */
static wf_status restore(wf_run_rank_state *r, int64_t *step)
{
    float best_loss = r->saving.best_loss;
    wf_elastic_step made;

    *step = 0;
    if (wf_elastic_rank_restore(&r->elastic, step, &made, &best_loss) != WF_OK)
        return wf_context_status(r->ctx);
    if (!r->elastic.ready) {
        r->elastic.ready = wf_saving_resume(&r->saving, r->run->resume, step) == WF_OK;
        r->r.steps = *step;
        return wf_context_status(r->ctx);
    }
    wf_saving_best(&r->saving, best_loss);
    r->r.steps = *step;
    return made.step == *step ? wf_run_end_step(r, &made, wf_context_model_flops(r->ctx))
                              : wf_context_status(r->ctx);
}

/* Begins outputs, after the step from which the run continues, and reports why a launch became
   necessary. */
static wf_status begin_steps(wf_run_rank_state *r, int64_t step)
{
    const wf_run *run = r->run;
    const wf_elastic *e = run->elastic;
    wf_error error = {WF_OK, ""};

    if (wf_run_parts_begin(r) != WF_OK)
        return wf_context_status(r->ctx);
    if (r->first &&
        wf_run_log_begin(run->log, step > e->logged ? step : e->logged, &error) == WF_OK &&
        run->timeline)
        wf_timeline_begin(run->timeline, &error);
    if (wf_run_note(r, &error) != WF_OK)
        return wf_context_status(r->ctx);
    if (r->first && r->elastic.restarted)
        wf_run_log_clear(run->log);
    if (r->first && r->job->mesh.cuda_graph && !r->elastic.restarted && wf_run_waits(r)) {
        fprintf(run->out, "each step is finished before the next one is launched: %s\n",
                wf_run_waits(r));
        fflush(run->out);
    }
    wf_elastic_rank_begin(&r->elastic, step, run->mesh);
    return wf_context_status(r->ctx);
}

/* Finds what there is before the first step of this launch. */
static wf_status prepare(wf_run_rank_state *r, int64_t *step)
{
    const wf_run *run = r->run;
    wf_elastic *e = run->elastic;

    if (r->first && !r->elastic.restarted && run->hooks.introduce) {
        wf_comm_at_files(r->rank.world, true); /* a console that holds the run up is no stall */
        run->hooks.introduce(&r->r, r->job->arg);
        wf_comm_at_files(r->rank.world, false);
    }
    if (r->first && (r->elastic.restarted || wf_elastic_files_restarts()) &&
        wf_run_log_logged(run->log) > e->logged)
        e->logged = wf_run_log_logged(run->log); /* rows of a start before */
    if (wf_run_parts_open(r) != WF_OK || restore(r, step) != WF_OK)
        return wf_context_status(r->ctx);
    return begin_steps(r, *step);
}

wf_status wf_run_between_steps(wf_run_rank_state *r, const wf_step_log *made)
{
    const wf_run_between *between = &r->run->between;
    bool stop = false;

    if (!between->function || r->stop || wf_context_status(r->ctx) != WF_OK)
        return wf_context_status(r->ctx);
    if (between->function(&r->r, made, &stop, between->arg) == WF_OK && stop) {
        r->stop = true;
        wf_saving_finish(&r->saving);
    }
    return wf_context_status(r->ctx);
}

wf_status wf_run_steps(wf_run_rank_state *r)
{
    const wf_elastic *e = r->run->elastic;
    int64_t step, last = wf_run_parts_last(r);

    if (prepare(r, &step) != WF_OK)
        return wf_context_status(r->ctx);
    r->resumed = step;
    if (wf_run_between_steps(r, NULL) != WF_OK)
        return wf_context_status(r->ctx);
    r->elastic.leaves = r->stop && r->run->recovery_dir;
    while (++step <= last && !r->stop && !r->elastic.leaves && wf_run_step(r, step) == WF_OK)
        r->elastic.leaves =
            r->stop ? r->run->recovery_dir != NULL : e->leave_after && step >= e->leave_after;
    if (wf_context_status(r->ctx) == WF_ENONFINITE) /* every rank has found it */
        wf_saving_finish(&r->saving);
    if (r->first)
        wf_run_log_clear(r->run->log);
    return r->elastic.leaves ? wf_context_status(r->ctx) : wf_run_parts_end(r);
}

/* parallel/program/rank_parts.c - what each rank holds after a step: written down, or compared
   with a run before; flipped bits. */
#include "parallel/main.h"
#include "parallel/program/rank_internal.h"
#include <stdlib.h>

int64_t wf_run_parts_last(const wf_run_rank_state *r)
{
    const wf_run *run = r->run;
    int64_t last = r->job->steps;

    if (run->replay && wf_replay_last(run->replay) < last)
        last = wf_replay_last(run->replay);
    return run->replay_to && run->replay_to < last ? run->replay_to : last;
}

wf_status wf_run_parts_open(wf_run_rank_state *r)
{
    wf_error error = {WF_OK, ""};

    if (r->run->log_digests)
        wf_parts_log_open(&r->parts, r->run->log_digests, r->rank.index, &error);
    return wf_run_note(r, &error);
}

wf_status wf_run_parts_begin(wf_run_rank_state *r)
{
    wf_error error = {WF_OK, ""};

    if (!r->run->log_digests)
        return wf_context_status(r->ctx);
    if (!r->elastic.restarted && !r->run->continues)
        wf_parts_log_fresh(&r->parts, &error);
    wf_run_note(r, &error);
    wf_mesh_gather(wf_par_mesh(r->r.par), &(const char){1}, 1); /* all, before any begins */
    return wf_context_status(r->ctx);
}

/* Writes down what the rank holds. A file that takes no row ends no run, and is reported
   once. */
static wf_status log_parts(wf_run_rank_state *r, int64_t step)
{
    wf_error error = {WF_OK, ""}, unwritten = {WF_OK, ""};
    wf_par_held_part *part = NULL;
    int64_t n;

    if (wf_par_trainer_parts(r->r.trainer, &part, &n) == WF_OK)
        wf_parts_log_step(&r->parts, step, &r->rank, r->run->numerics, part, n, &unwritten,
                          &error);
    if (unwritten.code != WF_OK && !r->unwritten)
        wf_par_report_line(r->run->program, "warning: %s", unwritten.text);
    r->unwritten |= unwritten.code != WF_OK;
    free(part);
    return wf_run_note(r, &error);
}

wf_status wf_run_parts_step(wf_run_rank_state *r, int64_t step)
{
    const wf_flip *flip = &r->run->flip;

    if (flip->step == step && flip->rank == r->rank.index &&
        wf_par_trainer_flip_bit(r->r.trainer, flip->path, flip->kind, flip->element,
                                flip->bit) != WF_OK)
        return wf_context_status(r->ctx);
    if (r->run->log_digests && log_parts(r, step) != WF_OK)
        return wf_context_status(r->ctx);
    if (r->run->replay)
        wf_replay_step(r->run->replay, r->r.par, r->r.trainer, step,
                       r->first ? r->run->out : NULL);
    return wf_context_status(r->ctx);
}

wf_status wf_run_parts_end(wf_run_rank_state *r)
{
    int64_t first = r->resumed + 1, last = wf_run_parts_last(r);

    if (!r->run->replay || wf_context_status(r->ctx) != WF_OK)
        return wf_context_status(r->ctx);
    if (first > last)
        return wf_fail(r->ctx, WF_EINVAL,
                       "--replay: the checkpoint is of step %lld, and the last step to repeat "
                       "%lld: --resume an earlier one",
                       (long long)first - 1, (long long)last);
    if (r->first) {
        wf_replay_report(r->run->replay, first, last, r->run->out);
        fflush(r->run->out);
    }
    return WF_OK;
}

/* apps/gpt_train/rank_parts.c - see the header. */
#include "apps/gpt_train/rank_parts.h"
#include <stdlib.h>

wf_status rank_parts_read(const app_options *o, const char *numerics, wf_replay **replay,
                          wf_flip *flip, wf_error *error)
{
    if (o->flip_bit && wf_flip_read(o->flip_bit, flip, error) != WF_OK)
        return error->code;
    return o->replay ? wf_replay_open(o->replay, numerics, replay, error) : WF_OK;
}

int64_t rank_parts_last(const rank_parts *p)
{
    int64_t last = p->options->steps, to = p->options->replay_to;

    if (p->replay && wf_replay_last(p->replay) < last)
        last = wf_replay_last(p->replay);
    return to && to < last ? to : last;
}

wf_status rank_parts_open(rank_parts *p)
{
    wf_error error = {WF_OK, ""};

    if (p->options->log_digests &&
        wf_parts_log_open(&p->log, p->options->log_digests, p->rank->index, &error) != WF_OK)
        wf_fail(wf_par_context(p->par), error.code, "%s", error.text);
    return wf_context_status(wf_par_context(p->par));
}

wf_status rank_parts_begin(rank_parts *p, bool continues)
{
    wf_error error = {WF_OK, ""};

    if (!continues && wf_parts_log_fresh(&p->log, &error) != WF_OK)
        wf_fail(wf_par_context(p->par), error.code, "%s", error.text);
    return wf_context_status(wf_par_context(p->par));
}

wf_status rank_parts_step(rank_parts *p, wf_par_trainer *trainer, int64_t step)
{
    const wf_flip *flip = &p->flip;
    wf_context *ctx = wf_par_context(p->par);
    wf_error error = {WF_OK, ""}, unwritten = {WF_OK, ""};
    wf_par_held_part *part = NULL;
    int64_t n;

    if (flip->step == step && flip->rank == p->rank->index &&
        wf_par_trainer_flip_bit(trainer, flip->path, flip->kind, flip->element, flip->bit) !=
            WF_OK)
        return wf_context_status(ctx);
    if (p->options->log_digests && wf_par_trainer_parts(trainer, &part, &n) == WF_OK &&
        wf_parts_log_step(&p->log, step, p->rank, p->numerics, part, n, &unwritten, &error) !=
            WF_OK)
        wf_fail(ctx, error.code, "%s", error.text);
    if (unwritten.code != WF_OK && !p->unwritten)
        fprintf(stderr, "gpt_train: warning: %s\n", unwritten.text);
    p->unwritten |= unwritten.code != WF_OK;
    free(part);
    if (p->replay && wf_context_status(ctx) == WF_OK)
        wf_replay_step(p->replay, p->par, trainer, step, p->rank->index == 0 ? stdout : NULL);
    return wf_context_status(ctx);
}

wf_status rank_parts_tell(const rank_parts *p, int64_t first, int64_t last)
{
    wf_context *ctx = wf_par_context(p->par);

    if (!p->replay || wf_context_status(ctx) != WF_OK)
        return wf_context_status(ctx);
    if (first > last)
        return wf_fail(
            ctx, WF_EINVAL,
            "--replay: the checkpoint is of step %lld, and the last step to make again "
            "%lld: --resume an earlier one",
            (long long)first - 1, (long long)last);
    if (p->rank->index == 0) {
        wf_replay_report(p->replay, first, last, stdout);
        fflush(stdout);
    }
    return WF_OK;
}

void rank_parts_close(rank_parts *p)
{
    wf_parts_log_close(&p->log);
}

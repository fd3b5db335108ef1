/* parallel/train/state.c - the state of a trainer: the step that it is of, its digest, and one
 * that was restored. */
#include "parallel/train/engine_internal.h"
#include <inttypes.h>

int64_t wf_par_trainer_steps(const wf_par_trainer *t)
{
    return t ? t->committed.step : 0;
}

int64_t wf_par_trainer_skipped(const wf_par_trainer *t)
{
    return t ? t->committed.skipped : 0;
}

wf_status wf_par_trainer_check(const wf_par_trainer *t)
{
    wf_context *ctx = t->par->ctx;

    if (wf_context_status(ctx) == WF_OK && t->launches && !t->launching)
        return wf_fail(ctx, WF_EINVAL,
                       "step %" PRId64
                       " was launched, and its judgment not read: wf_par_train_finish comes "
                       "first",
                       t->launched[0].step);
    if (wf_context_status(ctx) != WF_OK || !t->committed.under_way)
        return wf_context_status(ctx);
    return wf_fail(ctx, WF_EINVAL,
                   "the update after step %" PRId64
                   " failed before its end, so that parameters and moments are those of no "
                   "step: load a checkpoint (wf_par_checkpoint_load)",
                   t->committed.step);
}

wf_status wf_par_trainer_digest(wf_par_trainer *t, uint64_t *digest)
{
    if (!t)
        return WF_EINVAL;
    wf_par_trainer_check(t);
    return wf_par_digest(t->par, t->count, t->parameter, t->optimizer, digest);
}

wf_status wf_par_trainer_digests(wf_par_trainer *t, wf_par_tensor_digest **list, int64_t *n)
{
    *list = NULL;
    *n = 0;
    if (!t)
        return WF_EINVAL;
    wf_par_trainer_check(t);
    return wf_par_digests(t->par, t->count, t->parameter, t->optimizer, list, n);
}

int64_t wf_par_trainer_fresh(const wf_par_trainer *t)
{
    return t ? t->committed.fresh : 0;
}

void wf_par_launched_drop(wf_par_trainer *t)
{
    for (int i = 0; i < t->launches; i++)
        if (!t->launched[i].judged)
            t->engine->judged(t, t->launched[i].slot);
    if (t->launches && t->engine->clear)
        t->engine->clear(t);
    t->launches = 0;
}

void wf_par_trainer_restored(wf_par_trainer *t, int64_t steps, int64_t skipped, int64_t fresh)
{
    wf_par_launched_drop(t);
    wf_nn_optimizer_resume(t->optimizer, steps - fresh, skipped);
    t->committed = (wf_par_committed){.step = steps, .skipped = skipped, .fresh = fresh};
    t->mirrored = false;
}

wf_par_train_state wf_par_trainer_state(const wf_par_trainer *t)
{
    if (!t)
        return (wf_par_train_state){.par = NULL};
    return (wf_par_train_state){.par = t->par,
                                .count = t->count,
                                .parameter = t->parameter,
                                .optimizer = t->optimizer,
                                .global_batch = t->options.global_batch};
}

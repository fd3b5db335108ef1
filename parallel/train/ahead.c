/* parallel/train/ahead.c - the training step, as a composition of its parts: made at once, or
   launched for the device to judge. */
#include "parallel/train/ahead.h"
#include "parallel/train/engine_internal.h"
#include "parallel/train/measure_internal.h"
#include "parallel/train/step_alike_internal.h"
#include <inttypes.h>
#include <string.h>

/* Makes a step whose loss and norm the host reads before its update. */
static wf_status make_at_once(wf_par_trainer *t, wf_par_launched *l)
{
    const wf_par_data *data = l->has_data ? &l->data : NULL;
    wf_par_step *result = &l->result;
    char why[96];
    wf_status status;

    wf_par_step_begin(t, l->step);
    t->alike.rate = result->lr;
    wf_par_forward_backward(t, data);
    wf_par_reduce(t, &result->loss);
    wf_par_clip(t, t->options.clip, &result->grad_norm);
    result->skipped = wf_par_skips(t, result->loss, result->grad_norm, why, sizeof why);
    if (result->skipped) {
        status = wf_par_skip_step(t, why);
    } else {
        wf_par_check_finite(t, result->loss, result->grad_norm, data);
        status = wf_par_optimizer_step(t, result->lr);
    }
    if (status != WF_ELOST) /* state of a failed step; where a rank was lost it may be of use */
        wf_par_zero_grad(t);
    l->judged = true;
    return status;
}

/* Queues a step that the device judges, with all that ranks have to have alike. */
static wf_status queue(wf_par_trainer *t, wf_par_launched *l)
{
    wf_context *ctx = t->par->ctx;

    wf_par_step_begin(t, l->step);
    t->step.ahead = true;
    t->alike.rate = l->result.lr;
    wf_par_forward_backward(t, l->has_data ? &l->data : NULL);
    t->alike.clip = t->options.clip;
    if (wf_par_reduce(t, NULL) != WF_OK)
        return wf_par_zero_grad(t);
    wf_context_phase(ctx, "optimizer");
    l->before = t->committed;
    t->committed.under_way = true;
    wf_par_units_change(t->units);
    t->engine->launch(t, l->result.lr, l->slot);
    l->evaluated = t->alike.evaluated;
    t->alike.evaluated = 0;
    if (wf_context_status(ctx) == WF_OK)
        t->committed = (wf_par_committed){l->step, l->result.lr, 1,
                                          .skipped = wf_nn_optimizer_skipped(t->optimizer),
                                          .fresh = t->committed.fresh};
    return wf_par_step_end(t);
}

static bool may_queue(const wf_par_trainer *t)
{
    return t->engine->at_once && !t->engine->at_once(t) && t->engine->launches(t);
}

static wf_status make(wf_par_trainer *t, wf_par_launched *l)
{
    return may_queue(t) ? queue(t, l) : make_at_once(t, l);
}

/* Repeats the oldest step, which the device has held, with the host as its judge, so that it
   ends as it would have ended there: with its error, or skipped. Neither it nor later ones have
   changed anything; these are queued anew. All ranks' devices have judged by the same numbers,
   so all ranks do this. */
static wf_status repeat(wf_par_trainer *t)
{
    wf_status status;

    t->engine->clear(t);
    wf_nn_optimizer_take_back(t->optimizer, t->launches);
    t->committed = t->launched[0].before;
    t->alike.evaluated = t->launched[0].evaluated;
    status = make_at_once(t, &t->launched[0]);
    for (int i = 1; i < t->launches && status == WF_OK; i++)
        status = make(t, &t->launched[i]);
    return status;
}

/* Reads the judgment of the oldest step. */
static wf_status judge(wf_par_trainer *t)
{
    wf_par_launched *l = &t->launched[0];
    wf_judged found;

    if (l->judged)
        return wf_context_status(t->par->ctx);
    found = t->engine->judged(t, l->slot);
    if (found.held)
        return repeat(t);
    wf_par_inexact_on(t->par, found.inexact);
    wf_par_report_inexact(t->par);
    l->result.loss = found.loss;
    l->result.grad_norm = found.norm;
    l->judged = true;
    return wf_context_status(t->par->ctx);
}

const char *wf_par_train_at_once(const wf_par_trainer *t)
{
    if (!t)
        return "no trainer";
    return t->engine->at_once ? t->engine->at_once(t)
                              : "steps that are not captured as graphs (cuda_graph)";
}

wf_status wf_par_train_launch(wf_par_trainer *t, int64_t step, const wf_par_data *data)
{
    wf_par_launched *l;
    wf_status status;

    if (!t)
        return WF_EINVAL; /* the reason is in the context of wf_par_trainer_open */
    if (t->launches == WF_PAR_LAUNCHED)
        return wf_fail(t->par->ctx, WF_EINVAL,
                       "steps %" PRId64 " and %" PRId64
                       " were launched: wf_par_train_finish comes before the next one",
                       t->launched[0].step, t->launched[1].step);
    if (t->options.schedule.lr == 0)
        wf_context_warn(t->par->ctx, &t->options.schedule,
                        "the schedule's learning rate is 0 (wf_nn_schedule.lr), so no step "
                        "changes a parameter");
    t->launching = true;
    status = t->launches && !may_queue(t) ? judge(t) : WF_OK;
    l = &t->launched[t->launches];
    *l = (wf_par_launched){.step = step,
                           .has_data = data != NULL,
                           .slot = t->launches ? !t->launched[0].slot : 0,
                           .result = {.lr = wf_nn_schedule_at(&t->options.schedule, step)}};
    if (data)
        l->data = *data;
    t->launches++;
    if (status == WF_OK)
        status = make(t, l);
    if (status != WF_OK && t->launches > 1)
        t->launches--; /* the one before is still to be finished */
    t->launching = false;
    return status;
}

wf_status wf_par_train_finish(wf_par_trainer *t, wf_par_step *result)
{
    wf_par_step unread;
    wf_status status;

    if (!result)
        result = &unread;
    *result = (wf_par_step){.loss = 0};
    if (!t)
        return WF_EINVAL;
    if (!t->launches)
        return wf_fail(t->par->ctx, WF_EINVAL,
                       "no step was launched: wf_par_train_launch comes before "
                       "wf_par_train_finish");
    t->launching = true;
    status = judge(t);
    t->launching = false;
    *result = t->launched[0].result;
    t->launches--;
    memmove(t->launched, t->launched + 1, (size_t)t->launches * sizeof *t->launched);
    return status;
}

wf_status wf_par_train_step(wf_par_trainer *trainer, int64_t step, const wf_par_data *data,
                            wf_par_step *result)
{
    wf_status status;

    if (result)
        *result = (wf_par_step){.loss = 0};
    if (!trainer)
        return WF_EINVAL; /* the reason is in the context of wf_par_trainer_open */
    if (trainer->launches && wf_par_trainer_check(trainer) != WF_OK)
        return wf_context_status(trainer->par->ctx);
    status = wf_par_train_launch(trainer, step, data);
    wf_par_train_finish(trainer, result);
    return status == WF_OK ? wf_context_status(trainer->par->ctx) : status;
}

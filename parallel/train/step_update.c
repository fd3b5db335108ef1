/* parallel/train/step_update.c - the end of a training step, in the order in which it comes:
   gradients that are reduced are looked at, clipped, and taken by the optimizer. */
#include "parallel/train/engine_internal.h"
#include "parallel/train/measure_internal.h"
#include "parallel/train/step_alike_internal.h"
#include "parallel/train/step_internal.h"
#include <math.h>

wf_tensor *wf_par_gradient(wf_par_trainer *t, const wf_nn_parameter *parameter)
{
    int64_t i = 0;

    if (!t || !wf_par_step_may_come(t, "wf_par_gradient", t->step.at == WF_PAR_AT_REDUCED))
        return NULL;
    while (i < t->count && t->parameter[i] != parameter)
        i++;
    if (i < t->count)
        return t->step.grad[i];
    wf_fail(t->par->ctx, WF_EINVAL, "%s is no parameter of the model that is trained",
            parameter ? parameter->path : "NULL");
    return NULL;
}

wf_status wf_par_clip_check(wf_par *par, float max_norm)
{
    return max_norm >= 0 && isfinite(max_norm)
               ? wf_context_status(par->ctx)
               : wf_fail(par->ctx, WF_EINVAL,
                         "clip %g: the bound of the gradients' norm is finite and at least 0, "
                         "where 0 leaves them as they are",
                         (double)max_norm);
}

wf_status wf_par_clip(wf_par_trainer *t, float max_norm, double *norm)
{
    double value = 0;
    wf_context *ctx;
    uint64_t sum;

    if (norm)
        *norm = 0;
    if (!t)
        return WF_EINVAL;
    ctx = t->par->ctx;
    if (wf_par_clip_check(t->par, max_norm) != WF_OK ||
        !wf_par_step_may_come(t, "wf_par_clip", t->step.at == WF_PAR_AT_REDUCED))
        return wf_context_status(ctx);
    t->alike.clip = max_norm;
    sum = wf_par_alike_summand(t);
    if (wf_par_norm_beside(t->par, t->count, t->parameter, t->step.grad, &sum, &value) !=
            WF_OK ||
        wf_par_alike_check(t, sum) != WF_OK)
        return wf_context_status(ctx);
    t->step.grad_scale = wf_clip_scale(value, max_norm);
    if (norm)
        *norm = value;
    return wf_context_status(ctx);
}

wf_status wf_par_optimizer_step(wf_par_trainer *t, float lr)
{
    wf_context *ctx;
    float scale;
    double share;

    if (!t)
        return WF_EINVAL;
    ctx = t->par->ctx;
    scale = t->step.grad_scale;
    if (!wf_par_step_may_come(t, "wf_par_optimizer_step", t->step.at == WF_PAR_AT_REDUCED))
        return wf_context_status(ctx);
    if (!(lr >= 0) || !isfinite(lr))
        return wf_fail(ctx, WF_EINVAL, "learning rate %g: it is finite and at least 0",
                       (double)lr);
    if (!t->alike.done) {
        t->alike.rate = lr;
        wf_par_alike_agree(t);
    }
    wf_context_phase(ctx, "optimizer");
    if (wf_context_status(ctx) != WF_OK)
        return wf_context_status(ctx);
    t->committed.under_way = true;
    wf_par_units_change(t->units);
    share = wf_context_model_share(ctx, 0);
    t->engine->update(t, lr, scale);
    if (t->buddies)
        wf_par_buddies_update(t->buddies);
    wf_context_model_share(ctx, share);
    if (wf_context_status(ctx) == WF_OK)
        t->committed = (wf_par_committed){t->step.number, lr, scale,
                                          .skipped = wf_nn_optimizer_skipped(t->optimizer),
                                          .fresh = t->committed.fresh};
    return wf_par_step_end(t);
}

wf_status wf_par_step_end(wf_par_trainer *t)
{
    wf_context *ctx = t->par->ctx;

    wf_par_zero_grad(t);
    wf_par_report_inexact(t->par);
    if (t->options.check_replicas && t->step.number % t->options.check_replicas == 0)
        wf_par_trainer_check_replicas(t);
    wf_pace_sleep(&t->par->pace);
    if (wf_context_status(ctx) == WF_OK)
        wf_par_action_end(t);
    return wf_context_status(ctx);
}

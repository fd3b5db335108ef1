/* parallel/train/train.c - the training step, as a composition of its parts. */
#include "parallel/train/train_internal.h"

wf_status wf_par_train_step(wf_par_trainer *trainer, int64_t step, const wf_par_data *data,
                            wf_par_step *result)
{
    const wf_par_train_options *o;
    wf_par_step unread;
    char why[96];
    wf_status status;

    if (!result)
        result = &unread;
    *result = (wf_par_step){.loss = 0};
    if (!trainer)
        return WF_EINVAL; /* the reason is in the context of wf_par_trainer_open */
    o = &trainer->options;
    *result = (wf_par_step){.lr = wf_nn_schedule_at(&o->schedule, step)};
    if (o->schedule.lr == 0)
        wf_context_warn(trainer->par->ctx, &o->schedule,
                        "the schedule's learning rate is 0 (wf_nn_schedule.lr), so no step "
                        "changes a parameter");
    wf_par_step_begin(trainer, step);
    trainer->alike.rate = result->lr;
    wf_par_forward_backward(trainer, data);
    wf_par_reduce(trainer, &result->loss);
    wf_par_clip(trainer, o->clip, &result->grad_norm);
    result->skipped = wf_par_skips(trainer, result->loss, result->grad_norm, why, sizeof why);
    if (result->skipped) {
        status = wf_par_skip_step(trainer, why);
    } else {
        wf_par_check_finite(trainer, result->loss, result->grad_norm, data);
        status = wf_par_optimizer_step(trainer, result->lr);
    }
    if (status != WF_ELOST) /* state of a failed step; where a rank was lost it may be of use */
        wf_par_zero_grad(trainer);
    return status;
}

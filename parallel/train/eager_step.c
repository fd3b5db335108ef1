/* parallel/train/eager_step.c - the parts of a step, op by op. */
#include "parallel/shard/update_internal.h"
#include "parallel/train/added_loss_internal.h"
#include "parallel/train/engine_internal.h"
#include "parallel/train/losses_internal.h"
#include "parallel/train/read_batch_internal.h"
#include "parallel/train/step_internal.h"

wf_status wf_par_eager_open(wf_par_trainer *t)
{
    for (int64_t i = 0; i < t->count; i++)
        if (wf_tensor_is_fake(t->parameter[i]->tensor))
            return wf_fail(t->par->ctx, WF_EINVAL,
                           "parameter %s is fake: wf_par_materialize comes before a trainer",
                           t->parameter[i]->path);
    t->gradients = wf_par_gradients_open(t->par, t->per_sequence, t->count, t->parameter);
    return wf_context_status(t->par->ctx);
}

void wf_par_eager_close(wf_par_trainer *t)
{
    wf_par_gradients_close(t->gradients);
}

static wf_status forward_backward(wf_par_trainer *t, const wf_par_data *data)
{
    return wf_par_run_micro_steps(t, data, NULL);
}

wf_tensor *wf_par_eager_sums(wf_par_trainer *t)
{
    wf_tensor *total = wf_par_losses_total(t, &t->losses);

    if (wf_context_status(t->par->ctx) == WF_OK)
        wf_par_gradients_finish(t->gradients, t->step.grad);
    return total;
}

wf_status wf_par_eager_reduce(wf_par_trainer *t, float *mean)
{
    wf_tensor *total = wf_par_eager_sums(t);

    if (mean && total)
        wf_par_losses_mean(t, &t->losses, total, mean);
    wf_tensor_release(total);
    if (wf_par_added_means(t) == WF_OK && wf_par_added_sum(t) == WF_OK)
        wf_par_check_unused(t);
    return wf_context_status(t->par->ctx);
}

wf_status wf_par_eager_evaluate(wf_par_trainer *t, int64_t number, const wf_par_data *data,
                                wf_par_loss_function *metric, float *mean)
{
    wf_context *ctx = t->par->ctx;
    wf_tensor *total;

    if (!metric)
        metric = wf_par_loss_of(t);
    for (int64_t k = 0; k < t->micros && wf_context_status(ctx) == WF_OK; k++) {
        wf_par_batch batch;

        wf_scope_open(ctx);
        batch = wf_par_batch_new(t);
        if (wf_par_batch_read(t, &batch, data, number, k) == WF_OK) {
            const char *outside = wf_context_enter(ctx, WF_PAR_LOSS_FUNCTION);
            wf_tensor *loss = metric(t->model, &batch);

            wf_context_enter(ctx, outside);
            wf_par_losses_put(t, &batch, k, NULL, loss);
        }
        wf_scope_close(ctx);
    }
    total = wf_par_losses_total(t, &t->losses);
    if (total)
        wf_par_losses_mean(t, &t->losses, total, mean);
    wf_tensor_release(total);
    return wf_context_status(ctx);
}

wf_status wf_par_eager_update(wf_par_trainer *t, float lr, float scale)
{
    return wf_par_update(t->par, t->optimizer, t->count, t->parameter, t->step.grad, lr, scale);
}

const wf_par_engine wf_par_engine_eager = {.open = wf_par_eager_open,
                                           .forward_backward = forward_backward,
                                           .reduce = wf_par_eager_reduce,
                                           .evaluate = wf_par_eager_evaluate,
                                           .update = wf_par_eager_update,
                                           .close = wf_par_eager_close};

/* parallel/train/evaluate.c - the mean of a loss, or of another number, over other data. */
#include "parallel/train/engine_internal.h"
#include "parallel/train/read_batch_internal.h"
#include "parallel/train/step_internal.h"
#include <inttypes.h>
#include <math.h>

/* Returns the weight of a batch among the others: 1 where the data give none. */
static int64_t count_batch(wf_par_trainer *t, int64_t number, const wf_par_data *data)
{
    wf_error error = {WF_OK, "the data gave no reason"};
    int64_t count = -1;

    if (data && !wf_context_dry_run(t->par->ctx) &&
        wf_par_count(data, number, &count, &error) != WF_OK)
        wf_fail(t->par->ctx, error.code, "%s", error.text);
    return count < 0 ? 1 : count;
}

wf_status wf_par_evaluate(wf_par_trainer *t, int64_t batches, const wf_par_data *data,
                          wf_par_loss_function *metric, float *mean)
{
    return wf_par_evaluate_until(t, batches, data, metric, NULL, NULL, mean);
}

/* Batch by batch, so that the tree over sequences is that of a training step. */
wf_status wf_par_evaluate_until(wf_par_trainer *t, int64_t batches, const wf_par_data *data,
                                wf_par_loss_function *metric, bool (*stop)(void *arg),
                                void *arg, float *mean)
{
    bool training, stopped = false, averages;
    double sum = 0, counted = 0;
    wf_dtype storage;
    wf_context *ctx;
    float unread;

    if (!mean)
        mean = &unread;
    *mean = 0;
    if (!t)
        return WF_EINVAL;
    ctx = t->par->ctx;
    training = wf_context_is_training(ctx);
    if (batches < 1)
        return wf_fail(ctx, WF_EINVAL,
                       "an evaluation of %" PRId64 " batches has no mean: take 1 at least",
                       batches);
    if (t->step.at == WF_PAR_AT_MICRO_STEPS)
        return wf_par_misplaced(t, "wf_par_evaluate");
    if (wf_par_trainer_check(t) != WF_OK ||
        wf_par_divide_batch(t, t->options.global_batch) != WF_OK)
        return wf_context_status(ctx);
    averages = t->options.evaluate_average && !t->averaged;
    if (averages && wf_par_trainer_average(t, true) != WF_OK)
        return wf_context_status(ctx);
    storage = wf_context_storage(ctx, t->par->options.dtype);
    wf_context_training(ctx, false);
    wf_context_phase(ctx, "evaluation");
    for (int64_t i = 0; i < batches && wf_context_status(ctx) == WF_OK; i++) {
        float one = 0;
        double count;

        stopped = stop && stop(arg);
        if (stopped)
            break;
        count = (double)count_batch(t, i, data);
        t->engine->evaluate(t, i, data, metric, &one);
        sum += count * (double)one;
        counted += count;
    }
    if (averages)
        wf_par_average_end(t);
    wf_par_report_inexact(t->par);
    wf_context_phase(ctx, NULL);
    wf_context_storage(ctx, storage);
    wf_context_training(ctx, training);
    if (stopped) { /* a mean of fewer batches is another number */
        *mean = NAN;
        return wf_context_status(ctx);
    }
    if (wf_context_status(ctx) == WF_OK && counted <= 0)
        return wf_fail(ctx, WF_EDATA,
                       "nothing of the %" PRId64
                       " batches of the evaluation counts (all targets are -1), so that there "
                       "is no mean: take other data, or more batches",
                       batches);
    if (wf_context_status(ctx) == WF_OK)
        *mean = (float)(sum / counted);
    return wf_context_status(ctx);
}

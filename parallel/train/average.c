/* parallel/train/average.c - a model that computes with the moving average of its weights; see
   train.h. */
#include "parallel/shard/update_internal.h"
#include "parallel/train/train_internal.h"

/* Exchanges the memory of two tensors of one size, and with it what all that share theirs
   see. */
static wf_status exchange(wf_tensor *a, wf_tensor *b)
{
    wf_tensor *between = wf_tensor_absent(a->ctx, a->dtype, a->ndim, a->dim, a->layout);

    if (!between || wf_tensor_take(between, a) != WF_OK || wf_tensor_take(a, b) != WF_OK)
        return wf_context_status(a->ctx);
    return wf_tensor_take(b, between);
}

/* Returns the average of parameter i in the layout of its weights, retained: that of the
   optimizer itself, where it lies so, else one that is gathered; NULL: there is none. */
static wf_tensor *average_of(wf_par_trainer *t, int64_t i)
{
    const wf_par_parameter_state *h = wf_par_state_of(t->parameter[i]);
    wf_tensor *e = wf_nn_optimizer_moment(t->optimizer, i, WF_NN_STATES), *moved = e;

    if (!e || wf_tensor_is_fake(e))
        return NULL;
    if (h->optimizer == h->shard_layout)
        return wf_tensor_retain(e);
    wf_scope_open(t->par->ctx);
    if (wf_par_move_run(t->par, WF_MEMORY_BUFFER, 1, &e, &h->shard_layout, &moved) == WF_OK)
        wf_tensor_retain(moved);
    else
        moved = NULL;
    wf_scope_close(t->par->ctx);
    return moved;
}

/* Exchanges weights and averages. */
static void exchange_all(wf_par_trainer *t)
{
    wf_par_units_change(t->units);
    for (int64_t i = 0; i < t->count && wf_context_status(t->par->ctx) == WF_OK; i++)
        if (t->averaged[i])
            exchange(t->parameter[i]->tensor, t->averaged[i]);
}

static wf_status begin(wf_par_trainer *t)
{
    wf_context *ctx = t->par->ctx;

    t->averaged =
        wf_blocks_take(wf_context_blocks(ctx), (size_t)t->count * sizeof *t->averaged);
    if (!t->averaged)
        return wf_fail(ctx, WF_ENOMEM, "no memory for the averages of %lld parameters",
                       (long long)t->count);
    for (int64_t i = 0; i < t->count; i++)
        t->averaged[i] = wf_context_status(ctx) == WF_OK ? average_of(t, i) : NULL;
    exchange_all(t);
    return wf_context_status(ctx);
}

void wf_par_average_end(wf_par_trainer *t)
{
    if (!t->averaged)
        return;
    exchange_all(t);
    for (int64_t i = 0; i < t->count; i++)
        wf_tensor_release(t->averaged[i]);
    wf_blocks_give(wf_context_blocks(t->par->ctx), t->averaged,
                   (size_t)t->count * sizeof *t->averaged);
    t->averaged = NULL;
}

wf_status wf_par_average_ended(const wf_par_trainer *t)
{
    return t->averaged ? wf_fail(t->par->ctx, WF_EINVAL,
                                 "a step begins while the model has the moving average of its "
                                 "weights: end that first (wf_par_trainer_average)")
                       : wf_context_status(t->par->ctx);
}

wf_status wf_par_trainer_average(wf_par_trainer *t, bool on)
{
    wf_context *ctx;

    if (!t)
        return WF_EINVAL; /* the reason is in the context of wf_par_trainer_open */
    ctx = t->par->ctx;
    if (!(t->options.optimizer.ema > 0))
        return wf_fail(ctx, WF_EINVAL,
                       "the optimizer keeps no moving average of the weights: set .ema of its "
                       "options");
    if (wf_context_status(ctx) == WF_OK && t->step.at != WF_PAR_AT_NONE)
        return wf_fail(
            ctx, WF_EINVAL,
            "weights and moving average are exchanged between steps, and step %lld has begun",
            (long long)t->step.number);
    if (!on)
        wf_par_average_end(t);
    else if (!t->averaged && t->committed.step - t->committed.fresh > t->committed.skipped &&
             wf_context_status(ctx) == WF_OK)
        begin(t);
    return wf_context_status(ctx);
}

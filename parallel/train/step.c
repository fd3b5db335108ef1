/* parallel/train/step.c - the parts of a training step, in the order in which they come. */
#include "parallel/train/added_loss_internal.h"
#include "parallel/train/engine_internal.h"
#include "parallel/train/losses_internal.h"
#include "parallel/train/read_batch_internal.h"
#include "parallel/train/step_alike_internal.h"
#include "parallel/train/step_internal.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

wf_status wf_par_misplaced(wf_par_trainer *t, const char *part)
{
    const wf_par_step_state *s = &t->step;
    const char *next = "wf_par_step_begin";
    char where[96] = "no step has begun";

    if (s->at == WF_PAR_AT_REDUCED) {
        snprintf(where, sizeof where, "the gradients of step %" PRId64 " are reduced",
                 s->number);
        next = "wf_par_optimizer_step (or wf_par_gradient, wf_par_clip, wf_par_check_finite)";
    } else if (s->at == WF_PAR_AT_MICRO_STEPS && s->running) {
        snprintf(where, sizeof where, "micro-step %" PRId64 " of %" PRId64 " has begun",
                 s->micro + 1, t->micros);
        next = "wf_par_backward";
    } else if (s->at == WF_PAR_AT_MICRO_STEPS) {
        snprintf(where, sizeof where, "%" PRId64 " of %" PRId64 " micro-steps are done",
                 s->micro, t->micros);
        next = s->micro == t->micros ? "wf_par_reduce"
               : s->micro            ? "wf_par_micro_step_begin"
                                     : "wf_par_micro_step_begin (or wf_par_forward_backward)";
    }
    return wf_fail(t->par->ctx, WF_EINVAL, "%s was called, but %s: %s comes next", part, where,
                   next);
}

bool wf_par_step_may_come(wf_par_trainer *t, const char *part, bool here)
{
    if (wf_context_status(t->par->ctx) == WF_OK && !here)
        wf_par_misplaced(t, part);
    return wf_context_status(t->par->ctx) == WF_OK;
}

int64_t wf_par_micro_steps(const wf_par_trainer *t)
{
    return t ? t->micros : 0;
}

/* The tape of a micro-step ends, and with it what it has changed in the context. */
static void close_tape(wf_par_trainer *t)
{
    t->units->pass.gradients = NULL;
    wf_par_added_receive(t, false);
    wf_tape_close(t->step.tape);
    t->step.tape = NULL;
    t->step.running = false;
    wf_context_micro_steps(t->par->ctx, 1);
    wf_context_batch(t->par->ctx, 0);
    wf_context_storage(t->par->ctx, t->step.storage);
}

static void end_micro_step(wf_par_trainer *t)
{
    wf_context_rows_unreduced(t->par->ctx, false);
    wf_context_model_share(t->par->ctx, 1);
    wf_scope_close(t->par->ctx);
}

void wf_par_step_drop(wf_par_trainer *t)
{
    if (t->step.running) {
        close_tape(t);
        end_micro_step(t);
    }
    for (int64_t i = 0; i < t->count; i++) {
        wf_tensor_release(t->step.grad[i]);
        t->step.grad[i] = NULL;
    }
    if (t->engine->drop)
        t->engine->drop(t);
    wf_par_losses_clear(t, &t->losses);
    wf_par_added_clear(t);
    if (t->buddies)
        wf_par_buddies_drop(t->buddies);
    t->step.at = WF_PAR_AT_NONE;
    t->step.counted = -1;
    t->step.of_graph = t->step.ahead = t->step.unread = false;
    t->step.op_by_op = false;
}

void wf_par_action_end(const wf_par_trainer *t)
{
    wf_context *ctx = t->par->ctx;

    if (!wf_context_action_now(ctx))
        return;
    wf_comm_action(wf_mesh_world(t->par->mesh), NULL, 0, 0);
    wf_context_action(ctx, NULL);
    wf_context_model_share(ctx, 1);
}

wf_status wf_par_zero_grad(wf_par_trainer *t)
{
    bool running;

    if (!t)
        return WF_EINVAL; /* the reason is in the context of wf_par_trainer_open */
    running = t->step.running;
    wf_par_step_drop(t);
    if (running)
        wf_par_units_reshard(t->units);
    if (t->gradients)
        wf_par_gradients_reset(t->gradients);
    wf_context_phase(t->par->ctx, NULL);
    return wf_context_status(t->par->ctx);
}

wf_status wf_par_step_begin(wf_par_trainer *t, int64_t step)
{
    if (!t)
        return WF_EINVAL;
    if (step < 1) { /* bias correction and warm-up divide by what it counts */
        wf_par_zero_grad(t);
        return wf_fail(t->par->ctx, WF_EINVAL,
                       "step %" PRId64 ": steps of training are counted from 1", step);
    }
    if (wf_par_trainer_check(t) != WF_OK || wf_par_average_ended(t) != WF_OK)
        return wf_context_status(t->par->ctx);
    wf_comm_position(wf_mesh_world(t->par->mesh), step, NULL);
    wf_pace_catch_up(&t->par->pace);
    wf_par_zero_grad(t);
    wf_par_divide_batch(t, wf_par_batch_at(t, step));
    wf_par_units_reshard(t->units); /* gathers that a failed step has left under way */
    wf_par_action_end(t);
    if (t->buddies && !t->mirrored)
        t->mirrored = wf_par_buddies_fill(t->buddies) == WF_OK;
    wf_par_alike_begin(t);
    t->step.at = WF_PAR_AT_MICRO_STEPS;
    t->step.number = step;
    t->step.micro = 0, t->step.grad_scale = 1;
    return wf_context_status(t->par->ctx);
}

/* Up to the tape: a caller without data makes its tensors on it. */
static const wf_par_batch *begin(wf_par_trainer *t, const wf_par_data *data,
                                 const wf_par_batch *given, bool reads)
{
    wf_context *ctx = t->par->ctx;
    wf_par_step_state *s = &t->step;

    s->storage = wf_context_storage(ctx, t->par->options.dtype);
    wf_scope_open(ctx);
    wf_context_position(ctx, s->number, wf_par_sequences(t, s->micro));
    wf_context_micro_steps(ctx, t->micros);
    wf_context_batch(ctx, t->options.global_batch);
    wf_context_rows_unreduced(ctx, t->per_sequence > 0); /* heads' gradients come in forward */
    wf_context_phase(ctx, "forward");
    wf_context_model_share(ctx, wf_par_share_of(t, s->micro, s->micro));
    if (given)
        s->batch = *given;
    else if (!reads)
        s->batch = wf_par_batch_without_tensors(t);
    else {
        s->batch = wf_par_batch_new(t);
        wf_par_batch_read(t, &s->batch, data, s->number, s->micro);
    }
    s->tape = wf_tape_open(ctx);
    wf_par_added_receive(t, true);
    s->running = true;
    return wf_context_status(ctx) == WF_OK ? &s->batch : NULL;
}

const wf_par_batch *wf_par_micro_step_begin(wf_par_trainer *t, const wf_par_data *data)
{
    const wf_par_step_state *s;

    if (!t)
        return NULL;
    s = &t->step;
    if (wf_context_status(t->par->ctx) == WF_OK && t->engine->scheduled)
        wf_fail(t->par->ctx, WF_EINVAL,
                "with a pipeline a schedule runs the micro-steps: call wf_par_forward_backward "
                "instead of wf_par_micro_step_begin and wf_par_backward");
    if (!wf_par_step_may_come(t, "wf_par_micro_step_begin",
                              s->at == WF_PAR_AT_MICRO_STEPS && !s->running &&
                                  s->micro < t->micros))
        return NULL;
    return begin(t, data, NULL, data != NULL);
}

wf_tensor *wf_par_seed_of(const wf_par_trainer *t, wf_tensor *loss)
{
    wf_context *ctx = t->par->ctx;
    wf_tensor *seed =
        wf_tensor_new(ctx, wf_context_device(ctx)->dtype, loss->ndim, loss->dim,
                      wf_layout_dual(t->par->mesh, loss->layout), WF_MEMORY_ACTIVATION);

    return seed && wf_init_fill(seed, t->losses.weight) == WF_OK ? seed : NULL;
}

wf_status wf_par_backward(wf_par_trainer *t, wf_tensor *loss)
{
    wf_par_step_state *s;
    wf_context *ctx;

    if (!t)
        return WF_EINVAL;
    s = &t->step;
    ctx = t->par->ctx;
    if (!s->running) {
        wf_par_step_may_come(t, "wf_par_backward", false);
        return wf_context_status(ctx);
    }
    wf_tape_switch(ctx, NULL);
    wf_par_losses_put(t, &s->batch, s->micro, s->tape, loss);
    wf_tape_switch(ctx, s->tape);
    wf_par_gradients_micro(t->gradients, NULL, s->micro, t->micros, t->per_sequence);
    t->units->pass.gradients = wf_par_takes_units(t->par) ? t->gradients : NULL;
    wf_context_phase(ctx, "backward");
    if (wf_context_status(ctx) == WF_OK)
        wf_backward(loss, wf_par_seed_of(t, loss), false);
    close_tape(t);
    wf_context_phase(ctx, "collecting gradients");
    if (wf_context_status(ctx) == WF_OK)
        wf_par_gradients_micro_end(t->gradients);
    wf_par_units_reshard(t->units);
    end_micro_step(t);
    s->micro++;
    return wf_context_status(ctx);
}

wf_par_loss_function *wf_par_loss_of(wf_par_trainer *t)
{
    if (!t->options.loss)
        wf_fail(t->par->ctx, WF_EINVAL,
                "a trainer needs a loss function: wf_par_gpt_loss, or one of your own");
    return t->options.loss;
}

wf_status wf_par_micro_step(wf_par_trainer *t, const wf_par_data *data,
                            const wf_par_batch *given)
{
    wf_par_loss_function *loss = wf_par_loss_of(t);
    wf_context *ctx = t->par->ctx;
    const wf_par_batch *batch;
    const char *outside;
    wf_tensor *result;

    if (wf_context_status(ctx) != WF_OK)
        return wf_context_status(ctx);
    batch = begin(t, data, given, true);
    outside = wf_context_enter(ctx, WF_PAR_LOSS_FUNCTION);
    result = batch ? loss(t->model, batch) : NULL;
    wf_context_enter(ctx, outside);
    return wf_par_backward(t, result);
}

wf_status wf_par_run_micro_steps(wf_par_trainer *t, const wf_par_data *data,
                                 const wf_par_batch *given)
{
    int64_t *k = &t->step.micro;

    while (*k < t->micros && wf_par_micro_step(t, data, given ? &given[*k] : NULL) == WF_OK)
        continue;
    return wf_context_status(t->par->ctx);
}

wf_status wf_par_forward_backward(wf_par_trainer *t, const wf_par_data *data)
{
    const wf_par_step_state *s;

    if (!t)
        return WF_EINVAL;
    s = &t->step;
    if (!wf_par_step_may_come(t, "wf_par_forward_backward",
                              s->at == WF_PAR_AT_MICRO_STEPS && !s->running && s->micro == 0))
        return wf_context_status(t->par->ctx);
    return t->engine->forward_backward(t, data);
}

wf_status wf_par_reduce(wf_par_trainer *t, float *mean_loss)
{
    wf_par_step_state *s;
    wf_context *ctx;

    if (mean_loss)
        *mean_loss = 0;
    if (!t)
        return WF_EINVAL;
    s = &t->step;
    ctx = t->par->ctx;
    if (!wf_par_step_may_come(t, "wf_par_reduce",
                              s->at == WF_PAR_AT_MICRO_STEPS && !s->running &&
                                  s->micro == t->micros))
        return wf_context_status(ctx);
    t->engine->reduce(t, mean_loss);
    if (mean_loss && s->counted == 0)
        *mean_loss = NAN;
    if (t->buddies && wf_context_status(ctx) == WF_OK)
        wf_par_buddies_gradients(t->buddies, s->grad);
    if (wf_context_status(ctx) != WF_OK)
        return wf_context_status(ctx);
    s->at = WF_PAR_AT_REDUCED;
    return WF_OK;
}

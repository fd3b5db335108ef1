/*
 * parallel/train/train.c - the training step.
 *
 * The sequences of a global batch are numbered from outer to inner by what is summed last to what
 * is summed first, so that every strategy has the same tree over the same numbers:
 *
 *     local accumulation                   (rank, micro-step, sequence)
 *     a reduction per micro-step           (micro-step, rank, sequence)
 *     the same inside of groups of ranks   (group, micro-step, rank in the group, sequence)
 *
 * Losses and gradients are sums, scaled once by 1 / (tokens of the global batch).
 */
#include "core/host_data.h"
#include "kernels/ops.h"
#include "mesh/comm/collective.h"
#include "nn/models/gpt/gpt.h"
#include "parallel/train/measure.h"
#include "parallel/train/anomaly_internal.h"
#include "parallel/train/graph_step_internal.h"
#include "parallel/train/train_internal.h"
#include "parallel/shard/update_internal.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

wf_tensor *wf_par_gpt_loss(wf_nn_module *model, wf_tensor *tokens, wf_tensor *targets,
                           float weight)
{
    return wf_nn_gpt_loss((wf_nn_gpt *)model, tokens, targets, weight);
}

static bool trains_something(const wf_par_trainer *t)
{
    for (int64_t i = 0; i < t->count; i++)
        if (!t->parameter[i]->frozen)
            return true;
    return false;
}

static wf_status check(wf_par_trainer *t)
{
    const wf_par_train_options *o = &t->options;
    int64_t dp = wf_par_dp(t->par);

    if (!trains_something(t))
        return wf_fail(t->par->ctx, WF_EINVAL,
                       "all parameters are frozen: a trainer needs one at least that is not");

    if (!o->loss)
        return wf_fail(t->par->ctx, WF_EINVAL,
                       "a trainer needs a loss function: wf_par_gpt_loss, or one of your own");
    for (int64_t i = 0; i < t->count; i++)
        if (wf_tensor_is_fake(t->parameter[i]->tensor))
            return wf_fail(t->par->ctx, WF_EINVAL,
                           "parameter %s is fake: wf_par_materialize comes before a trainer",
                           t->parameter[i]->path);
    if (!wf_par_units_of(t->par, t->model))
        return wf_fail(t->par->ctx, WF_EINVAL,
                       "the module that is trained has no plan of its own: wf_par_plan and "
                       "wf_par_materialize take the same module as the trainer");
    if (o->global_batch < 1 || o->micro_batch < 0 || o->seq_len < 1)
        return wf_fail(t->par->ctx, WF_EINVAL,
                       "batch sizes and sequence length must be positive");
    if (o->global_batch % (dp * (o->micro_batch ? o->micro_batch : 1)))
        return wf_fail(t->par->ctx, WF_EINVAL,
                       "global batch %" PRId64 " is not a multiple of dp %" PRId64
                       " x micro-batch %" PRId64 ": change one of the three",
                       o->global_batch, dp, o->micro_batch ? o->micro_batch : 1);
    t->per_rank = o->global_batch / dp;
    if (!o->micro_batch)
        t->options.micro_batch = t->per_rank;
    t->micros = t->per_rank / t->options.micro_batch;
    if (t->micros & (t->micros - 1))
        wf_context_tell_inexact(
            t->par->ctx, "not layout-exact: %" PRId64 " micro-steps are not a power of two",
            t->micros);
    return WF_OK;
}

void wf_par_trainer_close(wf_par_trainer *t)
{
    if (!t)
        return;
    for (int64_t i = 0; i < t->held; i++)
        wf_tensor_release(t->parameter[i]->tensor);
    wf_par_graph_step_close(t);
    wf_par_gradients_close(t->gradients);
    wf_nn_optimizer_free(t->optimizer);
    free(t->grad);
    free(t->loss);
    free(t->moved);
    free(t->to);
    free(t->parameter);
    free(t);
}

wf_par_trainer *wf_par_trainer_open(wf_par *par, wf_nn_module *model,
                                    const wf_par_train_options *options)
{
    wf_context *ctx = par->ctx;
    const char *phase;
    wf_par_trainer *t;

    if (wf_context_status(ctx) != WF_OK)
        return NULL;
    t = calloc(1, sizeof *t);
    if (!t) {
        wf_fail(ctx, WF_ENOMEM, "no memory for a trainer");
        return NULL;
    }
    t->par = par;
    t->model = model;
    t->options = *options;
    t->parameter = wf_nn_parameters(model, &t->count);
    t->grad = calloc((size_t)t->count + 1, sizeof *t->grad);
    if (!t->parameter || !t->grad)
        wf_fail(ctx, WF_ENOMEM, "no memory for %lld parameters", (long long)t->count);
    else if (check(t) == WF_OK) {
        phase = wf_context_phase(ctx, "initialisation");
        t->units = wf_par_units_of(par, model);
        t->loss = calloc((size_t)t->micros, sizeof *t->loss);
        t->moved = calloc((size_t)t->micros, sizeof *t->moved);
        t->to = calloc((size_t)t->micros, sizeof *t->to);
        if (!t->loss || !t->moved || !t->to)
            wf_fail(ctx, WF_ENOMEM, "no memory for %lld micro-steps", (long long)t->micros);
        t->optimizer = wf_par_optimizer_new(par, &options->optimizer, t->count, t->parameter);
        t->gradients = wf_par_gradients_open(par, t->count, t->parameter);
        t->graph_step = par->options.cuda_graph ? wf_par_graph_step_open(t) : NULL;
        for (; t->held < t->count; t->held++)
            wf_tensor_retain(t->parameter[t->held]->tensor);
        wf_context_phase(ctx, phase);
    }
    if (wf_context_status(ctx) != WF_OK) {
        wf_par_trainer_close(t);
        return NULL;
    }
    return t;
}

/* Ranks that each micro-step sums over have neighbours in it. */
wf_sequences wf_par_sequences(const wf_par_trainer *t, int64_t k)
{
    const wf_par *par = t->par;
    int64_t micro = t->options.micro_batch, ranks = 1;

    if (par->reduced)
        ranks = wf_par_ranks_along(par, par->reduced);
    return (wf_sequences){
        .first = k * ranks * micro, .run = ranks * micro, .stride = ranks * t->per_rank};
}

wf_par_batch wf_par_batch_new(wf_par_trainer *t)
{
    wf_context *ctx = t->par->ctx;
    const wf_layout *layout = wf_par_batch_layout(t->par);
    wf_dim dims[] = {wf_dim_batch(t->options.micro_batch * wf_par_dp(t->par)),
                     wf_dim_chunked(t->options.seq_len)};

    return (wf_par_batch){wf_tensor_new(ctx, WF_I32, 2, dims, layout, WF_MEMORY_ACTIVATION),
                          wf_tensor_new(ctx, WF_I32, 2, dims, layout, WF_MEMORY_ACTIVATION)};
}

wf_status wf_par_batch_read(wf_par_trainer *t, const wf_par_batch *b, const wf_par_data *data,
                            int64_t step, int64_t k)
{
    wf_context *ctx = t->par->ctx;
    wf_sequences sequences = wf_par_sequences(t, k);
    wf_error error = {WF_OK, "the data gave no reason"};
    wf_status status = WF_OK;
    wf_host_data tokens, targets;
    int32_t *x, *y;

    if (!b->tokens || !b->targets || wf_context_dry_run(ctx))
        return wf_context_status(ctx);
    x = wf_data_write(b->tokens, false, &tokens);
    y = wf_data_write(b->targets, false, &targets);
    if (x && y) {
        wf_comm_at_files(wf_mesh_world(t->par->mesh), true);
        status = data->read(data->self, step, wf_sequence_of(&sequences, b->tokens->start[0]),
                            t->options.micro_batch, t->options.seq_len, x, y, &error);
        wf_comm_at_files(wf_mesh_world(t->par->mesh), false);
    }
    wf_data_close(&tokens);
    wf_data_close(&targets);
    if (status != WF_OK)
        wf_fail(ctx, status, "%s", error.text);
    return wf_context_status(ctx);
}

/* The sequences of one micro-step. */
static wf_par_batch read_batch(wf_par_trainer *t, const wf_par_data *data, int64_t step,
                               int64_t k)
{
    wf_par_batch b = wf_par_batch_new(t);

    return wf_par_batch_read(t, &b, data, step, k) == WF_OK ? b : (wf_par_batch){NULL, NULL};
}

/* The sum of a micro-step's losses, partial over the data-parallel axes. */
static wf_tensor *sum_losses(wf_tensor *loss)
{
    return wf_batch_sum(wf_token_sum(loss));
}

/* What a loss counts in the mean over the global batch. */
static float token_weight(const wf_par_trainer *t)
{
    return 1.0f / (float)(t->options.global_batch * t->options.seq_len);
}

static wf_tensor *loss_of(wf_par_trainer *t, wf_par_batch b)
{
    wf_tensor *loss = t->options.loss(t->model, b.tokens, b.targets, token_weight(t));

    if (!loss) /* kept only where nothing failed before */
        wf_fail(t->par->ctx, WF_EINVAL, "the loss function returned NULL");
    return loss;
}

/* Of what ops compute in: what tensors are weighted with is not rounded. */
static wf_tensor *constant_like(wf_tensor *t, float value)
{
    wf_tensor *c = t ? wf_tensor_new(t->ctx, wf_context_device(t->ctx)->dtype, t->ndim, t->dim,
                                     t->layout, WF_MEMORY_ACTIVATION)
                     : NULL;

    return c && wf_init_fill(c, value) == WF_OK ? c : NULL;
}

static wf_status micro_step(wf_par_trainer *t, int64_t step, int64_t k, const wf_par_data *data)
{
    wf_context *ctx = t->par->ctx;
    wf_dtype storage = wf_context_storage(ctx, t->par->options.dtype);
    wf_tensor *loss;
    wf_tape *tape;
    wf_par_batch b;

    wf_scope_open(ctx);
    wf_context_position(ctx, step, wf_par_sequences(t, k));
    wf_context_micro_steps(ctx, t->micros);
    wf_context_phase(ctx, "forward");
    b = t->given ? t->given[k] : read_batch(t, data, step, k);
    tape = wf_tape_open(ctx);
    loss = loss_of(t, b);
    wf_tape_switch(ctx, NULL);
    t->loss[k] = wf_tensor_retain(sum_losses(loss));
    wf_tape_switch(ctx, tape);
    wf_par_gradients_micro(t->gradients, k, t->micros);
    t->units->gradients = wf_par_takes_units(t->par) ? t->gradients : NULL;
    wf_context_phase(ctx, "backward");
    if (wf_context_status(ctx) == WF_OK)
        wf_backward(loss, constant_like(loss, token_weight(t)), false);
    t->units->gradients = NULL;
    wf_tape_close(tape);
    wf_context_micro_steps(ctx, 1);
    wf_context_storage(ctx, storage);
    wf_context_phase(ctx, "collecting gradients");
    if (wf_context_status(ctx) == WF_OK)
        wf_par_gradients_micro_end(t->gradients);
    wf_par_units_rest(t->units);
    wf_scope_close(ctx);
    return wf_context_status(ctx);
}

/* Sum the losses of a step over the ranks that each micro-step sums over, then in the tree over
   micro-steps: in the order in which gradients are. */
static wf_status sum_micro_steps(wf_par_trainer *t, wf_par_counter *sum)
{
    wf_context *ctx = t->par->ctx;
    const wf_layout **to = t->to;

    for (int64_t k = 0; k < t->micros; k++)
        to[k] = wf_par_whole_over(t->par, t->loss[k]->layout, t->par->reduced);
    wf_scope_open(ctx);
    if (wf_move_run(ctx, t->micros, t->loss, to, t->moved) == WF_OK)
        for (int64_t k = 0; k < t->micros; k++)
            wf_par_counter_push(sum, t->moved[k], k, t->micros);
    wf_scope_close(ctx);
    return wf_context_status(ctx);
}

/* The sum over all tokens, on every rank, retained; takes the losses of the micro-steps. */
static wf_tensor *total_loss(wf_par_trainer *t)
{
    wf_context *ctx = t->par->ctx;
    wf_par_counter counter = {.depth = 0};
    const wf_layout *whole = NULL;
    wf_tensor *sum = NULL;

    wf_scope_open(ctx);
    if (wf_context_status(ctx) != WF_OK || sum_micro_steps(t, &counter) != WF_OK ||
        wf_move_run(ctx, 1, counter.node, &whole, &sum) != WF_OK)
        sum = NULL;
    wf_tensor_retain(sum);
    wf_scope_close(ctx);
    wf_par_counter_clear(&counter);
    for (int64_t k = 0; k < t->micros; k++) {
        wf_tensor_release(t->loss[k]);
        t->loss[k] = NULL;
    }
    return sum;
}

/* The mean over all tokens; takes their sum. */
static wf_status read_mean(wf_par_trainer *t, wf_tensor *total, float *mean)
{
    wf_context *ctx = t->par->ctx;
    float sum;

    if (total && !wf_context_dry_run(ctx) && wf_data_get(total, 0, 1, &sum) == WF_OK)
        *mean = sum * token_weight(t);
    wf_tensor_release(total);
    return wf_context_status(ctx);
}

wf_status wf_par_step_gradients(wf_par_trainer *t, int64_t step, const wf_par_data *data)
{
    wf_context *ctx = t->par->ctx;

    for (int64_t k = 0; k < t->micros && wf_context_status(ctx) == WF_OK; k++)
        micro_step(t, step, k, data);
    t->total = total_loss(t);
    return wf_context_status(ctx) == WF_OK ? wf_par_gradients_finish(t->gradients, t->grad)
                                           : wf_context_status(ctx);
}

/* torch.nn.utils.clip_grad_norm_: clip / (norm + 1e-6) where that is below 1. */
static float clip_scale(float clip, double norm)
{
    double scale = clip > 0 ? (double)clip / (norm + 1e-6) : 1;

    return scale < 1 ? (float)scale : 1;
}

static bool is_finite(const wf_par_step *result)
{
    return isfinite(result->loss) && isfinite(result->grad_norm);
}

static void apply(wf_par_trainer *t, float lr, float scale)
{
    if (t->graph_step)
        wf_par_graph_step_update(t, lr, scale);
    else
        wf_par_update(t->par, t->optimizer, t->count, t->parameter, t->grad, lr, scale);
}

/* From the gradients of all micro-steps to new parameters, if loss and norm are finite; *bad is the
   first parameter whose gradient is not, -1: none. */
static wf_status update(wf_par_trainer *t, wf_par_step *result, int64_t *bad)
{
    wf_context *ctx = t->par->ctx;

    *bad = -1;
    if (wf_context_status(ctx) == WF_OK &&
        wf_par_norm(t->par, t->count, t->grad, &result->grad_norm) == WF_OK) {
        wf_context_phase(ctx, "optimizer");
        if (is_finite(result)) {
            wf_par_units_change(t->units);
            apply(t, result->lr, clip_scale(t->options.clip, result->grad_norm));
        } else {
            *bad = wf_par_first_not_finite(t->par, t->count, t->grad);
        }
    }
    for (int64_t i = 0; i < t->count; i++) {
        wf_tensor_release(t->grad[i]);
        t->grad[i] = NULL;
    }
    return wf_context_status(ctx);
}

/* Run the micro-steps again, and look at every result. */
static bool find_anomaly(wf_par_trainer *t, int64_t step, const wf_par_data *data, char *text,
                         size_t size)
{
    wf_par_anomaly anomaly;
    float loss;

    wf_par_gradients_reset(t->gradients);
    wf_par_anomaly_begin(&anomaly, t->par);
    for (int64_t k = 0; k < t->micros && wf_context_status(t->par->ctx) == WF_OK; k++) {
        anomaly.micro = k;
        micro_step(t, step, k, data);
    }
    read_mean(t, total_loss(t), &loss);
    return wf_par_anomaly_end(&anomaly, text, size);
}

/* The step is lost; say where that begins: a parameter, or an op in a module. */
static wf_status not_finite(wf_par_trainer *t, int64_t step, const wf_par_data *data,
                            const wf_par_step *result, int64_t bad_gradient)
{
    wf_context *ctx = t->par->ctx;
    char where[480], gradient[WF_NN_PATH + 64] = "";
    int64_t bad;

    for (int64_t i = 0; i < t->count; i++)
        t->grad[i] = t->parameter[i]->tensor;
    bad = wf_par_first_not_finite(t->par, t->count, t->grad);
    memset(t->grad, 0, (size_t)t->count * sizeof *t->grad); /* they are not held */
    if (bad >= 0)
        snprintf(where, sizeof where, "parameter %s is not finite itself",
                 t->parameter[bad]->path);
    else if (!find_anomaly(t, step, data, where, sizeof where))
        snprintf(where, sizeof where, "no op makes it, but a sum over micro-steps or ranks");
    if (bad_gradient >= 0)
        snprintf(gradient, sizeof gradient, "; the gradient of %s is not finite",
                 t->parameter[bad_gradient]->path);
    return wf_fail(ctx, WF_ENONFINITE,
                   "loss %g or gradient norm %g is not finite: lower --lr, or check the data; "
                   "it begins here: %s%s",
                   (double)result->loss, result->grad_norm, where, gradient);
}

wf_status wf_par_train_step(wf_par_trainer *t, int64_t step, const wf_par_data *data,
                            wf_par_step *result)
{
    wf_context *ctx = t->par->ctx;
    int64_t bad;

    *result = (wf_par_step){.lr = wf_nn_schedule_at(&t->options.schedule, step)};
    wf_comm_place(wf_mesh_world(t->par->mesh), step, NULL);
    wf_par_gradients_reset(t->gradients);
    wf_par_units_rest(t->units); /* what a step that failed has left under way */
    if (t->graph_step)
        wf_par_graph_step_gradients(t, step, data);
    else
        wf_par_step_gradients(t, step, data);
    read_mean(t, t->total, &result->loss);
    t->total = NULL;
    if (update(t, result, &bad) == WF_OK && !is_finite(result))
        not_finite(t, step, data, result, bad);
    wf_par_gradients_reset(t->gradients);
    wf_context_phase(ctx, NULL);
    return wf_context_status(ctx);
}

/* Batch by batch, so that the tree over sequences is that of a training step. */
wf_status wf_par_evaluate(wf_par_trainer *t, int64_t batches, const wf_par_data *data,
                          float *loss)
{
    wf_context *ctx = t->par->ctx;
    bool training = wf_context_is_training(ctx);
    wf_dtype storage = wf_context_storage(ctx, t->par->options.dtype);
    double sum = 0;

    wf_context_training(ctx, false);
    wf_context_phase(ctx, "evaluation");
    for (int64_t i = 0; i < batches && wf_context_status(ctx) == WF_OK; i++) {
        float mean = 0;

        for (int64_t k = 0; k < t->micros && wf_context_status(ctx) == WF_OK; k++) {
            wf_par_batch b;

            wf_scope_open(ctx);
            b = read_batch(t, data, i, k);
            t->loss[k] = wf_tensor_retain(sum_losses(loss_of(t, b)));
            wf_scope_close(ctx);
        }
        read_mean(t, total_loss(t), &mean);
        sum += (double)mean;
    }
    wf_context_phase(ctx, NULL);
    wf_context_storage(ctx, storage);
    wf_context_training(ctx, training);
    *loss = (float)(sum / (double)batches);
    return wf_context_status(ctx);
}

wf_status wf_par_trainer_digest(wf_par_trainer *t, uint64_t *digest)
{
    return wf_par_digest(t->par, t->count, t->parameter, t->optimizer, digest);
}

wf_status wf_par_trainer_digests(wf_par_trainer *t, wf_par_tensor_digest **list, int64_t *n)
{
    return wf_par_digests(t->par, t->count, t->parameter, t->optimizer, list, n);
}

wf_par_trained wf_par_trainer_trained(const wf_par_trainer *t)
{
    return (wf_par_trained){.par = t->par,
                            .count = t->count,
                            .parameter = t->parameter,
                            .optimizer = t->optimizer,
                            .global_batch = t->options.global_batch};
}

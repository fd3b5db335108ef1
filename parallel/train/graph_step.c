/*
 * parallel/train/graph_step.c - the step of a rank as three graphs of its device
 * (core/graph.h): from sequences to reduced gradients; the judgment of loss and norm
 * (core/judgment.h); and the update, which the judgment may hold back. So the host may launch a
 * step before it has read loss and norm of the one before.
 *
 * Of several ranks each has its own graphs, cut in parts at the begin and the end of every
 * collective, which the host makes in between. The collective of the judgment brings every rank
 * the exact squares of all, so that all judge alike.
 *
 * The first step of a trainer is run op by op, so that what kernels make but once is there; the
 * second one is captured and run; all that follow are run. Another number of micro-steps is
 * captured anew. A captured step calls no module, no op and no tape. The graphs hold the
 * gradients, the batches, and memory for all that lives in between, for good; evaluation and
 * samples take their own beside it.
 */
#include "core/graph.h"
#include "kernels/now.h"
#include "mesh/comm/collective.h"
#include "parallel/shard/update_internal.h"
#include "parallel/train/engine_internal.h"
#include "parallel/train/losses_internal.h"
#include "parallel/train/measure_internal.h"
#include "parallel/train/read_batch_internal.h"
#include "parallel/train/step_alike_internal.h"
#include "parallel/train/step_internal.h"
#include <stdlib.h>
#include <string.h>

typedef struct graph_step {
    bool warm;           /* a step was run op by op */
    int64_t micros;      /* micro-steps of what was captured */
    wf_par_batch *batch; /* [micros] retained: written before each run */
    wf_graph *gradients, *judge, *update;
    wf_judgment *judgment;
    wf_tensor **grad, *total; /* retained: what a run leaves */
} graph_step;

/* Frees what was captured, with the tensors that it reads and leaves. */
static void forget(wf_par_trainer *t)
{
    graph_step *g = t->own;

    for (int64_t k = 0; k < g->micros; k++) {
        for (int i = 0; i < t->fields; i++)
            wf_tensor_release(g->batch[k].tensor[i]);
        g->batch[k] = (wf_par_batch){.ctx = NULL};
    }
    for (int64_t i = 0; i < t->count; i++) {
        wf_tensor_release(g->grad[i]);
        g->grad[i] = NULL;
    }
    wf_tensor_release(g->total);
    wf_graph_free(g->gradients);
    wf_graph_free(g->judge);
    wf_graph_free(g->update);
    g->total = NULL;
    g->gradients = g->judge = g->update = NULL;
    g->micros = 0;
}

static void close_graphs(wf_par_trainer *t)
{
    graph_step *g = t->own;

    if (g && g->batch && g->grad)
        forget(t);
    if (g) {
        wf_judgment_close(g->judgment);
        free(g->batch);
        free(g->grad);
    }
    free(g);
    wf_par_eager_close(t);
}

static wf_status open_graphs(wf_par_trainer *t)
{
    graph_step *g = t->own = calloc(1, sizeof *g);

    if (g) {
        g->batch = calloc((size_t)t->micros, sizeof *g->batch);
        g->grad = calloc((size_t)t->count + 1, sizeof *g->grad);
    }
    if (!g || !g->batch || !g->grad)
        return wf_fail(t->par->ctx, WF_ENOMEM, "no memory for a captured step");
    g->judgment = wf_judgment_open(t->par->ctx, wf_mesh_ranks(t->par->mesh));
    return wf_par_eager_open(t);
}

/* Makes the batches that what is captured reads; those of before are kept. */
static wf_status make_batches(wf_par_trainer *t)
{
    graph_step *g = t->own;
    wf_context *ctx = t->par->ctx;

    wf_scope_open(ctx);
    for (int64_t k = 0; k < t->micros && wf_context_status(ctx) == WF_OK; k++) {
        if (g->batch[k].ctx)
            continue;
        g->batch[k] = wf_par_batch_new(t);
        for (int i = 0; i < t->fields; i++)
            wf_tensor_retain(g->batch[k].tensor[i]);
    }
    wf_scope_close(ctx);
    return wf_context_status(ctx);
}

/* Reads them. Of several ranks one that cannot says so in the judgment of the step, which it
   makes with whatever is there: others may be in it already. All repeat it then, and it fails
   as it would have failed. */
static wf_status read_batches(wf_par_trainer *t, const wf_par_data *data)
{
    graph_step *g = t->own;
    wf_context *ctx = t->par->ctx;

    if (make_batches(t) != WF_OK)
        return wf_context_status(ctx);
    for (int64_t k = 0; k < t->micros; k++)
        wf_par_batch_read(t, &g->batch[k], data, t->step.number, k);
    if (wf_context_status(ctx) != WF_OK && t->step.ahead && wf_mesh_ranks(t->par->mesh) > 1) {
        wf_context_clear(ctx);
        t->step.unread = true;
    }
    return wf_context_status(ctx);
}

/* Copies of parameters in another type belong to a step: the graph finds none, makes its own
   and leaves none. */
static void capture_gradients(wf_par_trainer *t)
{
    graph_step *g = t->own;

    wf_par_units_change(t->units);
    if (wf_graph_begin(t->par->ctx) != WF_OK)
        return;
    wf_par_run_micro_steps(t, NULL, g->batch);
    g->total = wf_par_eager_sums(t);
    wf_par_units_change(t->units);
    g->gradients = wf_graph_end(t->par->ctx);
    for (int64_t i = 0; i < t->count; i++) {
        g->grad[i] = t->step.grad[i];
        t->step.grad[i] = NULL;
    }
}

/* Runs all micro-steps, and once there is a graph, by it and with the sums of `reduce`. */
static wf_status forward_backward(wf_par_trainer *t, const wf_par_data *data)
{
    graph_step *g = t->own;
    wf_context *ctx = t->par->ctx;

    if (data && data->counted)
        return wf_fail(ctx, WF_EUNSUPPORTED,
                       "a captured step has one weight for all of its runs, and with "
                       "wf_par_data.counted each step has its own: leave out cuda_graph");
    if (!g->warm || t->step.op_by_op || !wf_context_is_training(ctx)) {
        g->warm = true;
        return wf_par_run_micro_steps(t, data, NULL);
    }
    if (g->micros != t->micros)
        forget(t);
    g->micros = t->micros;
    if (read_batches(t, data) != WF_OK)
        return wf_context_status(ctx);
    if (!g->gradients)
        capture_gradients(t);
    if (wf_context_status(ctx) != WF_OK)
        return wf_context_status(ctx);
    wf_context_phase(ctx, "captured step");
    wf_comm_position(wf_mesh_world(t->par->mesh), t->step.number, "captured step");
    wf_context_position(ctx, t->step.number, wf_par_sequences(t, 0));
    wf_graph_run(g->gradients, &(wf_now){.step = t->step.number}, sizeof(wf_now));
    for (int64_t i = 0; i < t->count; i++)
        t->step.grad[i] = wf_tensor_retain(g->grad[i]);
    t->step.micro = t->micros;
    t->step.of_graph = true;
    return wf_context_status(ctx);
}

static wf_status reduce(wf_par_trainer *t, float *mean)
{
    const graph_step *g = t->own;

    if (!t->step.of_graph)
        return wf_par_eager_reduce(t, mean);
    if (mean)
        wf_par_losses_mean(t, &t->losses, g->total, mean);
    return wf_context_status(t->par->ctx);
}

/* Begins the optimizer's step; returns its numbers. */
static wf_now begin_update(wf_par_trainer *t, float lr, float scale)
{
    const wf_update *u = wf_nn_optimizer_begin(t->optimizer, lr, scale);

    return (wf_now){.step = wf_context_step(t->par->ctx),
                    .lr = u->lr,
                    .bias1 = u->bias1,
                    .bias2 = u->bias2,
                    .grad_scale = u->grad_scale,
                    .held = t->step.unread,
                    .alike = wf_par_alike_summand(t),
                    .inexact = wf_par_inexact_here(t->par)};
}

static void capture_update(wf_par_trainer *t)
{
    graph_step *g = t->own;

    if (g->update || wf_graph_begin(t->par->ctx) != WF_OK)
        return;
    wf_par_update_parameters(t->par, t->optimizer, t->count, t->parameter, t->step.grad);
    g->update = wf_graph_end(t->par->ctx);
}

/* Updates by the graph, where the gradients are those of the other one. An optimizer whose
   numbers are the host's is run op by op. */
static wf_status update(wf_par_trainer *t, float lr, float scale)
{
    graph_step *g = t->own;
    wf_now now;

    if (!t->step.of_graph || wf_nn_optimizer_uncaptured(t->optimizer))
        return wf_par_eager_update(t, lr, scale);
    now = begin_update(t, lr, scale);
    capture_update(t);
    return g->update ? wf_graph_run(g->update, &now, sizeof now)
                     : wf_context_status(t->par->ctx);
}

/* ---- steps that the device judges ---- */

static const char *at_once(const wf_par_trainer *t)
{
    const graph_step *g = t->own;
    const char *why = wf_nn_optimizer_uncaptured(t->optimizer);

    if (why)
        return why;
    if (t->buddies)
        return "copies of a buddy, which go by the host";
    if (t->options.check_replicas)
        return "replicas that are compared";
    return g->gradients && !wf_squares_fit(t->count, g->grad)
               ? "gradients with more than 2^30 rows"
               : NULL;
}

static bool launches(const wf_par_trainer *t)
{
    const graph_step *g = t->own;

    return g->warm && wf_context_is_training(t->par->ctx);
}

/* Captures the way of the ranks' parts to all of them. */
static void gather_parts(const wf_par_trainer *t)
{
    const graph_step *g = t->own;
    wf_context *ctx = t->par->ctx;
    wf_comm *world = wf_mesh_world(t->par->mesh);
    wf_judged_part *all = wf_judgment_parts(g->judgment);
    const int64_t words = sizeof *all / sizeof(int64_t);
    const int size = wf_comm_size(world);
    const size_t bytes = ((size_t)size + 1) * sizeof words;
    int64_t *cuts = size > 1 ? wf_blocks_take(wf_context_blocks(ctx), bytes) : NULL;
    wf_error error = {WF_OK, ""};

    if (size == 1 || wf_context_status(ctx) != WF_OK)
        return;
    if (!cuts) {
        wf_fail(ctx, WF_ENOMEM, "no memory for the cuts of %d parts", size);
        return;
    }
    for (int i = 0; i <= size; i++)
        cuts[i] = i * words;
    wf_collective_run(
        world,
        &(wf_collective){
            .kind = WF_ALL_GATHER,
            .element = sizeof words,
            .n_buffers = 1,
            .buffers =
                &(wf_comm_buffer){.in = all + wf_comm_rank(world), .out = all, .cuts = cuts},
            .device = wf_context_device(ctx),
            .context = ctx},
        &error);
    wf_blocks_give(wf_context_blocks(ctx), cuts, bytes);
    if (error.code != WF_OK)
        wf_fail(ctx, error.code, "%s", error.text);
}

static void capture_judgment(wf_par_trainer *t)
{
    const wf_par_train_options *o = &t->options;
    graph_step *g = t->own;
    wf_context *ctx = t->par->ctx;
    wf_squares squares;
    wf_tensor *total;

    if (g->judge || wf_graph_begin(ctx) != WF_OK)
        return;
    wf_scope_open(ctx);
    total = wf_par_losses_computed(g->total);
    wf_squares_begin(&squares, ctx);
    wf_par_squares_add(t->par, t->count, t->parameter, t->step.grad, &squares);
    wf_judgment_bring(g->judgment, wf_context_rank(ctx), &squares);
    gather_parts(t);
    if (total)
        wf_judgment_capture(g->judgment, total, t->losses.weight, o->clip, o->skip.loss_above);
    wf_scope_close(ctx);
    g->judge = wf_graph_end(ctx);
}

static wf_status launch(wf_par_trainer *t, float lr, int slot)
{
    graph_step *g = t->own;
    wf_now now = begin_update(t, lr, 1);

    capture_judgment(t);
    capture_update(t);
    if (!g->judge || !g->update ||
        wf_judgment_run(g->judgment, g->judge, &now, sizeof now, slot) != WF_OK)
        return wf_context_status(t->par->ctx);
    return wf_graph_run(g->update, NULL, 0);
}

static wf_judged judged(wf_par_trainer *t, int slot)
{
    const graph_step *g = t->own;

    return wf_judgment_wait(g->judgment, slot);
}

static void clear(wf_par_trainer *t)
{
    const graph_step *g = t->own;

    wf_judgment_clear(g->judgment);
}

const wf_par_engine wf_par_engine_graph = {.open = open_graphs,
                                           .forward_backward = forward_backward,
                                           .reduce = reduce,
                                           .evaluate = wf_par_eager_evaluate,
                                           .update = update,
                                           .at_once = at_once,
                                           .launches = launches,
                                           .launch = launch,
                                           .judged = judged,
                                           .clear = clear,
                                           .close = close_graphs};

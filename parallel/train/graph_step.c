/* parallel/train/graph_step.c - training steps as graphs; see the header. */
#include "parallel/train/graph_step_internal.h"
#include "core/graph.h"
#include "kernels/now.h"
#include "parallel/shard/update_internal.h"
#include <stdlib.h>
#include <string.h>

struct wf_par_graph_step {
    bool warm;           /* a step was run op by op */
    bool ran;            /* the gradients of this step are the graph's */
    wf_par_batch *batch; /* [micros] retained: written before each run */
    wf_graph *gradients, *update;
    wf_tensor **grad, *total; /* retained: what a run leaves */
};

wf_par_graph_step *wf_par_graph_step_open(wf_par_trainer *t)
{
    wf_par_graph_step *r = calloc(1, sizeof *r);

    if (r) {
        r->batch = calloc((size_t)t->micros, sizeof *r->batch);
        r->grad = calloc((size_t)t->count + 1, sizeof *r->grad);
    }
    if (r && r->batch && r->grad)
        return r;
    if (r) {
        free(r->batch);
        free(r->grad);
    }
    free(r);
    wf_fail(t->par->ctx, WF_ENOMEM, "no memory for a recorded step");
    return NULL;
}

void wf_par_graph_step_close(wf_par_trainer *t)
{
    wf_par_graph_step *r = t->graph_step;

    if (!r)
        return;
    for (int64_t k = 0; k < t->micros; k++) {
        wf_tensor_release(r->batch[k].tokens);
        wf_tensor_release(r->batch[k].targets);
    }
    for (int64_t i = 0; i < t->count; i++)
        wf_tensor_release(r->grad[i]);
    wf_tensor_release(r->total);
    wf_graph_free(r->gradients);
    wf_graph_free(r->update);
    free(r->batch);
    free(r->grad);
    free(r);
}

static wf_status read_batches(wf_par_trainer *t, int64_t step, const wf_par_data *data)
{
    wf_par_graph_step *r = t->graph_step;
    wf_context *ctx = t->par->ctx;

    wf_scope_open(ctx);
    for (int64_t k = 0; k < t->micros && wf_context_status(ctx) == WF_OK; k++) {
        wf_par_batch *b = &r->batch[k];

        if (!b->tokens) {
            *b = wf_par_batch_new(t);
            wf_tensor_retain(b->tokens);
            wf_tensor_retain(b->targets);
        }
        wf_par_batch_read(t, b, data, step, k);
    }
    wf_scope_close(ctx);
    return wf_context_status(ctx);
}

/* Copies of parameters in another type belong to a step: the graph finds none, makes its own and
   leaves none. */
static void record_gradients(wf_par_trainer *t, int64_t step, const wf_par_data *data)
{
    wf_par_graph_step *r = t->graph_step;

    wf_par_units_change(t->units);
    if (wf_graph_begin(t->par->ctx) != WF_OK)
        return;
    t->given = r->batch;
    wf_par_step_gradients(t, step, data);
    t->given = NULL;
    wf_par_units_change(t->units);
    r->gradients = wf_graph_end(t->par->ctx);
    for (int64_t i = 0; i < t->count; i++) {
        r->grad[i] = t->grad[i];
        t->grad[i] = NULL;
    }
    r->total = t->total;
    t->total = NULL;
}

wf_status wf_par_graph_step_gradients(wf_par_trainer *t, int64_t step, const wf_par_data *data)
{
    wf_par_graph_step *r = t->graph_step;
    wf_context *ctx = t->par->ctx;

    r->ran = false;
    if (!r->warm || !wf_context_is_training(ctx)) {
        r->warm = true;
        return wf_par_step_gradients(t, step, data);
    }
    if (read_batches(t, step, data) != WF_OK)
        return wf_context_status(ctx);
    if (!r->gradients)
        record_gradients(t, step, data);
    if (wf_context_status(ctx) != WF_OK)
        return wf_context_status(ctx);
    wf_context_phase(ctx, "recorded step");
    wf_context_position(ctx, step, wf_par_sequences(t, 0));
    wf_graph_run(r->gradients, &(wf_now){.step = step}, sizeof(wf_now));
    for (int64_t i = 0; i < t->count; i++)
        t->grad[i] = wf_tensor_retain(r->grad[i]);
    t->total = wf_tensor_retain(r->total);
    r->ran = true;
    return wf_context_status(ctx);
}

wf_status wf_par_graph_step_update(wf_par_trainer *t, float lr, float scale)
{
    wf_par_graph_step *r = t->graph_step;
    wf_context *ctx = t->par->ctx;
    const wf_update *u;
    wf_now now;

    if (!r->ran || t->options.optimizer.method == WF_NN_MUON)
        return wf_par_update(t->par, t->optimizer, t->count, t->parameter, t->grad, lr, scale);
    u = wf_nn_optimizer_begin(t->optimizer, lr, scale);
    now = (wf_now){.step = wf_context_step(ctx),
                   .lr = u->lr,
                   .bias1 = u->bias1,
                   .bias2 = u->bias2,
                   .grad_scale = u->grad_scale};
    if (!r->update && wf_graph_begin(ctx) == WF_OK) {
        wf_par_update_parameters(t->par, t->optimizer, t->count, t->parameter, t->grad);
        r->update = wf_graph_end(ctx);
    }
    return r->update ? wf_graph_run(r->update, &now, sizeof now) : wf_context_status(ctx);
}

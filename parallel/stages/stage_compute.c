/*
 * parallel/stages/stage_compute.c - what a rank computes of a stage and a micro-batch: forward,
 * backward, or the two halves of backward one by one.
 */
#include "kernels/ops.h"
#include "parallel/train/added_loss_internal.h"
#include "parallel/train/losses_internal.h"
#include "parallel/train/read_batch_internal.h"
#include "parallel/stages/stages_internal.h"
#include "parallel/train/step_internal.h"
#include <string.h>

/* The context's settings that an action changes, and puts back. */
typedef struct setting {
    wf_dtype storage;
    wf_nn_pass *pass;
    const char *phase;
} setting;

/* The context as a micro-step has it. */
static setting enter(wf_par_stages *s, const wf_par_flight *f, int64_t micro, const char *phase)
{
    wf_context *ctx = s->t->par->ctx;
    setting last;

    wf_scope_open(ctx);
    last.storage = wf_context_storage(ctx, s->t->par->options.dtype);
    last.pass = wf_nn_pass_switch(ctx, f->pass);
    last.phase = wf_context_phase(ctx, phase);
    wf_context_position(ctx, s->t->step.number, wf_par_sequences(s->t, micro));
    wf_context_micro_steps(ctx, s->t->micros);
    wf_context_batch(ctx, s->t->options.global_batch);
    wf_context_rows_unreduced(ctx, s->t->per_sequence > 0);
    wf_par_added_receive(s->t, true);
    return last;
}

static void leave(wf_par_stages *s, const setting *last)
{
    wf_context *ctx = s->t->par->ctx;

    wf_tape_switch(ctx, NULL);
    s->t->units->pass.gradients = NULL;
    wf_par_added_receive(s->t, false);
    wf_context_micro_steps(ctx, 1);
    wf_context_batch(ctx, 0);
    wf_context_rows_unreduced(ctx, false);
    wf_context_phase(ctx, last->phase);
    wf_nn_pass_switch(ctx, last->pass);
    wf_context_storage(ctx, last->storage);
    wf_scope_close(ctx);
}

static void put(wf_tensor **slot, wf_tensor *t)
{
    wf_tensor *last = *slot;

    *slot = wf_tensor_retain(t);
    wf_tensor_release(last);
}

/* The root of a model is a unit that no module of a stage enters. */
static void wait_for_root(const wf_par_stages *s, const wf_par_stage *stage)
{
    for (int64_t u = 0; u < stage->units; u++)
        if (stage->unit[u] == s->t->units->unit)
            wf_par_unit_wait(stage->unit[u]);
}

/* A stage that is not resident has its root's parameters for as long as an action. */
static void hold_root(const wf_par_stages *s, const wf_par_stage *stage, bool hold)
{
    if (wf_pipe_table_facts(s->pipeline->table).resident)
        return;
    for (int64_t u = 0; u < stage->units; u++)
        if (stage->unit[u] == s->t->units->unit) {
            if (hold)
                wf_par_unit_pin(stage->unit[u]);
            else
                wf_par_unit_unpin(stage->unit[u]);
        }
}

static void pass_begins(wf_par_stages *s, wf_par_stage *stage, bool backward)
{
    hold_root(s, stage, true);
    wait_for_root(s, stage);
    wf_par_units_stage_begin(s->t->units, &stage->order, backward);
}

static void pass_ends(wf_par_stages *s, wf_par_stage *stage)
{
    wf_par_units_stage_end(s->t->units);
    hold_root(s, stage, false);
}

void wf_par_stage_unshard(wf_par_stages *s, wf_par_stage *stage)
{
    (void)s;
    for (int64_t u = 0; u < stage->units; u++)
        wf_par_unit_pin(stage->unit[u]);
}

void wf_par_stage_reshard(wf_par_stages *s, wf_par_stage *stage)
{
    (void)s;
    for (int64_t u = 0; u < stage->units; u++)
        wf_par_unit_unpin(stage->unit[u]);
}

static wf_par_batch read(wf_par_stages *s, int64_t micro)
{
    wf_par_batch batch = wf_par_batch_new(s->t);

    wf_par_batch_read(s->t, &batch, s->data, s->t->step.number, micro);
    return batch;
}

/* Reads a stage's part of the batch: the inputs of step 0 for the first stage, and the
   documents for each. */
static wf_nn_documents read_for(wf_par_stages *s, const wf_par_stage *stage, int64_t micro,
                                wf_tensor **x)
{
    const wf_par_pipeline_options *o = &s->pipeline->options;
    wf_nn_documents none = {NULL, NULL};
    wf_par_batch batch;

    if (!stage->is_first && !o->documents)
        return none;
    batch = read(s, micro);
    if (stage->is_first)
        wf_par_stage_batch(s->pipeline, &batch, x);
    return o->documents ? o->documents(&batch) : none;
}

/* A stage of the same rank takes tensors over as they are. */
static void pass_to_stage_here(const wf_par_stages *s, const wf_par_stage *stage, int to,
                               int64_t micro)
{
    wf_par_flight *f = &stage->flight[micro], *other;
    wf_par_stage *next = to >= 0 && to < s->pipeline->stages ? wf_par_stage_here(s, to) : NULL;

    if (!next)
        return;
    other = &next->flight[micro];
    for (int k = 0; k < WF_NN_CARRIED; k++) {
        if (to > stage->number) {
            put(&other->in[k], f->out[k] ? wf_detach(f->out[k]) : NULL);
        } else {
            put(&other->dout[k], f->din[k]);
            put(&f->din[k], NULL);
        }
    }
}

static void put_all(wf_tensor **slots, wf_tensor *t)
{
    for (int k = 0; k < WF_NN_CARRIED; k++)
        put(&slots[k], t);
}

/* Makes sources of the inputs whose gradients are sent back. */
static void make_sources(const wf_par_stages *s, const wf_par_stage *stage, wf_par_flight *f,
                         int n, wf_tensor **x)
{
    for (int k = 0; k < n; k++) {
        if (!wf_par_stage_wants(s->pipeline, stage->number, k))
            continue;
        put(&f->source[k], x[k] ? wf_source(x[k]) : NULL);
        put(&f->in[k], NULL);
        x[k] = f->source[k];
    }
}

/* The steps of a stage: recorded for backward, or for what they carry on alone. */
static void run_steps(wf_par_stages *s, wf_par_stage *stage, int64_t micro, bool record)
{
    wf_par_flight *f = &stage->flight[micro];
    wf_context *ctx = s->t->par->ctx;
    int n = wf_par_stage_carried(s->pipeline, stage->number);
    wf_tensor *x[WF_NN_CARRIED];
    wf_nn_documents outside;

    memcpy(x, f->in, sizeof x);
    outside = wf_nn_documents_switch(ctx, read_for(s, stage, micro, x));
    if (record) {
        f->tape = wf_tape_open(ctx);
        s->t->units->pass.recording = true;
        make_sources(s, stage, f, n, x);
    }
    if (x[0] && stage->end > stage->first)
        n = wf_nn_chain_run(s->t->model, stage->first, stage->end, n, x);
    for (int k = 0; k < n || k == 0; k++)
        put(&f->out[k], x[k]);
    if (record)
        put_all(f->in, NULL);
    wf_tape_switch(ctx, NULL);
    wf_nn_documents_switch(ctx, outside);
}

void wf_par_stage_forward(wf_par_stages *s, wf_par_stage *stage, int64_t micro)
{
    wf_par_flight *f = &stage->flight[micro];
    bool here = stage->is_last || wf_par_stage_here(s, stage->number + 1);
    setting last;

    f->pass = wf_nn_pass_open(s->t->par->ctx);
    last = enter(s, f, micro, "forward");
    pass_begins(s, stage, false);
    run_steps(s, stage, micro, !stage->recomputed[micro]);
    pass_ends(s, stage);
    pass_to_stage_here(s, stage, stage->number + 1, micro);
    if (stage->recomputed[micro] && here) /* they are not sent */
        put_all(f->out, NULL);
    leave(s, &last);
}

void wf_par_stage_recompute(wf_par_stages *s, wf_par_stage *stage, int64_t micro)
{
    setting last = enter(s, &stage->flight[micro], micro, "recomputed forward");

    pass_begins(s, stage, false);
    run_steps(s, stage, micro, true);
    pass_ends(s, stage);
    leave(s, &last);
}

/* Head and loss come with backward, so that what they make for it is there for one micro-batch
   at a time. */
static wf_tensor *head(wf_par_stages *s, wf_par_flight *f, int64_t micro)
{
    wf_context *ctx = s->t->par->ctx;
    wf_tape *tape = wf_tape_switch(ctx, NULL);
    wf_par_batch batch = read(s, micro);
    const char *outside;
    wf_tensor *loss;

    wf_tape_switch(ctx, tape);
    outside = wf_context_enter(ctx, WF_PAR_LOSS_FUNCTION);
    loss = f->out[0] ? s->pipeline->options.head_loss(s->t->model, f->out[0], &batch) : NULL;
    wf_context_enter(ctx, outside);
    wf_tape_switch(ctx, NULL);
    wf_par_losses_put(s->t, &batch, micro, tape, loss);
    wf_tape_switch(ctx, tape);
    return loss;
}

/* Walks back from what the stage has carried out, where a gradient has come of it. */
static void walk_carried(const wf_par_stage *stage, wf_par_flight *f, wf_context *ctx,
                         bool defer)
{
    wf_tensor *root[WF_NN_CARRIED], *seed[WF_NN_CARRIED];
    int n = 0;

    for (int k = 0; k < WF_NN_CARRIED; k++) {
        if (!f->out[k] || !f->dout[k])
            continue;
        if (stage->end == stage->first) { /* a stage without steps */
            put(&f->din[k], f->dout[k]);
            continue;
        }
        root[n] = f->out[k];
        seed[n++] = f->dout[k];
    }
    if (n)
        wf_backward_many(n, root, seed, defer);
    else if (stage->end > stage->first) /* nothing below is trained, but by losses of its own */
        wf_backward_roots(ctx, defer);
}

static void walk(wf_par_stages *s, wf_par_stage *stage, wf_par_flight *f, int64_t micro,
                 bool defer)
{
    wf_context *ctx = s->t->par->ctx;
    wf_tensor *loss = NULL, *seed;

    if (stage->is_last)
        loss = head(s, f, micro);
    seed = loss && wf_context_status(ctx) == WF_OK ? wf_par_seed_of(s->t, loss) : NULL;
    wf_context_phase(ctx, "backward");
    if (wf_context_status(ctx) != WF_OK)
        return;
    if (seed)
        wf_backward(loss, seed, defer);
    else
        walk_carried(stage, f, ctx, defer);
    for (int k = 0; k < WF_NN_CARRIED && wf_context_status(ctx) == WF_OK; k++)
        if (f->source[k] && f->source[k]->grad)
            put(&f->din[k], f->source[k]->grad);
}

/* The gradients of a micro-batch are complete. */
static void end_flight(wf_par_stages *s, wf_par_stage *stage, wf_par_flight *f)
{
    wf_context *ctx = s->t->par->ctx;

    wf_tape_switch(ctx, NULL);
    wf_tape_close(f->tape);
    f->tape = NULL;
    wf_context_phase(ctx, "collecting gradients");
    if (wf_context_status(ctx) == WF_OK)
        wf_par_gradients_micro_end(stage->gradients);
    wf_nn_pass_switch(ctx, NULL);
    wf_nn_pass_close(f->pass);
    f->pass = NULL;
}

static setting enter_backward(wf_par_stages *s, wf_par_stage *stage, wf_par_flight *f,
                              int64_t micro)
{
    setting last = enter(s, f, micro, "backward");

    wf_par_gradients_micro(stage->gradients, f->pass, micro, s->t->micros, s->t->per_sequence);
    s->t->units->pass.gradients = wf_par_takes_units(s->t->par) ? stage->gradients : NULL;
    wf_tape_switch(s->t->par->ctx, f->tape);
    return last;
}

void wf_par_stage_backward(wf_par_stages *s, wf_par_stage *stage, int64_t micro, bool defer)
{
    wf_par_flight *f = &stage->flight[micro];
    setting last = enter_backward(s, stage, f, micro);

    pass_begins(s, stage, true);
    walk(s, stage, f, micro, defer);
    pass_ends(s, stage);
    put_all(f->out, NULL);
    put_all(f->dout, NULL);
    put_all(f->source, NULL);
    if (!defer)
        end_flight(s, stage, f);
    pass_to_stage_here(s, stage, stage->number - 1, micro);
    leave(s, &last);
}

/* Products over the rows of several micro-batches; their sums are what the first of them
   brings. */
static void join_weights(wf_par_stages *s, wf_par_stage *stage, int64_t micro, int64_t count)
{
    wf_tape *tape[WF_MOST_JOINED];
    setting last = enter_backward(s, stage, &stage->flight[micro], micro);

    for (int64_t i = 0; i < count; i++)
        tape[i] = stage->flight[micro + i].tape;
    if (wf_context_status(s->t->par->ctx) == WF_OK && tape[0])
        wf_backward_weights_joined((int)count, tape);
    leave(s, &last);
}

static void end_weights(wf_par_stages *s, wf_par_stage *stage, int64_t micro)
{
    wf_par_flight *f = &stage->flight[micro];
    setting last = enter_backward(s, stage, f, micro);

    if (wf_context_status(s->t->par->ctx) == WF_OK && f->tape)
        wf_backward_weights(f->tape);
    end_flight(s, stage, f);
    leave(s, &last);
}

void wf_par_stage_weights(wf_par_stages *s, wf_par_stage *stage, int64_t micro, int64_t last)
{
    for (int64_t count; micro <= last; micro += count) {
        count = wf_par_gradients_joined(s->t->par, micro, last, s->t->micros);
        if (count > 1)
            join_weights(s, stage, micro, count);
        for (int64_t i = 0; i < count; i++)
            end_weights(s, stage, micro + i);
    }
}

void wf_par_flight_drop(wf_par_flight *f)
{
    wf_tape_close(f->tape);
    wf_nn_pass_close(f->pass);
    put_all(f->in, NULL);
    put_all(f->out, NULL);
    put_all(f->source, NULL);
    put_all(f->dout, NULL);
    put_all(f->din, NULL);
    for (int e = 0; e < WF_PAR_EDGES; e++)
        for (int k = 0; k < WF_NN_CARRIED; k++)
            if (f->message[e][k])
                wf_message_end(f->message[e][k]);
    *f = (wf_par_flight){.pass = NULL};
}

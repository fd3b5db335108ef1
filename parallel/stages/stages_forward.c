/* parallel/stages/stages_forward.c - batches through the stages of a pipeline without
   gradients. */
#include "kernels/ops.h"
#include "parallel/train/losses_internal.h"
#include "parallel/train/read_batch_internal.h"
#include "parallel/train/step_internal.h"
#include "parallel/stages/stages_internal.h"
#include "mesh/comm/collective.h"
#include <string.h>

/* A batch and its index among those that go through one after the other. */
typedef struct travel {
    wf_par_stages *s;
    const wf_tensor *x;              /* the input of wf_par_pipeline_forward; NULL: batches */
    int64_t number;                  /* 0, 1, .. */
    wf_message *sent[WF_NN_CARRIED]; /* the last messages of this rank */
} travel;

static uint64_t tag_of(const travel *v, int border, int k)
{
    return UINT64_C(1) << 62 | (uint64_t)k << 60 | (uint64_t)v->number << 16 | (uint64_t)border;
}

/* The type, shape and layout of the tensor that comes next. */
typedef struct announcement {
    int dtype, ndim;
    wf_dim dim[WF_MAX_DIMS];
    char layout[WF_PAR_LAYOUT_TEXT];
} announcement;

static wf_tensor *as_said(wf_par *par, const announcement *h)
{
    const wf_layout *layout = NULL;

    if (wf_layout_parse(par->mesh, h->layout, &layout) != WF_OK)
        return NULL;
    return wf_tensor_new(par->ctx, (wf_dtype)h->dtype, h->ndim, h->dim, layout,
                         WF_MEMORY_ACTIVATION);
}

/* Returns a tensor for what the stage before sends; in a plan nothing is announced. */
static wf_tensor *announced(const travel *v, int stage, int k, int from)
{
    wf_par *par = v->s->t->par;
    wf_error error = {WF_OK, ""};
    announcement h;

    if (wf_context_dry_run(par->ctx))
        return v->x ? wf_par_stage_input_of(v->s, stage, k, v->x)
                    : wf_par_stage_input(v->s, stage, k);
    if (wf_recv(wf_mesh_comm(par->mesh, par->pp_axis), 1, from, &h, sizeof h, &error) == WF_OK)
        return as_said(par, &h);
    wf_fail(par->ctx, error.code, "%s", error.text);
    return NULL;
}

static wf_status announce(const travel *v, const wf_tensor *x, int to)
{
    wf_par *par = v->s->t->par;
    wf_error error = {WF_OK, ""};
    announcement h;

    memset(&h, 0, sizeof h);
    h.dtype = (int)x->dtype;
    h.ndim = x->ndim;
    memcpy(h.dim, x->dim, (size_t)x->ndim * sizeof *h.dim);
    wf_layout_print(x->layout, h.layout, sizeof h.layout);
    if (!wf_context_dry_run(par->ctx) &&
        wf_send(wf_mesh_comm(par->mesh, par->pp_axis), 1, to, &h, sizeof h, &error) != WF_OK)
        wf_fail(par->ctx, error.code, "%s", error.text);
    return wf_context_status(par->ctx);
}

/* Brings a stage's inputs, from the stage before, on this rank or another. */
static void arrive(const travel *v, int stage, wf_tensor **x)
{
    wf_par_stages *s = v->s;
    int from = wf_pipe_table_rank(s->pipeline->table, stage - 1);

    for (int k = 0; from != s->rank && k < wf_par_stage_carried(s->pipeline, stage); k++) {
        x[k] = announced(v, stage, k, from);
        if (wf_message_end(
                wf_message_recv(x[k], s->t->par->pp_axis, from, tag_of(v, stage, k))) != WF_OK)
            x[k] = NULL;
    }
}

/* Sends end when the next ones begin, so that stages work at several batches. */
static void send_on(travel *v, int stage, wf_tensor *const *x)
{
    wf_par_stages *s = v->s;
    int to = wf_pipe_table_rank(s->pipeline->table, stage + 1);

    for (int k = 0; to != s->rank && k < wf_par_stage_carried(s->pipeline, stage + 1); k++) {
        wf_message *last = v->sent[k];

        v->sent[k] = NULL;
        if (x[k] && announce(v, x[k], to) == WF_OK)
            v->sent[k] = wf_message_send(x[k], s->t->par->pp_axis, to, tag_of(v, stage + 1, k));
        if (last)
            wf_message_end(last);
    }
}

/* x, with room for WF_NN_CARRIED, through the stages of this rank; returns the result of the
   last stage, or NULL. */
static wf_tensor *pass(travel *v, wf_tensor **x)
{
    wf_par_stages *s = v->s;
    wf_context *ctx = s->t->par->ctx;
    wf_par_units *units = s->t->units;

    for (int k = 0; k < s->count && wf_context_status(ctx) == WF_OK; k++) {
        wf_par_stage *stage = &s->stage[k];

        if (!stage->is_first)
            arrive(v, stage->number, x);
        for (int64_t u = 0; u < stage->units; u++)
            if (stage->unit[u] == units->unit) {
                wf_par_unit_pin(stage->unit[u]);
                wf_par_unit_wait(stage->unit[u]);
            }
        wf_par_units_stage_begin(units, &stage->order, false);
        if (x[0] && stage->end > stage->first)
            wf_nn_chain_run(s->t->model, stage->first, stage->end,
                            wf_par_stage_carried(s->pipeline, stage->number), x);
        wf_par_units_stage_end(units);
        if (!stage->is_last)
            send_on(v, stage->number, x);
    }
    return wf_par_stages_have_loss(s) ? x[0] : NULL;
}

static void end(travel *v)
{
    if (v->sent[0] && wf_context_status(v->s->t->par->ctx) != WF_OK)
        wf_par_abandon(v->s->t->par);
    for (int k = 0; k < WF_NN_CARRIED; k++) {
        if (v->sent[k])
            wf_message_end(v->sent[k]);
        v->sent[k] = NULL;
    }
    wf_par_units_reshard(v->s->t->units);
}

/* Puts the losses of one global batch, on the last stage. */
static void run_batch(wf_par_trainer *t, int64_t number, const wf_par_data *data)
{
    wf_par_stages *s = t->own;
    wf_context *ctx = t->par->ctx;
    travel v = {.s = s, .number = number * t->micros};
    const wf_par_pipeline_options *o = &s->pipeline->options;
    bool reads = s->of[0] >= 0 || wf_par_stages_have_loss(s) || o->documents;
    wf_nn_documents outside = wf_nn_documents_now(ctx);

    wf_par_action_end(t);
    for (int64_t k = 0; k < t->micros && wf_context_status(ctx) == WF_OK; k++, v.number++) {
        wf_tensor *x[WF_NN_CARRIED] = {NULL}, *y;
        wf_par_batch batch;

        wf_scope_open(ctx);
        batch = reads ? wf_par_batch_new(t) : wf_par_batch_without_tensors(t);
        if (reads)
            wf_par_batch_read(t, &batch, data, number, k);
        if (o->documents)
            wf_nn_documents_switch(ctx, o->documents(&batch));
        if (s->of[0] >= 0)
            wf_par_stage_batch(s->pipeline, &batch, x);
        y = pass(&v, x);
        if (wf_par_stages_have_loss(s))
            wf_par_losses_put(t, &batch, k, NULL, y ? o->head_loss(t->model, y, &batch) : NULL);
        wf_nn_documents_switch(ctx, outside);
        wf_scope_close(ctx);
    }
    end(&v);
}

wf_status wf_par_stages_evaluate(wf_par_trainer *t, int64_t number, const wf_par_data *data,
                                 wf_par_loss_function *metric, float *mean)
{
    if (metric)
        return wf_fail(t->par->ctx, WF_EINVAL,
                       "with a pipeline the mean of its head_loss is taken, and no other "
                       "metric: give NULL");
    run_batch(t, number, data);
    return wf_par_stages_mean(t, wf_par_losses_total(t, &t->losses), mean);
}

wf_tensor *wf_par_pipeline_forward(wf_par_trainer *t, wf_tensor *x, wf_par_head_function *head)
{
    wf_context *ctx = t->par->ctx;
    travel v = {.s = wf_par_stages_of(t), .x = x};
    wf_tensor *carried[WF_NN_CARRIED] = {x};

    if (!v.s) {
        wf_fail(ctx, WF_EINVAL, "wf_par_pipeline_forward is for a trainer with a pipeline");
        return NULL;
    }
    if (v.s->pipeline->borders.inputs > 1) {
        wf_fail(
            ctx, WF_EUNSUPPORTED,
            "wf_par_pipeline_forward takes one tensor, and step 0 of this model %d: evaluate "
            "it with batches (wf_par_evaluate)",
            v.s->pipeline->borders.inputs);
        return NULL;
    }
    wf_par_action_end(t);
    x = pass(&v, carried);
    if (x && head)
        x = head(t->model, x);
    end(&v);
    return wf_context_status(ctx) == WF_OK ? x : NULL;
}

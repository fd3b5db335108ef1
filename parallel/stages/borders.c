/*
 * parallel/stages/borders.c - one micro-step of a chain in a plan, watched at each border:
 * forward as it comes by, and backward by an op on the tape that changes nothing.
 */
#include "parallel/stages/borders.h"
#include "core/op.h"
#include "mesh/array/mesh.h"
#include "nn/pass.h"
#include "parallel/train/train_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The attributes of the op that a gradient passes at a border. */
typedef struct crossing {
    wf_par_carried *border;
    double *flops; /* the work that was done when the last gradient of a step's border came */
} crossing;

static void look_back(wf_gradient *g)
{
    const crossing *c = g->attr;
    wf_par_carried *b = c->border;

    g->din[0] = g->dout[0];
    b->wants_gradient = true;
    b->gradient_dtype = g->dout[0]->dtype;
    wf_layout_print(g->dout[0]->layout, b->gradient_layout, sizeof b->gradient_layout);
    *c->flops = wf_context_flops(g->ctx);
}

static const wf_op look_op = {.name = "chain_border",
                              .signature = "...->...",
                              .flags = WF_OP_BORDER | WF_OP_PASS,
                              .backward = look_back};

/* Records a tensor that is carried; returns what the next step takes instead of it. */
static wf_tensor *look(wf_tensor *t, wf_par_carried *b, double *flops)
{
    const crossing c = {b, flops};
    wf_call call = {.op = &look_op,
                    .ctx = t->ctx,
                    .n_in = 1,
                    .in = {t},
                    .n_out = 1,
                    .attr = &c,
                    .attr_size = sizeof c};

    b->dtype = t->dtype;
    b->ndim = t->ndim;
    memcpy(b->dim, t->dim, sizeof b->dim);
    wf_layout_print(t->layout, b->layout, sizeof b->layout);
    if (!t->requires_grad)
        return t;
    call.out[0] = wf_tensor_alias(t);
    return call.out[0] && wf_tape_record(&call) == WF_OK ? call.out[0] : NULL;
}

/* A pass over the chain, step by step. */
typedef struct pass {
    wf_par_trainer *trainer;
    wf_par_borders *borders;
    wf_context *ctx;
    int64_t base; /* the number of the first use */
    double
        *passed; /* [steps + 1]: the work that was done when backward passed a step's border */
} pass;

static void row_begins(pass *p, wf_par_chain_step *row)
{
    row->first_use = wf_nn_next_use(p->ctx) - p->base;
    row->forward = -wf_context_flops(p->ctx);
}

static void row_ends(pass *p, wf_par_chain_step *row)
{
    row->uses = wf_nn_next_use(p->ctx) - p->base - row->first_use;
    row->forward += wf_context_flops(p->ctx);
}

int wf_par_inputs(const wf_par_batch *batch, const char *input, wf_tensor **x)
{
    char name[64];
    int n = 0;

    for (const char *at = input; at && n < WF_NN_CARRIED; n++) {
        size_t length = strcspn(at, ",");

        snprintf(name, sizeof name, "%.*s", (int)length, at);
        x[n] = wf_par_batch_tensor(batch, name);
        if (!x[n])
            return 0;
        at = at[length] ? at + length + 1 : NULL;
        if (at && n + 1 == WF_NN_CARRIED) {
            wf_fail(batch->ctx, WF_EINVAL, "inputs '%s': step 0 takes %d tensors at most",
                    input, WF_NN_CARRIED);
            return 0;
        }
    }
    return n;
}

static wf_tensor *forward(pass *p, const char *input, wf_par_head_loss_function *head_loss,
                          const wf_par_batch *batch)
{
    wf_nn_module *model = p->trainer->model;
    wf_par_borders *b = p->borders;
    const char *outside = wf_nn_enter(model);
    wf_tensor *x[WF_NN_CARRIED] = {NULL}, *loss;
    int n = wf_par_inputs(batch, input, x);

    b->inputs = n;
    p->base = wf_nn_next_use(p->ctx);
    for (int64_t i = 0; i < b->steps && n > 0; i++) {
        wf_par_chain_step *row = &b->step[i];

        row_begins(p, row);
        n = wf_nn_chain_run(model, i, i + 1, n, x);
        row_ends(p, row);
        row->carried = n;
        for (int k = 0; k < n; k++)
            x[k] = look(x[k], &row->border[k], &p->passed[i]);
    }
    row_begins(p, &b->step[b->steps]);
    loss = n > 0 && x[0] ? head_loss(model, x[0], batch) : NULL;
    row_ends(p, &b->step[b->steps]);
    wf_nn_leave(model, outside, 1, &loss);
    return loss;
}

/* The steps' shares of the work of backward: it comes from the end, and where no gradient
   passes a border, what is below has none. */
static void share_backward(pass *p, double begin, double end)
{
    wf_par_borders *b = p->borders;

    for (int64_t i = b->steps; i >= 0; i--) {
        double passed = i > 0 && p->passed[i - 1] >= 0 ? p->passed[i - 1] : end;

        b->step[i].backward = passed - begin;
        begin = passed;
    }
}

static int64_t step_of(const wf_par_borders *b, int64_t number)
{
    int64_t i = 0;

    while (i < b->steps && number >= b->step[i].first_use + b->step[i].uses)
        i++;
    return i;
}

/* The uses that the parameters remember of the forward pass. */
static wf_status list_uses(pass *p)
{
    wf_par_trainer *t = p->trainer;
    wf_par_borders *b = p->borders;
    int64_t n = 0;

    for (int64_t i = 0; i < t->count; i++)
        n += wf_nn_leaves_of(t->parameter[i], NULL)->uses;
    b->use = calloc((size_t)n + 1, sizeof *b->use);
    if (!b->use)
        return wf_fail(p->ctx, WF_ENOMEM, "no memory for %lld uses of parameters",
                       (long long)n);
    for (int64_t i = 0; i < t->count; i++) {
        const wf_nn_leaves *leaves = wf_nn_leaves_of(t->parameter[i], NULL);

        for (int slot = 0; slot < leaves->uses; slot++) {
            wf_par_chain_use *use = &b->use[b->uses++];

            memcpy(use->path, t->parameter[i]->path, sizeof use->path);
            use->number = leaves->number[slot] - p->base;
            use->step = step_of(b, use->number);
            use->slot = slot;
        }
    }
    return WF_OK;
}

static wf_status list_losses(pass *p)
{
    const wf_par_trainer *t = p->trainer;
    wf_par_borders *b = p->borders;

    b->loss = calloc((size_t)t->added_count + 1, sizeof *b->loss);
    if (!b->loss)
        return wf_fail(p->ctx, WF_ENOMEM, "no memory for the losses that modules add");
    for (; b->losses < t->added_count; b->losses++) {
        memcpy(b->loss[b->losses].path, t->added[b->losses]->path, sizeof b->loss->path);
        memcpy(b->loss[b->losses].name, t->added[b->losses]->name, sizeof b->loss->name);
    }
    return WF_OK;
}

static wf_status watch(pass *p, const char *input, wf_par_head_loss_function *head_loss)
{
    static const wf_par_data nothing = {.read = NULL}; /* a plan reads none */
    wf_par_trainer *t = p->trainer;
    const wf_par_batch *batch;
    wf_tensor *loss;
    double begin;

    wf_par_step_begin(t, 1);
    batch = wf_par_micro_step_begin(t, &nothing);
    loss = batch ? forward(p, input, head_loss, batch) : NULL;
    if (loss && list_uses(p) == WF_OK)
        list_losses(p);
    begin = wf_context_flops(p->ctx);
    if (t->step.running)
        wf_par_backward(t, loss);
    share_backward(p, begin, wf_context_flops(p->ctx));
    wf_par_zero_grad(t);
    return wf_context_status(p->ctx);
}

wf_status wf_par_borders_new(wf_par_trainer *t, const char *input,
                             wf_par_head_loss_function *head_loss, wf_par_borders *borders)
{
    wf_context *ctx = t->par->ctx;
    pass p = {.trainer = t, .borders = borders, .ctx = ctx};

    *borders = (wf_par_borders){.steps = wf_nn_chain_steps(t->model)};
    if (wf_nn_chain_check(t->model) != WF_OK)
        return wf_context_status(ctx);
    if (!wf_context_dry_run(ctx))
        return wf_fail(ctx, WF_EINVAL,
                       "borders are found in a plan, where nothing is computed: open a rank "
                       "with wf_par_options.plan over transport fake for them");
    borders->step = calloc((size_t)borders->steps + 1, sizeof *borders->step);
    p.passed = calloc((size_t)borders->steps + 1, sizeof *p.passed);
    if (borders->step && p.passed) {
        for (int64_t i = 0; i <= borders->steps; i++)
            p.passed[i] = -1;
        watch(&p, input, head_loss);
    } else {
        wf_fail(ctx, WF_ENOMEM, "no memory for the borders of %lld steps",
                (long long)borders->steps);
    }
    free(p.passed);
    if (wf_context_status(ctx) != WF_OK)
        wf_par_borders_free(borders);
    return wf_context_status(ctx);
}

void wf_par_borders_free(wf_par_borders *borders)
{
    free(borders->step);
    free(borders->use);
    free(borders->loss);
    *borders = (wf_par_borders){.steps = 0};
}

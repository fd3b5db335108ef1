/* nn/optim/optimizer.c - steps of an optimizer, by the row of a method. */
#include "nn/optim/optimizer_internal.h"
#include "core/numerics/math.h"
#include "core/offload.h"
#include "core/together.h"
#include "kernels/ops.h"
#include "nn/optim/method_internal.h"
#include <stdlib.h>
#include <string.h>

void wf_nn_optimizer_free(wf_nn_optimizer *o)
{
    if (!o)
        return;
    for (int64_t i = 0; o->state && i < o->count; i++)
        for (int k = 0; k < WF_NN_KEPT; k++)
            wf_tensor_release(o->state[i][k]);
    free(o->state);
    free(o->group);
    free(o->group_of);
    free(o);
}

/* Puts parameters into groups; each group has one that is trained. */
static bool find_groups(wf_nn_optimizer *o)
{
    wf_error error = {WF_OK, ""};

    if (wf_nn_groups_parse(o->options.groups, &o->group, &o->groups, &error) != WF_OK)
        wf_fail(o->ctx, error.code, "%s", error.text);
    for (int64_t i = 0; i < o->count; i++)
        o->group_of[i] = wf_nn_groups_find(o->group, o->groups, o->parameter[i]->path);
    for (int k = 0; k < o->groups; k++) {
        int64_t i = 0;

        while (i < o->count && (o->parameter[i]->frozen || o->group_of[i] != k))
            i++;
        if (i == o->count)
            wf_fail(
                o->ctx, WF_EINVAL,
                "the group of parameters %s meets none that is trained and in no later "
                "group: a pattern is a path like block.0.attn.out.weight or that of a module "
                "above it, and * matches one name",
                o->group[k].pattern);
    }
    return wf_context_status(o->ctx) == WF_OK;
}

const wf_nn_group *wf_nn_optimizer_group(const wf_nn_optimizer *o, int k, int64_t *parameters,
                                         int64_t *elements)
{
    *parameters = *elements = 0;
    if (k < 0 || k >= o->groups)
        return NULL;
    for (int64_t i = 0; i < o->count; i++)
        if (o->group_of[i] == k && !o->parameter[i]->frozen) {
            ++*parameters;
            *elements += wf_tensor_count(o->parameter[i]->tensor);
        }
    return &o->group[k];
}

wf_nn_optimizer *wf_nn_optimizer_new(wf_context *ctx, const wf_nn_optimizer_options *options,
                                     int64_t count, wf_nn_parameter *const *parameter,
                                     const wf_layout *const *layout, const wf_nn_mover *mover)
{
    wf_nn_optimizer *o;

    if (wf_nn_optimizer_check(ctx, options) != WF_OK)
        return NULL;
    o = calloc(1, sizeof *o);
    if (o) {
        o->state = calloc((size_t)count + 1, sizeof *o->state);
        o->group_of = calloc((size_t)count + 1, sizeof *o->group_of);
    }
    if (!o || !o->state || !o->group_of) {
        wf_nn_optimizer_free(o);
        wf_fail(ctx, WF_ENOMEM, "no memory for an optimizer of %lld parameters",
                (long long)count);
        return NULL;
    }
    o->ctx = ctx;
    o->options = *options;
    o->row = wf_nn_method_row_of(options->method);
    o->count = count;
    o->parameter = parameter;
    if (mover)
        o->mover = *mover;
    if (find_groups(o) && wf_nn_optimizer_make_states(o, layout))
        return o;
    wf_nn_optimizer_free(o);
    return NULL;
}

const wf_update *wf_nn_optimizer_begin(wf_nn_optimizer *o, float lr, float scale)
{
    const wf_nn_optimizer_options *c = &o->options;
    double step = (double)++o->steps;

    o->update = (wf_update){.lr = lr,
                            .beta1 = c->beta1,
                            .beta2 = c->beta2,
                            .eps = c->eps,
                            .grad_scale = scale,
                            .step_lr = true,
                            .step_scale = true,
                            .lr_times = 1,
                            .step = o->steps};
    memcpy(o->update.own, c->own, sizeof c->own);
    if (o->row->uses & WF_NN_USES_BETA2) {
        o->update.bias1 = (float)(1 / (1 - wf_powd((double)c->beta1, step)));
        o->update.bias2 = (float)(1 / (1 - wf_powd((double)c->beta2, step)));
    }
    return &o->update;
}

/* Returns the numbers of the step for parameter i. */
static wf_update update_of(const wf_nn_optimizer *o, int64_t i)
{
    wf_update u = o->update;

    const wf_nn_group *g = o->group_of[i] >= 0 ? &o->group[o->group_of[i]] : NULL;

    u.weight_decay = g && g->has_decay        ? g->decay
                     : o->parameter[i]->decay ? o->options.weight_decay
                                              : 0;
    if (g && g->has_lr) {
        u.lr *= g->lr;
        u.lr_times = g->lr;
    }
    return u;
}

wf_status wf_nn_optimizer_direction(wf_nn_optimizer *o, int64_t i, wf_tensor *grad,
                                    wf_tensor *direction)
{
    const wf_update u = update_of(o, i);

    if (grad && direction && grad->dtype != direction->dtype)
        grad = wf_cast(grad, direction->dtype);
    for (int k = 0; k < WF_NN_STATES; k++)
        wf_tensor_fetch(o->state[i][k]);
    if (grad && direction)
        o->row->matrix->direction(&u, grad, o->state[i], direction);
    for (int k = 0; k < WF_NN_STATES; k++)
        wf_tensor_put_back(o->state[i][k]);
    return wf_context_status(o->ctx);
}

wf_status wf_nn_optimizer_whole(const wf_nn_optimizer *o, wf_tensor *direction)
{
    wf_dim dims[2];

    if (!direction || direction->ndim == 2)
        return direction ? o->row->matrix->whole(direction) : wf_context_status(o->ctx);
    dims[0] = direction->dim[1];
    dims[1] = direction->dim[2];
    for (int64_t k = 0; k < direction->local[0]; k++) {
        wf_tensor *row = wf_tensor_rows(direction, k, 1);
        wf_tensor *matrix = row ? wf_tensor_view(row, 2, dims, NULL) : NULL;

        if (!matrix || o->row->matrix->whole(matrix) != WF_OK)
            break;
    }
    return wf_context_status(o->ctx);
}

wf_status wf_nn_optimizer_apply(wf_nn_optimizer *o, int64_t i, wf_tensor *t,
                                wf_tensor *direction)
{
    const wf_update u = update_of(o, i);

    return t && direction ? o->row->matrix->apply(&u, t, direction) : wf_context_status(o->ctx);
}

static wf_status update_matrix(wf_nn_optimizer *o, int64_t i, wf_tensor *t, wf_tensor *grad)
{
    wf_tensor *direction =
        wf_tensor_new(o->ctx, t->dtype, t->ndim, t->dim, t->layout, WF_MEMORY_WORKSPACE);

    if (!direction || wf_nn_optimizer_direction(o, i, grad, direction) != WF_OK ||
        wf_nn_optimizer_whole(o, direction) != WF_OK)
        return wf_context_status(o->ctx);
    return wf_nn_optimizer_apply(o, i, t, direction);
}

static wf_status update(wf_nn_optimizer *o, int64_t i, wf_tensor *t, wf_tensor *const *state,
                        wf_tensor *grad)
{
    const wf_update u = update_of(o, i);
    const wf_nn_parts parts = {o->mover.move ? &o->mover : NULL, t->layout};
    int states = 0;

    if (o->parameter[i]->counted)
        return wf_nn_counted_update(t, grad, o->parameter[i]->sign_step);
    if (wf_nn_optimizer_is_matrix(o, i))
        return update_matrix(o, i, t, grad);
    if (o->row->together)
        return o->row->together(&u, &parts, t, grad, state);
    if (o->row->update)
        return o->row->update(&u, t, grad, state);
    while (states < o->row->states && state[states])
        states++;
    return wf_update_elements(t, grad, states, state, o->row->elements, &u);
}

/* Updates in a scope of its own, with a gradient of any type that is stored. */
static wf_status update_with(wf_nn_optimizer *o, int64_t i, wf_tensor *t,
                             wf_tensor *const *state, wf_tensor *grad)
{
    const wf_tensor *given = grad;
    wf_memory_kind kind;

    if (!grad || !t)
        return wf_context_status(o->ctx);
    kind = wf_context_memory_kind(o->ctx, WF_MEMORY_WORKSPACE);
    wf_scope_open(o->ctx);
    if (grad->dtype != t->dtype)
        grad = wf_cast(grad, t->dtype);
    if (grad && update(o, i, t, state, grad) == WF_OK && grad != given)
        wf_together_run(o->ctx); /* so that there is one such gradient at a time */
    wf_scope_close(o->ctx);
    wf_context_memory_kind(o->ctx, kind);
    return wf_context_status(o->ctx);
}

wf_status wf_nn_optimizer_update(wf_nn_optimizer *o, int64_t i, wf_tensor *t, wf_tensor *grad)
{
    for (int k = 0; k < WF_NN_STATES && grad; k++)
        wf_tensor_fetch(o->state[i][k]);
    update_with(o, i, t, o->state[i], grad);
    for (int k = 0; k < WF_NN_STATES && grad; k++)
        wf_tensor_put_back(o->state[i][k]);
    return wf_context_status(o->ctx);
}

/* e = e + (1 - ema) (t - e); that of the first update is a copy. */
static wf_status average(const wf_nn_optimizer *o, wf_tensor *t, wf_tensor *e)
{
    const wf_update u = {.lr = o->steps - o->skipped == 1 ? 1 : 1 - o->options.ema,
                         .weight_decay = 1,
                         .grad_scale = -1};

    return t && e ? wf_sgd(e, t, t, &u) : wf_context_status(o->ctx);
}

wf_status wf_nn_optimizer_average(wf_nn_optimizer *o, int64_t i, wf_tensor *t)
{
    wf_tensor *e = o->state[i][WF_NN_STATES];

    wf_tensor_fetch(e);
    average(o, t, e);
    wf_tensor_put_back(e);
    return wf_context_status(o->ctx);
}

wf_status wf_nn_optimizer_update_copy(wf_nn_optimizer *o, int64_t i, wf_tensor *t,
                                      wf_tensor *const state[WF_NN_KEPT], wf_tensor *grad)
{
    if (!wf_nn_optimizer_is_alone(o, i))
        return wf_fail(o->ctx, WF_EUNSUPPORTED,
                       "parameter %s is updated by %s from all of its parts: no part of it "
                       "has an update of its own",
                       o->parameter[i]->path, o->row->name);
    if (update_with(o, i, t, state, grad) != WF_OK)
        return wf_context_status(o->ctx);
    return average(o, t, state[WF_NN_STATES]);
}

wf_status wf_nn_optimizer_step(wf_nn_optimizer *o, wf_tensor *const *grad, float lr,
                               float scale)
{
    wf_nn_optimizer_begin(o, lr, scale);
    for (int64_t i = 0; i < o->count; i++) {
        wf_nn_optimizer_update(o, i, o->parameter[i]->tensor, grad[i]);
        wf_nn_optimizer_average(o, i, o->parameter[i]->tensor);
    }
    return wf_context_status(o->ctx);
}

const char *wf_nn_optimizer_uncaptured(const wf_nn_optimizer *o)
{
    if (!o->row->captured)
        return "an optimizer whose numbers are the host's";
    if (o->options.ema > 0 && o->steps == o->skipped)
        return "an average of weights that has not begun";
    return NULL;
}

void wf_nn_optimizer_skip(wf_nn_optimizer *o)
{
    o->steps++;
    o->skipped++;
}

int64_t wf_nn_optimizer_skipped(const wf_nn_optimizer *o)
{
    return o->skipped;
}

void wf_nn_optimizer_take_back(wf_nn_optimizer *o, int64_t steps)
{
    o->steps -= steps;
}

void wf_nn_optimizer_resume(wf_nn_optimizer *o, int64_t steps, int64_t skipped)
{
    o->steps = o->began = steps;
    o->skipped = skipped;
}

int64_t wf_nn_optimizer_began(const wf_nn_optimizer *o)
{
    return o->began;
}

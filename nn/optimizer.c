/* nn/optimizer.c - optimizer state and steps. */
#include "nn/optimizer.h"
#include "core/math.h"
#include "kernels/ops.h"
#include <stdlib.h>

struct wf_nn_optimizer {
    wf_context *ctx;
    wf_nn_optimizer_options options;
    int64_t count, steps;
    wf_nn_parameter *const *parameter;
    wf_tensor *(*moment)[2];
    wf_update update; /* of the step that was begun */
};

void wf_nn_optimizer_free(wf_nn_optimizer *o)
{
    if (!o)
        return;
    for (int64_t i = 0; o->moment && i < o->count; i++) {
        wf_tensor_release(o->moment[i][0]);
        wf_tensor_release(o->moment[i][1]);
    }
    free(o->moment);
    free(o);
}

static wf_tensor *zeros_like(wf_tensor *t, const wf_layout *layout)
{
    wf_tensor *zero;

    wf_scope_open(t->ctx);
    zero = wf_tensor_new(t->ctx, t->dtype, t->ndim, t->dim, layout, WF_MEMORY_OPTIMIZER);
    if (zero && wf_init_fill(zero, 0) == WF_OK)
        wf_tensor_retain(zero);
    else
        zero = NULL;
    wf_scope_close(t->ctx);
    return zero;
}

static wf_status check(wf_context *ctx, const wf_nn_optimizer_options *o)
{
    bool adamw = o->method == WF_NN_ADAMW;

    if (!(o->beta1 >= 0 && o->beta1 < 1) || (adamw && !(o->beta2 >= 0 && o->beta2 < 1)) ||
        (adamw && !(o->eps > 0)) || !(o->weight_decay >= 0))
        return wf_fail(
            ctx, WF_EINVAL,
            "an optimizer with beta1 %g, beta2 %g, eps %g, weight decay %g: betas are "
            "at least 0 and below 1, eps is positive, decay is not negative",
            (double)o->beta1, (double)o->beta2, (double)o->eps, (double)o->weight_decay);
    return WF_OK;
}

wf_nn_optimizer *wf_nn_optimizer_new(wf_context *ctx, const wf_nn_optimizer_options *options,
                                     int64_t count, wf_nn_parameter *const *parameter,
                                     const wf_layout *const *layout)
{
    int moments = options->method == WF_NN_ADAMW ? 2 : options->beta1 > 0 ? 1 : 0;
    wf_nn_optimizer *o;

    if (check(ctx, options) != WF_OK)
        return NULL;
    o = calloc(1, sizeof *o);
    if (o)
        o->moment = calloc((size_t)count + 1, sizeof *o->moment);
    if (!o || !o->moment) {
        free(o);
        wf_fail(ctx, WF_ENOMEM, "no memory for an optimizer of %lld parameters",
                (long long)count);
        return NULL;
    }
    o->ctx = ctx;
    o->options = *options;
    o->count = count;
    o->parameter = parameter;
    for (int64_t i = 0; i < count; i++)
        for (int k = 0; k < moments && !parameter[i]->frozen; k++) {
            wf_tensor *p = parameter[i]->tensor;

            o->moment[i][k] = zeros_like(p, layout ? layout[i] : p->layout);
            if (!o->moment[i][k]) {
                wf_nn_optimizer_free(o);
                return NULL;
            }
        }
    return o;
}

void wf_nn_optimizer_begin(wf_nn_optimizer *o, float lr, float scale)
{
    const wf_nn_optimizer_options *c = &o->options;
    double step = (double)++o->steps;

    o->update = (wf_update){
        .lr = lr, .beta1 = c->beta1, .beta2 = c->beta2, .eps = c->eps, .grad_scale = scale};
    if (c->method == WF_NN_ADAMW) {
        o->update.bias1 = (float)(1 / (1 - wf_pow((double)c->beta1, step)));
        o->update.bias2 = (float)(1 / (1 - wf_pow((double)c->beta2, step)));
    }
}

static wf_status update(wf_nn_optimizer *o, int64_t i, wf_tensor *t, wf_tensor *grad)
{
    const wf_nn_optimizer_options *c = &o->options;
    wf_tensor *const *moment = o->moment[i];

    o->update.weight_decay = o->parameter[i]->decay ? c->weight_decay : 0;
    return c->method == WF_NN_ADAMW ? wf_adamw(t, grad, moment[0], moment[1], &o->update)
                                    : wf_sgd(t, grad, moment[0] ? moment[0] : grad, &o->update);
}

wf_status wf_nn_optimizer_update(wf_nn_optimizer *o, int64_t i, wf_tensor *t, wf_tensor *grad)
{
    wf_memory_kind kind;

    if (!grad || !t)
        return wf_context_status(o->ctx);
    kind = wf_context_memory_kind(o->ctx, WF_MEMORY_WORKSPACE);
    wf_scope_open(o->ctx);
    if (grad->dtype != t->dtype)
        grad = wf_cast(grad, t->dtype);
    if (grad)
        update(o, i, t, grad);
    wf_scope_close(o->ctx);
    wf_context_memory_kind(o->ctx, kind);
    return wf_context_status(o->ctx);
}

wf_status wf_nn_optimizer_step(wf_nn_optimizer *o, wf_tensor *const *grad, float lr,
                               float scale)
{
    wf_nn_optimizer_begin(o, lr, scale);
    for (int64_t i = 0; i < o->count; i++)
        wf_nn_optimizer_update(o, i, o->parameter[i]->tensor, grad[i]);
    return wf_context_status(o->ctx);
}

wf_tensor *wf_nn_optimizer_moment(const wf_nn_optimizer *o, int64_t i, int which)
{
    return o->moment[i][which];
}

void wf_nn_optimizer_resume(wf_nn_optimizer *o, int64_t steps)
{
    o->steps = steps;
}

float wf_nn_schedule_at(const wf_nn_schedule *s, int64_t step)
{
    const double pi = 3.14159265358979323846;
    double at;

    if (step <= s->warmup)
        return (float)(s->lr * (double)step / (double)s->warmup);
    if (step >= s->steps)
        return (float)s->min_lr;
    at = (double)(step - s->warmup) / (double)(s->steps - s->warmup);
    return (float)(s->min_lr + (s->lr - s->min_lr) * 0.5 * (1 + wf_cos(pi * at)));
}

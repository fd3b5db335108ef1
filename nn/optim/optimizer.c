/* nn/optim/optimizer.c - optimizer state and steps. */
#include "nn/optim/optimizer.h"
#include "core/host_data.h"
#include "core/numerics/math.h"
#include "kernels/ops.h"
#include "kernels/parameters.h"
#include "nn/optim/muon.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct wf_nn_optimizer {
    wf_context *ctx;
    wf_nn_optimizer_options options;
    int64_t count, steps, began;
    wf_nn_parameter *const *parameter;
    wf_tensor *(*moment)[2];
    wf_update update; /* the step that was begun */
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

enum { LEAST_COLUMNS = 16 }; /* in shorter rows scales would take what codes save */

/* The type that a moment is stored as: of matrices 8 bits may do. */
static wf_dtype dtype_of(const wf_nn_optimizer *o, const wf_tensor *t, int k)
{
    if (o->options.method != WF_NN_ADAMW8BIT || t->ndim != 2 || t->dim[1].size < LEAST_COLUMNS)
        return t->dtype;
    return k ? WF_DYNAMIC8U : WF_DYNAMIC8;
}

/* Zeros, of any type of storage. */
static wf_status clear(wf_tensor *t)
{
    wf_host_data view;
    void *data;

    if (!wf_dtype_is_dynamic8(t->dtype))
        return wf_init_fill(t, 0);
    if (wf_context_dry_run(t->ctx))
        return WF_OK;
    data = wf_data_write(t, false, &view);
    if (data)
        memset(data, 0, wf_tensor_bytes(t));
    wf_data_close(&view);
    return wf_context_status(t->ctx);
}

/* Fake as the parameter is. */
static wf_tensor *zeros_like(wf_tensor *t, wf_dtype dtype, const wf_layout *layout)
{
    wf_tensor *zero;

    wf_scope_open(t->ctx);
    if (wf_tensor_is_fake(t))
        zero = wf_tensor_fake(t->ctx, dtype, t->ndim, t->dim, layout);
    else
        zero = wf_tensor_new(t->ctx, dtype, t->ndim, t->dim, layout, WF_MEMORY_OPTIMIZER);
    if (zero && (wf_tensor_is_fake(zero) || clear(zero) == WF_OK))
        wf_tensor_retain(zero);
    else
        zero = NULL;
    wf_scope_close(t->ctx);
    return zero;
}

static wf_status check(wf_context *ctx, const wf_nn_optimizer_options *o)
{
    bool adamw = o->method != WF_NN_SGD;
    const wf_device *device = wf_context_device(ctx);
    const wf_kernel *adamw_kernel = device->kernel(device, &wf_op_adamw);

    if ((unsigned)o->method > WF_NN_ADAMW8BIT)
        return wf_fail(ctx, WF_EINVAL,
                       "an optimizer of method %d: it is none of wf_nn_method, 0 to %d",
                       (int)o->method, (int)WF_NN_ADAMW8BIT);
    if (!(o->beta1 >= 0 && o->beta1 < 1) || (adamw && !(o->beta2 >= 0 && o->beta2 < 1)) ||
        (adamw && !(o->eps > 0 && isfinite(o->eps))) ||
        !(o->weight_decay >= 0 && isfinite(o->weight_decay)))
        return wf_fail(
            ctx, WF_EINVAL,
            "an optimizer with beta1 %g, beta2 %g, eps %g, weight decay %g: betas are "
            "at least 0 and below 1, eps is positive, decay is not negative, both are finite",
            (double)o->beta1, (double)o->beta2, (double)o->eps, (double)o->weight_decay);
    if (o->method == WF_NN_ADAMW8BIT && !(adamw_kernel && adamw_kernel->dynamic8_ok))
        return wf_fail(
            ctx, WF_EUNSUPPORTED,
            "device %s has no AdamW with moments in 8 bits (adamw8bit): use adamw, or "
            "device cpu",
            device->name);
    return WF_OK;
}

bool wf_nn_optimizer_is_matrix(const wf_nn_optimizer *o, int64_t i)
{
    const wf_nn_parameter *p = o->parameter[i];

    return o->options.method == WF_NN_MUON && p->matrix && p->tensor->ndim == 2;
}

static bool is_adamw(const wf_nn_optimizer *o, int64_t i)
{
    return o->options.method != WF_NN_SGD && !wf_nn_optimizer_is_matrix(o, i);
}

static int moments_of(const wf_nn_optimizer *o, int64_t i)
{
    return is_adamw(o, i) ? 2 : o->options.beta1 > 0 ? 1 : 0;
}

wf_nn_optimizer *wf_nn_optimizer_new(wf_context *ctx, const wf_nn_optimizer_options *options,
                                     int64_t count, wf_nn_parameter *const *parameter,
                                     const wf_layout *const *layout)
{
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
        for (int k = 0; k < moments_of(o, i) && !parameter[i]->frozen; k++) {
            wf_tensor *p = parameter[i]->tensor;

            o->moment[i][k] = zeros_like(p, dtype_of(o, p, k), layout ? layout[i] : p->layout);
            if (!o->moment[i][k]) {
                wf_nn_optimizer_free(o);
                return NULL;
            }
        }
    return o;
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
                            .of_step = true};
    if (c->method != WF_NN_SGD) {
        o->update.bias1 = (float)(1 / (1 - wf_pow((double)c->beta1, step)));
        o->update.bias2 = (float)(1 / (1 - wf_pow((double)c->beta2, step)));
    }
    return &o->update;
}

/* y = y + factor x */
static wf_status add_multiple(wf_tensor *y, wf_tensor *x, float factor)
{
    wf_update u = {.lr = -1, .grad_scale = factor};

    return wf_sgd(y, x, x, &u);
}

static wf_status direct(wf_nn_optimizer *o, int64_t i, wf_tensor *grad, wf_tensor *direction)
{
    wf_update u = {
        .lr = -o->options.beta1, .beta1 = o->options.beta1, .grad_scale = o->update.grad_scale};

    if (wf_init_fill(direction, 0) == WF_OK && o->moment[i][0])
        wf_sgd(direction, grad, o->moment[i][0], &u); /* m, and direction = beta1 m */
    return add_multiple(direction, grad, o->update.grad_scale);
}

wf_status wf_nn_optimizer_direction(wf_nn_optimizer *o, int64_t i, wf_tensor *grad,
                                    wf_tensor *direction)
{
    if (grad && direction && grad->dtype != direction->dtype)
        grad = wf_cast(grad, direction->dtype);
    return grad && direction ? direct(o, i, grad, direction) : wf_context_status(o->ctx);
}

wf_status wf_nn_optimizer_apply(wf_nn_optimizer *o, int64_t i, wf_tensor *t,
                                wf_tensor *direction)
{
    const wf_tensor *p = o->parameter[i]->tensor;
    int64_t rows = p->dim[0].size, columns = p->dim[1].size;
    wf_update u = {.lr = o->update.lr,
                   .weight_decay = o->parameter[i]->decay ? o->options.weight_decay : 0};

    u.grad_scale = (float)(0.2 * sqrt((double)(rows > columns ? rows : columns)));
    return t && direction ? wf_sgd(t, direction, direction, &u) : wf_context_status(o->ctx);
}

static wf_status update_matrix(wf_nn_optimizer *o, int64_t i, wf_tensor *t, wf_tensor *grad)
{
    wf_tensor *direction =
        wf_tensor_new(o->ctx, t->dtype, t->ndim, t->dim, t->layout, WF_MEMORY_WORKSPACE);

    if (!direction || direct(o, i, grad, direction) != WF_OK ||
        wf_nn_orthogonalize(direction) != WF_OK)
        return wf_context_status(o->ctx);
    return wf_nn_optimizer_apply(o, i, t, direction);
}

static wf_status update(wf_nn_optimizer *o, int64_t i, wf_tensor *t, wf_tensor *const *moment,
                        wf_tensor *grad)
{
    const wf_nn_optimizer_options *c = &o->options;

    o->update.weight_decay = o->parameter[i]->decay ? c->weight_decay : 0;
    if (wf_nn_optimizer_is_matrix(o, i))
        return update_matrix(o, i, t, grad);
    return is_adamw(o, i) ? wf_adamw(t, grad, moment[0], moment[1], &o->update)
                          : wf_sgd(t, grad, moment[0] ? moment[0] : grad, &o->update);
}

/* In a scope of its own, with a gradient of any type that is stored. */
static wf_status update_with(wf_nn_optimizer *o, int64_t i, wf_tensor *t,
                             wf_tensor *const *moment, wf_tensor *grad)
{
    wf_memory_kind kind;

    if (!grad || !t)
        return wf_context_status(o->ctx);
    kind = wf_context_memory_kind(o->ctx, WF_MEMORY_WORKSPACE);
    wf_scope_open(o->ctx);
    if (grad->dtype != t->dtype)
        grad = wf_cast(grad, t->dtype);
    if (grad)
        update(o, i, t, moment, grad);
    wf_scope_close(o->ctx);
    wf_context_memory_kind(o->ctx, kind);
    return wf_context_status(o->ctx);
}

wf_status wf_nn_optimizer_update(wf_nn_optimizer *o, int64_t i, wf_tensor *t, wf_tensor *grad)
{
    return update_with(o, i, t, o->moment[i], grad);
}

wf_status wf_nn_optimizer_update_copy(wf_nn_optimizer *o, int64_t i, wf_tensor *t,
                                      wf_tensor *const moment[2], wf_tensor *grad)
{
    if (wf_nn_optimizer_is_matrix(o, i))
        return wf_fail(o->ctx, WF_EUNSUPPORTED,
                       "parameter %s is a matrix that Muon updates as a whole: no part of it "
                       "has an update of its own",
                       o->parameter[i]->path);
    return update_with(o, i, t, moment, grad);
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
    o->steps = o->began = steps;
}

int64_t wf_nn_optimizer_began(const wf_nn_optimizer *o)
{
    return o->began;
}

static bool is_rate(double lr)
{
    return lr >= 0 && isfinite((float)lr) && (lr == 0) == ((float)lr == 0);
}

wf_status wf_nn_schedule_check(wf_context *ctx, const wf_nn_schedule *s)
{
    if (!is_rate(s->lr) || !is_rate(s->min_lr))
        return wf_fail(ctx, WF_EINVAL,
                       "a schedule with learning rate %g and least rate %g: both are finite as "
                       "floats and at least 0",
                       s->lr, s->min_lr);
    if (s->warmup < 0 || s->steps < 0 || s->warmup > s->steps)
        return wf_fail(
            ctx, WF_EINVAL,
            "a schedule of %lld steps with %lld of warm-up: neither is negative, and "
            "warm-up is not longer than the whole",
            (long long)s->steps, (long long)s->warmup);
    return wf_context_status(ctx);
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

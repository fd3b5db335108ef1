/*
 * nn/layers/loss.c - cross-entropy: loss = log sum_v exp(logit_v - max) + max - logit_target.
 *
 * Training may smooth labels, which is part of what is picked (kernels/loss.c), and add z-loss,
 * made of what is there for every token: neither reads the logits once more.
 *
 * The maximum is taken over the whole vocabulary before any exponential, so that the terms are
 * the same however the vocabulary is split.
 */
#include "core/device.h"
#include "core/tape.h"
#include "kernels/ops.h"
#include "kernels/parameters.h"
#include "nn/layers/loss_internal.h"
#include <math.h>
#include <string.h>

static const wf_nn_type loss_type = {"loss", sizeof(wf_nn_loss), NULL, NULL, NULL, "max sum"};

wf_nn_loss *wf_nn_loss_new(wf_context *ctx)
{
    return wf_nn_new(ctx, &loss_type);
}

/* Returns what training adds and evaluation does not. */
float wf_nn_loss_in_training(const wf_nn_loss *m, float value)
{
    return wf_context_is_training(m->base.ctx) ? value : 0;
}

wf_status wf_nn_loss_check(const wf_nn_loss *m)
{
    if (m->smoothing >= 0 && m->smoothing < 1 && m->z >= 0 && isfinite(m->z))
        return WF_OK;
    return wf_fail(m->base.ctx, WF_EINVAL,
                   "loss: label smoothing %g is 0 to below 1, and z-loss %g is 0 or more",
                   (double)m->smoothing, (double)m->z);
}

/* max, and part[WF_NN_SUM] and part[WF_NN_PICKED], past their points. */
void wf_nn_loss_reduce(wf_nn_loss *m, wf_tensor *logits, wf_tensor *targets, float smoothing,
                       wf_tensor **max, wf_tensor *part[2])
{
    *max = wf_nn_at(m, "max", wf_logit_max(logits));
    wf_logit_sum(logits, *max, targets, smoothing, &part[WF_NN_SUM], &part[WF_NN_PICKED]);
    wf_nn_at_many(m, "sum", 2, part);
}

/* log(sum) + max; +0 where there is no target. */
static wf_tensor *log_sum(wf_tensor *sum, wf_tensor *max)
{
    wf_tensor *zero = max ? wf_tensor_like(max, WF_MEMORY_ACTIVATION) : NULL;

    return zero && wf_init_fill(zero, 0) == WF_OK ? wf_cross_entropy(sum, zero, max) : NULL;
}

/* z log(sum)^2, which is added to a loss; stored as losses are, not as results of ops. */
wf_tensor *wf_nn_z_loss(wf_tensor *sum, wf_tensor *max, float z)
{
    wf_tensor *log = log_sum(sum, max), *loss;
    wf_dtype storage;

    if (!log)
        return NULL;
    storage = wf_context_storage(log->ctx, wf_context_device(log->ctx)->dtype);
    loss = wf_scale(wf_mul(log, log), z);
    wf_context_storage(log->ctx, storage);
    return loss;
}

/* loss + more, stored as losses are. */
static wf_tensor *add_loss(wf_tensor *loss, wf_tensor *more)
{
    wf_dtype storage;

    if (!loss || !more)
        return NULL;
    storage = wf_context_storage(loss->ctx, wf_context_device(loss->ctx)->dtype);
    loss = wf_add(loss, more);
    wf_context_storage(more->ctx, storage);
    return loss;
}

/* dsum with that of z_loss, by the ops of its gradient; the two are added as the tape does it,
   without rounding. */
wf_tensor *wf_nn_z_loss_grad(wf_tensor *dsum, wf_tensor *sum, wf_tensor *max, wf_tensor *dloss,
                             float z)
{
    wf_tensor *half = wf_mul(wf_scale(dloss, z), log_sum(sum, max)), *more, *none;

    wf_cross_entropy_grad(sum, wf_add(half, half), &more, &none);
    return wf_partial_add_to(more, dsum);
}

wf_tensor *wf_nn_cross_entropy(wf_nn_loss *m, wf_tensor *logits, wf_tensor *targets)
{
    wf_tensor *max, *part[2], *loss;
    const char *outside;

    if (!m || !logits)
        return NULL;
    if (wf_nn_loss_check(m) != WF_OK)
        return NULL;
    outside = wf_nn_enter(m);
    wf_nn_loss_reduce(m, logits, targets, wf_nn_loss_in_training(m, m->smoothing), &max, part);
    loss = wf_cross_entropy(part[WF_NN_SUM], part[WF_NN_PICKED], max);
    if (wf_nn_loss_in_training(m, m->z) > 0)
        loss = add_loss(loss, wf_nn_z_loss(part[WF_NN_SUM], max, m->z));
    wf_nn_leave(m, outside, 1, &loss);
    return loss;
}

/* Token 0 as the target of each: any one does, for who wants the sum alone. Filled by the
   device, so that a graph can capture it. */
static wf_tensor *no_targets(wf_tensor *logits)
{
    wf_tensor *t = wf_tensor_new(logits->ctx, WF_I32, logits->ndim - 1, logits->dim, NULL,
                                 WF_MEMORY_ACTIVATION);
    wf_device *device;
    int64_t n;

    if (!t || wf_context_dry_run(t->ctx))
        return t;
    device = wf_context_device(t->ctx);
    n = wf_tensor_local_count(t);
    if (device->memory && n)
        device->memory->fill(device, t->data, 0, n);
    else if (n)
        memset(t->data, 0, (size_t)n * sizeof(int32_t));
    return t;
}

wf_tensor *wf_nn_logsumexp(wf_nn_loss *m, wf_tensor *logits)
{
    const char *outside;
    wf_tensor *max, *part[2], *y;

    if (!m || !logits)
        return NULL;
    outside = wf_nn_enter(m);
    wf_nn_loss_reduce(m, logits, no_targets(logits), 0, &max, part);
    y = log_sum(part[WF_NN_SUM], max);
    wf_nn_leave(m, outside, 1, &y);
    return y;
}

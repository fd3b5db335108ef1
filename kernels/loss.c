/*
 * kernels/loss.c - cross-entropy in the pieces that a split vocabulary needs: max and sums are
 * partial where the vocabulary is split, and are made whole in between.
 *
 *     max = max_v x[v];  sum = sum_v exp(x[v] - max), picked = x[target]
 *     loss = log(sum) + max - picked
 *
 * A row with target -1 is not trained on: its sum and picked are +0, which no part of another
 * row's whole sum is, and from a sum of 0 follow a loss and gradients of +0.
 *
 * With label smoothing e, picked = (1 - e) x[target] + e / V sum_v x[v].
 *
 * Backward, dsum = dloss / sum and dpicked = -dloss; dx[v] = exp(x[v] - max) dsum + ((1 - e) [v
 * = target] + e / V) dpicked. max has no gradient: it cancels out. The CPU's kernels are in
 * kernels/cpu/loss.c.
 *
 * Where a rank has all of the vocabulary, and the gradient of the losses is known, logit_loss
 * is all of it in one pass.
 */
#include "core/numerics/math.h"
#include "kernels/shared_internal.h"
#include <math.h>

wf_tensor *wf_logit_max(wf_tensor *logits)
{
    return wf_apply(&wf_op_logit_max, NULL, 0, 1, logits);
}

void wf_logit_sum(wf_tensor *logits, wf_tensor *max, wf_tensor *targets, float smoothing,
                  wf_tensor **sum, wf_tensor **picked)
{
    wf_call call = {.op = &wf_op_logit_sum,
                    .n_in = 3,
                    .in = {logits, max, targets},
                    .n_out = 2,
                    .attr = &smoothing,
                    .attr_size = sizeof smoothing};

    wf_dispatch(&call);
    *sum = call.out[0];
    *picked = call.out[1];
}

wf_tensor *wf_logit_sum_grad(wf_tensor *logits, wf_tensor *max, wf_tensor *targets,
                             wf_tensor *dsum, wf_tensor *dpicked, float smoothing)
{
    return wf_logit_sum_grad_into(logits, max, targets, dsum, dpicked, smoothing, NULL);
}

wf_tensor *wf_logit_sum_grad_into(wf_tensor *logits, wf_tensor *max, wf_tensor *targets,
                                  wf_tensor *dsum, wf_tensor *dpicked, float smoothing,
                                  wf_tensor *dlogits)
{
    wf_call call = {.op = &wf_op_logit_sum_grad,
                    .n_in = 5,
                    .in = {logits, max, targets, dsum, dpicked},
                    .n_out = 1,
                    .into = {dlogits},
                    .attr = &smoothing,
                    .attr_size = sizeof smoothing};

    wf_dispatch(&call);
    return call.out[0];
}

wf_tensor *wf_cross_entropy(wf_tensor *sum, wf_tensor *picked, wf_tensor *max)
{
    return wf_cross_entropy_into(sum, picked, max, NULL);
}

wf_tensor *wf_cross_entropy_into(wf_tensor *sum, wf_tensor *picked, wf_tensor *max,
                                 wf_tensor *loss)
{
    wf_call call = {.op = &wf_op_cross_entropy,
                    .n_in = 3,
                    .in = {sum, picked, max},
                    .n_out = 1,
                    .into = {loss}};

    wf_dispatch(&call);
    return call.out[0];
}

void wf_cross_entropy_grad(wf_tensor *sum, wf_tensor *dloss, wf_tensor **dsum,
                           wf_tensor **dpicked)
{
    wf_call call = {.op = &wf_op_cross_entropy_grad, .n_in = 2, .in = {sum, dloss}, .n_out = 2};

    wf_dispatch(&call);
    *dsum = call.out[0];
    *dpicked = call.out[1];
}

wf_status wf_logit_loss_into(wf_tensor *logits, wf_tensor *targets, wf_tensor *dloss,
                             float smoothing, wf_tensor *dlogits, wf_tensor *loss)
{
    wf_call call = {.op = &wf_op_logit_loss,
                    .n_in = 3,
                    .in = {logits, targets, dloss},
                    .n_out = 2,
                    .into = {dlogits, loss},
                    .attr = &smoothing,
                    .attr_size = sizeof smoothing};

    return wf_dispatch(&call);
}

static void sum_backward(wf_gradient *g)
{
    wf_tensor *dsum = g->dout[0], *dpicked = g->dout[1];

    if (!g->want[0])
        return;
    if (!dsum)
        dsum = wf_scale(dpicked, 0);
    if (!dpicked)
        dpicked = wf_scale(dsum, 0);
    g->din[0] =
        wf_logit_sum_grad(g->in[0], g->in[1], g->in[2], dsum, dpicked, *(const float *)g->attr);
}

static void cross_entropy_backward(wf_gradient *g)
{
    wf_cross_entropy_grad(g->in[0], g->dout[0], &g->din[0], &g->din[1]);
}

static wf_status reference_max(const wf_call *call, void *workspace)
{
    const wf_tensor *t = call->in[0];
    double *max = call->out[0]->data;
    int64_t n = t->local[t->ndim - 1], rows = wf_extent(t, 0, t->ndim - 1);

    (void)workspace;
    for (int64_t r = 0; r < rows; r++) {
        const double *x = (const double *)t->data + r * n;

        max[r] = -INFINITY;
        for (int64_t v = 0; v < n; v++)
            max[r] = x[v] > max[r] ? x[v] : max[r];
    }
    return WF_OK;
}

static wf_status reference_sum(const wf_call *call, void *workspace)
{
    const wf_tensor *t = call->in[0];
    const double *max = call->in[1]->data;
    const int32_t *target = call->in[2]->data;
    double *sum = call->out[0]->data, *picked = call->out[1]->data;
    int64_t n = t->local[t->ndim - 1], rows = wf_extent(t, 0, t->ndim - 1);
    int64_t start = t->start[t->ndim - 1];
    wf_label_weights weight = wf_label_weights_of(call);
    wf_status status =
        wf_check_tokens(call, call->in[2], WF_NO_TARGET, t->dim[t->ndim - 1].size);

    (void)workspace;
    if (status != WF_OK)
        return status;
    for (int64_t r = 0; r < rows; r++) {
        const double *x = (const double *)t->data + r * n;

        sum[r] = picked[r] = 0;
        for (int64_t v = 0; v < n && target[r] != WF_NO_TARGET; v++) {
            sum[r] += wf_expd(x[v] - max[r]);
            picked[r] += weight.each * x[v];
            if (start + v == target[r])
                picked[r] += weight.target * x[v];
        }
    }
    return WF_OK;
}

static wf_status reference_sum_grad(const wf_call *call, void *workspace)
{
    const wf_tensor *t = call->in[0];
    const double *max = call->in[1]->data, *dsum = call->in[3]->data;
    const double *dpicked = call->in[4]->data;
    const int32_t *target = call->in[2]->data;
    int64_t n = t->local[t->ndim - 1], rows = wf_extent(t, 0, t->ndim - 1);
    int64_t start = t->start[t->ndim - 1];
    wf_label_weights weight = wf_label_weights_of(call);

    (void)workspace;
    for (int64_t r = 0; r < rows; r++) {
        const double *x = (const double *)t->data + r * n;
        double *dx = (double *)call->out[0]->data + r * n;

        for (int64_t v = 0; v < n; v++)
            dx[v] = wf_expd(x[v] - max[r]) * dsum[r] +
                    (weight.each + (start + v == target[r] ? weight.target : 0)) * dpicked[r];
    }
    return WF_OK;
}

static wf_status reference_cross_entropy(const wf_call *call, void *workspace)
{
    const double *sum = call->in[0]->data, *picked = call->in[1]->data;
    const double *max = call->in[2]->data;
    double *loss = call->out[0]->data;
    int64_t n = wf_tensor_local_count(call->out[0]);

    (void)workspace;
    for (int64_t i = 0; i < n; i++)
        loss[i] = sum[i] == 0 ? 0 : wf_logd(sum[i]) + max[i] - picked[i];
    return WF_OK;
}

static wf_status reference_cross_entropy_grad(const wf_call *call, void *workspace)
{
    const double *sum = call->in[0]->data, *dloss = call->in[1]->data;
    double *dsum = call->out[0]->data, *dpicked = call->out[1]->data;
    int64_t n = wf_tensor_local_count(call->out[0]);

    (void)workspace;
    for (int64_t i = 0; i < n; i++) {
        dsum[i] = sum[i] == 0 ? 0 : dloss[i] / sum[i];
        dpicked[i] = sum[i] == 0 ? 0 : -dloss[i];
    }
    return WF_OK;
}

static double greatest_of(const double *x, int64_t n)
{
    double max = -INFINITY;

    for (int64_t v = 0; v < n; v++)
        max = x[v] > max ? x[v] : max;
    return max;
}

static wf_status reference_loss(const wf_call *call, void *workspace)
{
    const wf_tensor *t = call->in[0];
    const int32_t *target = call->in[1]->data;
    const double *dloss = call->in[2]->data;
    double *loss = call->out[1]->data;
    int64_t n = t->local[t->ndim - 1], rows = wf_extent(t, 0, t->ndim - 1);
    wf_label_weights weight = wf_label_weights_of(call);
    wf_status status = wf_check_tokens(call, call->in[1], WF_NO_TARGET, n);

    (void)workspace;
    for (int64_t r = 0; status == WF_OK && r < rows; r++) {
        const double *x = (const double *)t->data + r * n;
        double *dx = (double *)call->out[0]->data + r * n, max = greatest_of(x, n), sum = 0;
        bool counts = target[r] != WF_NO_TARGET;

        loss[r] = 0;
        for (int64_t v = 0; v < n && counts; v++) {
            sum += wf_expd(x[v] - max);
            loss[r] -= (weight.each + (v == target[r] ? weight.target : 0)) * x[v];
        }
        loss[r] += counts ? wf_logd(sum) + max : 0;
        for (int64_t v = 0; v < n; v++)
            dx[v] = counts ? (wf_expd(x[v] - max) / sum - weight.each -
                              (v == target[r] ? weight.target : 0)) *
                                 dloss[r]
                           : 0;
    }
    return status;
}

const wf_op wf_op_logit_max = {WF_OP_ROW(logit_max), .keep_fp32 = 1,
                               .reference = {.run = reference_max}};
const wf_op wf_op_logit_sum = {WF_OP_ROW(logit_sum),
                               .keep_fp32 = 1 | 1 << 1,
                               .save = WF_SAVE_IN(0) | WF_SAVE_IN(1) | WF_SAVE_IN(2),
                               .integers = 1 << 2,
                               .reference = {.run = reference_sum},
                               .backward = sum_backward};
const wf_op wf_op_logit_sum_grad = {WF_OP_ROW(logit_sum_grad), .integers = 1 << 2,
                                    .reference = {.run = reference_sum_grad}};
const wf_op wf_op_cross_entropy = {
    WF_OP_ROW(cross_entropy), .keep_fp32 = 1, .save = WF_SAVE_IN(0),
    .reference = {.run = reference_cross_entropy}, .backward = cross_entropy_backward};
const wf_op wf_op_cross_entropy_grad = {WF_OP_ROW(cross_entropy_grad), .keep_fp32 = 1 | 1 << 1,
                                        .reference = {.run = reference_cross_entropy_grad}};
const wf_op wf_op_logit_loss = {WF_OP_ROW(logit_loss), .keep_fp32 = 1 << 1, .integers = 1 << 1,
                                .reference = {.run = reference_loss}};

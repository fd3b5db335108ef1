/*
 * kernels/norm.c - layernorm and rmsnorm over the last dim.
 *
 *     layernorm     mean = sum x / d, rstd = 1 / sqrt(sum (x - mean)^2 / d + eps),
 *                   h = (x - mean) rstd, y = h gain + bias
 *     rmsnorm       mean = 0, bias = 0, all else alike
 *     layernorm_dx  dx = rstd (g - sum g / d - h sum (g h) / d), g = dy gain
 *     rmsnorm_dx    dx = rstd (g - h sum (g h) / d)
 *     *_dw          dgain = sum dy h and dbias = sum dy over the tokens of one sequence
 *
 * Where both are wanted they are made in one pass (norm_grad.c).
 *
 * mean and rstd are outputs because the gradients read them; they carry no gradient themselves.
 * The CPU's kernels are in kernels/cpu/norm.c.
 */
#include "kernels/shared_internal.h"
#include "core/distribution.h"
#include <math.h>

static wf_tensor *norm(wf_call call, float eps)
{
    if (call.in[0] && !(eps > 0 && isfinite(eps))) {
        wf_fail(call.in[0]->ctx, WF_EINVAL,
                "%s: eps is %g, but must be greater than 0, and finite", call.op->name,
                (double)eps);
        return NULL;
    }
    call.attr = &eps;
    call.attr_size = sizeof eps;
    wf_dispatch(&call);
    return call.out[0];
}

wf_tensor *wf_layernorm(wf_tensor *x, wf_tensor *gain, wf_tensor *bias, float eps)
{
    return norm((wf_call){.op = &wf_op_layernorm, .n_in = 3, .in = {x, gain, bias}, .n_out = 3},
                eps);
}

wf_tensor *wf_layernorm_dx(wf_tensor *x, wf_tensor *gain, wf_tensor *mean, wf_tensor *rstd,
                           wf_tensor *dy)
{
    return wf_apply(&wf_op_layernorm_dx, NULL, 0, 5, x, gain, mean, rstd, dy);
}

void wf_layernorm_dw(wf_tensor *x, wf_tensor *mean, wf_tensor *rstd, wf_tensor *dy,
                     wf_tensor **dgain, wf_tensor **dbias)
{
    wf_call call = {
        .op = &wf_op_layernorm_dw, .n_in = 4, .in = {x, mean, rstd, dy}, .n_out = 2};

    wf_dispatch(&call);
    *dgain = call.out[0];
    *dbias = call.out[1];
}

wf_tensor *wf_rmsnorm(wf_tensor *x, wf_tensor *gain, float eps)
{
    return norm((wf_call){.op = &wf_op_rmsnorm, .n_in = 2, .in = {x, gain}, .n_out = 2}, eps);
}

wf_tensor *wf_rmsnorm_dx(wf_tensor *x, wf_tensor *gain, wf_tensor *rstd, wf_tensor *dy)
{
    return wf_apply(&wf_op_rmsnorm_dx, NULL, 0, 4, x, gain, rstd, dy);
}

wf_tensor *wf_rmsnorm_dw(wf_tensor *x, wf_tensor *rstd, wf_tensor *dy)
{
    return wf_apply(&wf_op_rmsnorm_dw, NULL, 0, 3, x, rstd, dy);
}

/* Returns whether ranks split the tokens of a norm of heads: of a sum over both, whose chunks
   are of heads. */
static bool splits_tokens(const wf_tensor *x)
{
    return x->ndim > 3 && wf_chunk_dim(x->dim, 1, x->ndim - 1) > 1 && wf_parts_of(x, 1) > 1 &&
           wf_context_exact(x->ctx);
}

/* Computes the gradients of a gain and, where a norm has a mean, a bias, a row per sequence.
   Ranks that split the tokens of heads split features for it, each of which is a sum of its
   own. */
static void vector_gradients(wf_gradient *g, wf_tensor *mean, wf_tensor *rstd)
{
    wf_tensor *x = g->in[0], *dy = g->dout[0], **dgain = &g->din[1], **dbias = &g->din[2];
    int last = x->ndim - 1;
    bool split = splits_tokens(x);

    if (split) {
        x = wf_resplit(x, 1, last);
        mean = wf_resplit(mean, 1, -1);
        rstd = wf_resplit(rstd, 1, -1);
        dy = wf_resplit(dy, 1, last);
    }
    if (mean)
        wf_layernorm_dw(x, mean, rstd, dy, dgain, dbias);
    else
        *dgain = wf_rmsnorm_dw(x, rstd, dy);
    if (split) {
        *dgain = wf_resplit(*dgain, 1, -1);
        *dbias = mean ? wf_resplit(*dbias, 1, -1) : NULL;
    }
    for (int i = 1; i < g->n_in; i++)
        g->din[i] = wf_vector_gradient(g, i, g->din[i]);
}

/* Makes all gradients where they are of the same tokens, and true; else false. */
static bool in_one_pass(wf_gradient *g, wf_tensor *mean, wf_tensor *rstd)
{
    return !splits_tokens(g->in[0]) &&
           wf_norm_gradients(g, 1, g->in[0], g->in[1], mean, rstd, g->dout[0], NULL);
}

static void layernorm_backward(wf_gradient *g)
{
    wf_tensor *x = g->in[0], *mean = g->out[1], *rstd = g->out[2], *dy = g->dout[0];

    if (!dy || in_one_pass(g, mean, rstd))
        return;
    if (g->want[0])
        g->din[0] = wf_layernorm_dx(x, g->in[1], mean, rstd, dy);
    if (g->want[1] || g->want[2])
        vector_gradients(g, mean, rstd);
}

static wf_tensor *layernorm_recompute(const wf_gradient *g)
{
    return wf_layernorm(g->in[0], g->in[1], g->in[2], *(const float *)g->attr);
}

static wf_tensor *rmsnorm_recompute(const wf_gradient *g)
{
    return wf_rmsnorm(g->in[0], g->in[1], *(const float *)g->attr);
}

static void rmsnorm_backward(wf_gradient *g)
{
    wf_tensor *x = g->in[0], *rstd = g->out[1], *dy = g->dout[0];

    if (!dy || in_one_pass(g, NULL, rstd))
        return;
    if (g->want[0])
        g->din[0] = wf_rmsnorm_dx(x, g->in[1], rstd, dy);
    if (g->want[1])
        vector_gradients(g, NULL, rstd);
}

/* Computes both norms: mean and bias are NULL for rmsnorm. */
static wf_status reference(const wf_call *call, void *workspace)
{
    bool centred = call->n_in == 3;
    const wf_tensor *t = call->in[0];
    const double *gain = call->in[1]->data, *bias = centred ? call->in[2]->data : NULL;
    double *y = call->out[0]->data, *mean = centred ? call->out[1]->data : NULL;
    double *rstd = call->out[centred ? 2 : 1]->data, eps = *(const float *)call->attr;
    int64_t d = t->local[t->ndim - 1], rows = wf_extent(t, 0, t->ndim - 1);

    (void)workspace;
    for (int64_t r = 0; r < rows; r++) {
        const double *x = (const double *)t->data + r * d;
        double middle = 0, square = 0;

        for (int64_t i = 0; centred && i < d; i++)
            middle += x[i] / (double)d;
        for (int64_t i = 0; i < d; i++)
            square += (x[i] - middle) * (x[i] - middle) / (double)d;
        rstd[r] = 1 / sqrt(square + eps);
        if (centred)
            mean[r] = middle;
        for (int64_t i = 0; i < d; i++)
            y[r * d + i] = (x[i] - middle) * rstd[r] * gain[i] + (centred ? bias[i] : 0);
    }
    return WF_OK;
}

static wf_status reference_dx(const wf_call *call, void *workspace)
{
    bool centred = call->n_in == 5;
    const wf_tensor *t = call->in[0];
    const double *x = t->data, *gain = call->in[1]->data;
    const double *mean = centred ? call->in[2]->data : NULL;
    const double *rstd = call->in[centred ? 3 : 2]->data, *dy = call->in[centred ? 4 : 3]->data;
    double *dx = call->out[0]->data;
    int64_t d = t->local[t->ndim - 1], rows = wf_extent(t, 0, t->ndim - 1);

    (void)workspace;
    for (int64_t r = 0; r < rows; r++, x += d, dy += d, dx += d) {
        double middle = centred ? mean[r] : 0, sum = 0, product = 0;

        for (int64_t i = 0; i < d; i++) {
            sum += centred ? dy[i] * gain[i] / (double)d : 0;
            product += dy[i] * gain[i] * (x[i] - middle) * rstd[r] / (double)d;
        }
        for (int64_t i = 0; i < d; i++)
            dx[i] = rstd[r] * (dy[i] * gain[i] - sum - (x[i] - middle) * rstd[r] * product);
    }
    return WF_OK;
}

static wf_status reference_dw(const wf_call *call, void *workspace)
{
    bool centred = call->n_in == 4;
    const wf_tensor *t = call->in[0];
    const double *x = t->data, *mean = centred ? call->in[1]->data : NULL;
    const double *rstd = call->in[centred ? 2 : 1]->data, *dy = call->in[centred ? 3 : 2]->data;
    double *dgain = call->out[0]->data, *dbias = centred ? call->out[1]->data : NULL;
    int64_t d = t->local[t->ndim - 1], tokens = wf_extent(t, 1, t->ndim - 1);

    (void)workspace;
    for (int64_t i = 0; i < t->local[0] * d; i++) {
        dgain[i] = 0;
        if (centred)
            dbias[i] = 0;
    }
    for (int64_t r = 0; r < t->local[0] * tokens; r++)
        for (int64_t i = 0; i < d; i++) {
            double h = (x[r * d + i] - (centred ? mean[r] : 0)) * rstd[r];

            dgain[r / tokens * d + i] += dy[r * d + i] * h;
            if (centred)
                dbias[r / tokens * d + i] += dy[r * d + i];
        }
    return WF_OK;
}

const wf_op wf_op_layernorm = {WF_OP_ROW(layernorm),
                               .keep_fp32 = 1 << 1 | 1 << 2,
                               .save = WF_SAVE_IN(0) | WF_SAVE_IN(1) | WF_SAVE_IN(2) |
                                       WF_SAVE_OUT(1) | WF_SAVE_OUT(2),
                               .reference = {.run = reference},
                               .backward = layernorm_backward,
                               .recompute = layernorm_recompute};
const wf_op wf_op_layernorm_dx = {WF_OP_ROW(layernorm_dx), .follows = 1,
                                  .reference = {.run = reference_dx}};
const wf_op wf_op_layernorm_dw = {WF_OP_ROW(layernorm_dw), .keep_fp32 = 1 | 1 << 1,
                                  .reference = {.run = reference_dw}};
const wf_op wf_op_rmsnorm = {WF_OP_ROW(rmsnorm),
                             .keep_fp32 = 1 << 1,
                             .save = WF_SAVE_IN(0) | WF_SAVE_IN(1) | WF_SAVE_OUT(1),
                             .reference = {.run = reference},
                             .backward = rmsnorm_backward,
                             .recompute = rmsnorm_recompute};
const wf_op wf_op_rmsnorm_dx = {WF_OP_ROW(rmsnorm_dx), .follows = 1,
                                .reference = {.run = reference_dx}};
const wf_op wf_op_rmsnorm_dw = {WF_OP_ROW(rmsnorm_dw), .keep_fp32 = 1,
                                .reference = {.run = reference_dw}};

/*
 * kernels/softmax.c - y = exp(x - max) / sum of exp(x - max) over the last dim, or over another
 * one that is moved there. The CPU's kernel is in kernels/cpu/dims.c.
 */
#include "kernels/elementwise_ops.h"
#include "kernels/reshape.h"
#include "kernels/row_ops.h"
#include "kernels/dims_internal.h"
#include "kernels/row_exponentials_internal.h"

wf_tensor *wf_logsumexp(wf_tensor *x, int dim)
{
    wf_tensor *most = wf_max(x, dim), *below;

    if (!most)
        return NULL;
    below = wf_sub(x, wf_unsqueeze(most, dim));
    return wf_add(most, wf_log(wf_sum(wf_exp(below), dim)));
}

wf_tensor *wf_log_softmax(wf_tensor *x)
{
    const int last = x ? x->ndim - 1 : 0;
    wf_tensor *sum = wf_logsumexp(x, last);

    return sum ? wf_sub(x, wf_unsqueeze(sum, last)) : NULL;
}

wf_tensor *wf_softmax(wf_tensor *x, int dim)
{
    if (!wf_has_dim(x, "softmax", dim))
        return NULL;
    if (dim == x->ndim - 1)
        return wf_apply(&wf_op_softmax, NULL, 0, 1, x);
    return wf_transpose(wf_apply(&wf_op_softmax, NULL, 0, 1, wf_transpose(x, dim, x->ndim - 1)),
                        dim, x->ndim - 1);
}

wf_tensor *wf_softmax_grad(wf_tensor *y, wf_tensor *dy)
{
    return wf_apply(&wf_op_softmax_grad, NULL, 0, 2, y, dy);
}

static void softmax_backward(wf_gradient *g)
{
    g->din[0] = wf_softmax_grad(g->out[0], g->dout[0]);
}

static wf_status softmax_reference(const wf_call *call, void *workspace)
{
    const wf_tensor *t = call->in[0];
    int64_t n = t->local[t->ndim - 1], rows = wf_extent(t, 0, t->ndim - 1);

    (void)workspace;
    for (int64_t r = 0; r < rows; r++)
        row_softmax(NULL, (const double *)t->data + r * n, (double *)call->out[0]->data + r * n,
                    n);
    return WF_OK;
}

static wf_status softmax_grad_reference(const wf_call *call, void *workspace)
{
    const wf_tensor *t = call->in[0];
    int64_t n = t->local[t->ndim - 1], rows = wf_extent(t, 0, t->ndim - 1);

    (void)workspace;
    for (int64_t r = 0; r < rows; r++) {
        const double *y = (const double *)t->data + r * n;
        const double *dy = (const double *)call->in[1]->data + r * n;
        double *dx = (double *)call->out[0]->data + r * n, dot = 0;

        for (int64_t i = 0; i < n; i++)
            dot += y[i] * dy[i];
        for (int64_t i = 0; i < n; i++)
            dx[i] = y[i] * (dy[i] - dot);
    }
    return WF_OK;
}

const wf_op wf_op_softmax = {WF_OP_ROW(softmax), .save = WF_SAVE_OUT(0),
                             .reference = {.run = softmax_reference},
                             .backward = softmax_backward};
const wf_op wf_op_softmax_grad = {WF_OP_ROW(softmax_grad),
                                  .reference = {.run = softmax_grad_reference}};

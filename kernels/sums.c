/*
 * kernels/sums.c - sums over sequences and tokens, and their transposes.
 *
 *     bias_add      y[b, .., n] = x[b, .., n] + bias[n]
 *     bias_grad     y[b, n]  = sum of x[b, .., n] over what lies between
 *     bias_gelu     y[b, .., n] = gelu(x[b, .., n] + bias[n]), its gradient with bias_grad's
 *                   sum
 *     batch_sum     y[..]    = sum over b of x[b, ..]
 *     batch_expand  y[b, ..] = x[..]
 *     token_sum     y[b]     = sum of x[b, ..] over all but b
 *     token_expand  y[b, ..] = x[b]
 *
 * The chunks of a sum over sequences are the sequences, those of a sum inside a sequence are
 * the 8 of its last dim that has some (wf_chunk_dim): the tokens, or heads after them. The
 * CPU's kernels are in kernels/cpu/sums.c.
 */
#include "kernels/shared_internal.h"

wf_tensor *wf_bias_add(wf_tensor *x, wf_tensor *bias)
{
    return wf_apply(&wf_op_bias_add, NULL, 0, 2, x, bias);
}

wf_tensor *wf_bias_grad(wf_tensor *dy)
{
    return wf_apply(&wf_op_bias_grad, NULL, 0, 1, dy);
}

wf_tensor *wf_bias_gelu(wf_tensor *x, wf_tensor *bias)
{
    return wf_apply(&wf_op_bias_gelu, NULL, 0, 2, x, bias);
}

void wf_bias_gelu_grad(wf_tensor *x, wf_tensor *bias, wf_tensor *dy, wf_tensor **dx,
                       wf_tensor **dbias)
{
    wf_call call = {.op = &wf_op_bias_gelu_grad, .n_in = 3, .in = {x, bias, dy}, .n_out = 2};

    wf_dispatch(&call);
    *dx = call.out[0];
    *dbias = call.out[1];
}

wf_tensor *wf_batch_sum(wf_tensor *x)
{
    return wf_apply(&wf_op_batch_sum, NULL, 0, 1, x);
}

wf_tensor *wf_vector_gradient(const wf_gradient *g, int i, wf_tensor *rows)
{
    return rows && g->want[i] && g->summed[i] ? wf_batch_sum(rows) : rows;
}

wf_tensor *wf_batch_expand(wf_tensor *dy, wf_tensor *like)
{
    return wf_apply(&wf_op_batch_expand, NULL, 0, 2, dy, like);
}

wf_tensor *wf_token_sum(wf_tensor *x)
{
    return wf_apply(&wf_op_token_sum, NULL, 0, 1, x);
}

wf_tensor *wf_token_expand(wf_tensor *dy, wf_tensor *like)
{
    return wf_apply(&wf_op_token_expand, NULL, 0, 2, dy, like);
}

static void bias_add_backward(wf_gradient *g)
{
    if (g->want[0])
        g->din[0] = g->dout[0];
    if (g->want[1])
        g->din[1] = wf_vector_gradient(g, 1, wf_bias_grad(g->dout[0]));
}

/* Computes both gradients in one pass: the tape keeps the bias's until it is asked for. */
static void bias_gelu_backward(wf_gradient *g)
{
    wf_bias_gelu_grad(g->in[0], g->in[1], g->dout[0], &g->din[0], &g->din[1]);
    g->din[1] = wf_vector_gradient(g, 1, g->din[1]);
}

static wf_tensor *bias_gelu_recompute(const wf_gradient *g)
{
    return wf_bias_gelu(g->in[0], g->in[1]);
}

static void batch_sum_backward(wf_gradient *g)
{
    g->din[0] = wf_batch_expand(g->dout[0], g->in[0]);
}

static void token_sum_backward(wf_gradient *g)
{
    g->din[0] = wf_token_expand(g->dout[0], g->in[0]);
}

/* Computes the gradient of an expansion; only the shape of its second operand is read. */
static void batch_expand_backward(wf_gradient *g)
{
    if (g->want[0])
        g->din[0] = wf_batch_sum(g->dout[0]);
}

static void token_expand_backward(wf_gradient *g)
{
    if (g->want[0])
        g->din[0] = wf_token_sum(g->dout[0]);
}

static wf_status bias_add_reference(const wf_call *call, void *workspace)
{
    const double *x = call->in[0]->data, *bias = call->in[1]->data;
    double *y = call->out[0]->data;
    int64_t n = call->in[1]->local[0], count = wf_tensor_local_count(call->out[0]);

    (void)workspace;
    for (int64_t i = 0; i < count; i++)
        y[i] = x[i] + bias[i % n];
    return WF_OK;
}

/* gelu of x + bias, or its gradient at dy: in double by the ops that are joined. */
static wf_status bias_gelu_reference(const wf_call *call, void *workspace)
{
    wf_tensor sum = *call->out[0];
    wf_call add = *call, gelu = *call;

    add.out[0] = &sum;
    bias_add_reference(&add, workspace);
    gelu.in[0] = &sum;
    if (call->n_in == 2)
        return wf_op_gelu.reference.run(&gelu, workspace);
    gelu.in[1] = call->in[2];
    return wf_op_gelu_grad.reference.run(&gelu, workspace);
}

/* y[o, n] = sum over r of x[o, r, n] */
static void sum_middle(const double *x, double *y, int64_t outer, int64_t rows, int64_t n)
{
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < n; i++) {
            double sum = 0;

            for (int64_t r = 0; r < rows; r++)
                sum += x[(o * rows + r) * n + i];
            y[o * n + i] = sum;
        }
}

static wf_status bias_grad_reference(const wf_call *call, void *workspace)
{
    const wf_tensor *x = call->in[0];
    int last = x->ndim - 1;

    (void)workspace;
    sum_middle(x->data, call->out[0]->data, x->local[0], wf_extent(x, 1, last), x->local[last]);
    return WF_OK;
}

static wf_status bias_gelu_grad_reference(const wf_call *call, void *workspace)
{
    wf_call sum = {.in = {call->out[0]}, .out = {call->out[1]}};

    bias_gelu_reference(call, workspace);
    return bias_grad_reference(&sum, workspace);
}

static wf_status batch_sum_reference(const wf_call *call, void *workspace)
{
    const wf_tensor *x = call->in[0];

    (void)workspace;
    sum_middle(x->data, call->out[0]->data, 1, x->local[0], wf_extent(x, 1, x->ndim));
    return WF_OK;
}

static wf_status token_sum_reference(const wf_call *call, void *workspace)
{
    const wf_tensor *x = call->in[0];

    (void)workspace;
    sum_middle(x->data, call->out[0]->data, x->local[0], wf_extent(x, 1, x->ndim), 1);
    return WF_OK;
}

static wf_status batch_expand_reference(const wf_call *call, void *workspace)
{
    const double *x = call->in[0]->data;
    double *y = call->out[0]->data;
    int64_t n = wf_tensor_local_count(call->in[0]), count = wf_tensor_local_count(call->out[0]);

    (void)workspace;
    for (int64_t i = 0; i < count; i++)
        y[i] = x[i % n];
    return WF_OK;
}

static wf_status token_expand_reference(const wf_call *call, void *workspace)
{
    const double *x = call->in[0]->data;
    const wf_tensor *out = call->out[0];
    double *y = out->data;
    int64_t n = wf_extent(out, 1, out->ndim), count = wf_tensor_local_count(out);

    (void)workspace;
    for (int64_t i = 0; i < count; i++)
        y[i] = x[i / n];
    return WF_OK;
}

const wf_op wf_op_bias_add = {WF_OP_ROW(bias_add), .reference = {.run = bias_add_reference},
                              .backward = bias_add_backward};
const wf_op wf_op_bias_grad = {WF_OP_ROW(bias_grad), .keep_fp32 = 1,
                               .reference = {.run = bias_grad_reference}};
const wf_op wf_op_bias_gelu = {WF_OP_ROW(bias_gelu), .save = WF_SAVE_IN(0) | WF_SAVE_IN(1),
                               .reference = {.run = bias_gelu_reference},
                               .backward = bias_gelu_backward,
                               .recompute = bias_gelu_recompute};
const wf_op wf_op_bias_gelu_grad = {WF_OP_ROW(bias_gelu_grad), .keep_fp32 = 1 << 1,
                                    .reference = {.run = bias_gelu_grad_reference}};
const wf_op wf_op_batch_sum = {
    WF_OP_ROW(batch_sum), .keep_fp32 = 1, .save_shape = WF_SAVE_IN(0),
    .reference = {.run = batch_sum_reference}, .backward = batch_sum_backward};
const wf_op wf_op_batch_expand = {WF_OP_ROW(batch_expand), .keep_fp32 = 1, .shapes = 1 << 1,
                                  .reference = {.run = batch_expand_reference},
                                  .backward = batch_expand_backward};
const wf_op wf_op_token_sum = {
    WF_OP_ROW(token_sum), .keep_fp32 = 1, .save_shape = WF_SAVE_IN(0),
    .reference = {.run = token_sum_reference}, .backward = token_sum_backward};
const wf_op wf_op_token_expand = {WF_OP_ROW(token_expand), .keep_fp32 = 1, .shapes = 1 << 1,
                                  .reference = {.run = token_expand_reference},
                                  .backward = token_expand_backward};

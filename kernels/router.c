/*
 * kernels/router.c - the router of a mixture of experts (kernels/moe.h): logits, the choice of
 * experts, their weights and the gradient of these.
 *
 *     linear1_fp32  y[r, n] = sum_k x[r, k] W[n, k], never rounded to bf16
 *     route         the k experts of greatest score, ascending, and their weights
 *     route_grad    dlogits from the weights' gradients
 *
 * The CPU's kernels are in kernels/cpu/linear.c and kernels/cpu/router.c.
 */
#include "core/distribution.h"
#include "core/numerics/math.h"
#include "kernels/shared_internal.h"
#include "kernels/route_balance_internal.h"
#include "kernels/row_exponentials_internal.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

wf_tensor *wf_linear_fp32(wf_tensor *x, wf_tensor *weight)
{
    return wf_apply(&wf_op_linear1_fp32, NULL, 0, 2, x, weight);
}

static void linear_backward(wf_gradient *g)
{
    if (g->want[0])
        g->din[0] = wf_linear_dx(1, g->dout, &g->in[1]);
    if (g->want[1])
        g->din[1] = wf_matrix_gradient(g, 1, g->dout[0], g->in[0]);
}

static wf_status linear_reference(const wf_call *call, void *workspace)
{
    return wf_op_linear1.reference.run(call, workspace);
}

static double linear_flops(const wf_call *call)
{
    return wf_op_linear1.flops(call);
}

void wf_route(wf_tensor *logits, wf_tensor *bias, const wf_route_options *options,
              wf_tensor **weights, wf_tensor **index)
{
    wf_call call = {.op = &wf_op_route,
                    .n_in = bias ? 2 : 1,
                    .in = {logits, bias},
                    .n_out = 2,
                    .attr = options,
                    .attr_size = sizeof *options};

    wf_dispatch(&call);
    *weights = call.out[0];
    *index = call.out[1];
}

static const char *route_signature(const wf_call *call, char *text)
{
    (void)text;
    return call->n_in > 1 ? "...n!,n!->...n!,...n!" : "...n!->...n!,...n!";
}

/* Checks the weights of losses, and that there are counts where one of them reads these. */
static wf_status route_losses_check(const wf_call *call)
{
    const wf_route_options *o = call->attr;

    if (!(o->sequence_weight >= 0) || !(o->z_weight >= 0) || !(o->global_weight >= 0))
        return wf_fail(
            call->ctx, WF_EINVAL,
            "route: losses of balance with weights %g, %g and %g: each is 0 or above",
            (double)o->sequence_weight, (double)o->z_weight, (double)o->global_weight);
    if (o->global_weight > 0 && (o->sequence_weight > 0 || call->n_in < 2))
        return wf_fail(call->ctx, WF_EINVAL,
                       "route: a loss of balance of the global batch is one without that of "
                       "each sequence, and reads the counts of the step before: set one of "
                       "global_weight and sequence_weight, and give it counts");
    return WF_OK;
}

static wf_status route_shape(const wf_call *call, int out, int *ndim, wf_dim *dims)
{
    const wf_route_options *o = call->attr;
    const wf_tensor *x = call->in[0];
    int64_t n = x->dim[x->ndim - 1].size;

    (void)out;
    if (o->k < 1 || o->k > n || o->k > WF_ROUTE_MOST || n > 1 << 24)
        return wf_fail(call->ctx, WF_ESHAPE,
                       "route: %" PRId64 " of %" PRId64
                       " experts; choose 1 to all of them, and at most %d",
                       o->k, n, WF_ROUTE_MOST);
    if (o->sigmoid && o->after)
        return wf_fail(call->ctx, WF_EINVAL,
                       "route: weights that are a softmax over the chosen experts are made of "
                       "logits, not of sigmoids; set one of sigmoid and after");
    if (route_losses_check(call) != WF_OK)
        return wf_context_status(call->ctx);
    for (int d = 2; d + 1 < x->ndim && o->sequence_weight + o->global_weight > 0; d++)
        if (x->local[d] != x->dim[d].size)
            return wf_fail(
                call->ctx, WF_ELAYOUT,
                "route: the loss of balance of a sequence is of all its tokens, and dim "
                "%d of its logits is split: gather it first",
                d);
    *ndim = x->ndim;
    for (int d = 0; d < x->ndim; d++)
        dims[d] = x->dim[d];
    dims[x->ndim - 1] = wf_dim_width(o->k);
    return WF_OK;
}

wf_status wf_route_is_nan(const wf_call *call, int64_t row, int64_t expert)
{
    const wf_tensor *x = call->in[0];
    int64_t each = x->ndim > 1 ? wf_extent(x, 1, x->ndim - 1) : 1;

    return wf_fail(call->ctx, WF_EINVAL,
                   "route: the score of expert %" PRId64 " for row %" PRId64
                   " of sequence %" PRId64 " is NaN, so no expert can be chosen: look for the "
                   "op in front of it whose result is not finite (.anomaly finds it)",
                   expert, each ? row % each : 0, x->start[0] + (each ? row / each : 0));
}

wf_status wf_route_grad_check(const wf_call *call, double (*at)(const void *data, int64_t e))
{
    const wf_tensor *index = call->in[1];
    const wf_route_options *o = call->attr;
    int64_t k = index->dim[index->ndim - 1].size, rows = wf_extent(index, 0, index->ndim - 1);
    int64_t n = call->in[0]->dim[call->in[0]->ndim - 1].size;

    if (!o || o->k != k || k < 1 || k > n || k > WF_ROUTE_MOST)
        return wf_fail(call->ctx, WF_ESHAPE,
                       "route_grad: indices of %" PRId64 " experts a row, of %" PRId64
                       ": give it those of wf_route, with its options",
                       k, n);
    for (int64_t i = 0; i < rows * k; i++) {
        double e = at(index->data, i);

        if (!wf_moe_is_expert(e, n))
            return wf_fail(call->ctx, WF_EINVAL,
                           "route_grad: index %g of row %" PRId64 ", of %" PRId64
                           " experts: give it those of wf_route",
                           e, i / k, n);
    }
    return WF_OK;
}

/* Returns the gradient of losses of balance; NULL: there are none. They are of whole sequences:
   ranks that split these gather the logits of all. */
static wf_tensor *balance_gradient(const wf_route_options *o, wf_tensor *logits,
                                   wf_tensor *index, wf_tensor *counts)
{
    const wf_balance balance = wf_balance_of(o, logits);

    if (balance.weight <= 0 && balance.z <= 0)
        return NULL;
    return wf_laid_out_as(wf_apply(&wf_op_route_balance, &balance, sizeof balance,
                                   o->global_weight > 0 ? 3 : 2, wf_resplit(logits, 1, -1),
                                   wf_resplit(index, 1, -1), counts),
                          logits);
}

static void route_backward(wf_gradient *g)
{
    const wf_route_options *o = g->attr;
    const wf_load_attr load = {.plain = o->global_weight > 0};
    wf_tensor *balance = g->want[0] ? balance_gradient(o, g->in[0], g->out[1], g->in[1]) : NULL;

    if (g->want[0] && g->dout[0])
        g->din[0] =
            wf_apply(&wf_op_route_grad, o, sizeof *o, 3, g->in[0], g->out[1], g->dout[0]);
    if (balance)
        g->din[0] = g->din[0] ? wf_add(g->din[0], balance) : balance;
    if (g->n_in > 1 && g->want[1])
        g->din[1] = wf_vector_gradient(
            g, 1, wf_apply(&wf_op_route_load, &load, sizeof load, 2, g->in[0], g->out[1]));
}

#define T           double
#define ROUTER_LOOP static
#include "kernels/router_rows_internal.h"
#undef ROUTER_LOOP
#undef T

static int64_t row_width(const wf_tensor *t)
{
    return t->local[t->ndim - 1];
}

static size_t route_workspace(const wf_call *call)
{
    return (size_t)row_width(call->in[0]) * sizeof(double);
}

static wf_status route_reference(const wf_call *call, void *workspace)
{
    const wf_tensor *x = call->in[0];
    const double *bias = wf_route_bias(call);
    const wf_route_options *o = call->attr;
    int64_t n = row_width(x), rows = wf_extent(x, 0, x->ndim - 1);

    for (int64_t r = 0; r < rows; r++) {
        const double *logits = (const double *)x->data + r * n;

        for (int64_t e = 0; e < n; e++)
            if (isnan(logits[e] + (bias ? bias[e] : 0)))
                return wf_route_is_nan(call, r, e);
        route_row(o, NULL, logits, bias, n, workspace, (double *)call->out[0]->data + r * o->k,
                  (double *)call->out[1]->data + r * o->k);
    }
    return WF_OK;
}

static double as_double(const void *data, int64_t e)
{
    return ((const double *)data)[e];
}

static wf_status route_grad_reference(const wf_call *call, void *workspace)
{
    const wf_tensor *x = call->in[0];
    const wf_route_options *o = call->attr;
    int64_t n = row_width(x), rows = wf_extent(x, 0, x->ndim - 1);

    if (wf_route_grad_check(call, as_double) != WF_OK)
        return wf_context_status(call->ctx);
    for (int64_t r = 0; r < rows; r++)
        route_grad_row(o, NULL, (const double *)x->data + r * n,
                       (const double *)call->in[1]->data + r * o->k,
                       (const double *)call->in[2]->data + r * o->k, n, workspace,
                       (double *)call->out[0]->data + r * n);
    return WF_OK;
}

const wf_op wf_op_linear1_fp32 = {WF_OP_ROW(linear1_fp32),
                                  .save_others = WF_SAVE_IN(0) | WF_SAVE_IN(1),
                                  .weights = WF_SAVE_IN(1),
                                  .keep_fp32 = 1,
                                  .reference = {.run = linear_reference},
                                  .backward = linear_backward,
                                  .flops = linear_flops};
const wf_op wf_op_route = {WF_OP_ROW(route),
                           .write_signature = route_signature,
                           .save = WF_SAVE_IN(0) | WF_SAVE_OUT(1),
                           .save_others = WF_SAVE_IN(1),
                           .keep_fp32 = 3,
                           .shape = route_shape,
                           .reference = {.run = route_reference, .workspace = route_workspace},
                           .backward = route_backward};
const wf_op wf_op_route_grad = {
    WF_OP_ROW(route_grad), .keep_fp32 = 1,
    .reference = {.run = route_grad_reference, .workspace = route_workspace}};

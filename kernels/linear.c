/*
 * kernels/linear.c - products with weights [n, k]; members that share an input are one op.
 *
 *     linear     y_m[r, n] = sum_k x[r, k] W_m[n, k]
 *     linear_dx  dx[r, k]  = sum over n, through the members in order, of dy_m[r, n] W_m[n, k]
 *     linear_dw  dW[n, k]  = sum over rows r of dy[r, n] x[r, k], a chunk per sequence; or
 *                a row of the result per sequence, dW[b, n, k]
 *
 * The chunks of a sum over n are those of n's dim: chunk l of dx is one chain through chunk l
 * of every member. Where members differ in their chunks, neighbours that do not are a chain and
 * a tree of their own, and these are added in order. The CPU's kernels are in
 * kernels/cpu/linear.c.
 */
#include "kernels/linear_rows.h"
#include "core/distribution.h"
#include "core/later.h"
#include "core/tape.h"
#include "kernels/row_chunks_internal.h"
#include "kernels/shared_internal.h"
#include <stdio.h>
#include <string.h>

enum { MEMBERS = 3 };

static const wf_op *const forward_op[] = {NULL, &wf_op_linear1, &wf_op_linear2, &wf_op_linear3};
static const wf_op *const dx_op[] = {NULL, &wf_op_linear1_dx, &wf_op_linear2_dx,
                                     &wf_op_linear3_dx};

static bool members_fit(wf_tensor *x, int count)
{
    bool fit = count >= 1 && count <= MEMBERS;

    if (!fit && x)
        wf_fail(x->ctx, WF_EINVAL, "a linear group has 1 to %d weights, not %d", MEMBERS,
                count);
    return fit;
}

wf_tensor *wf_linear(wf_tensor *x, wf_tensor *weight)
{
    return wf_apply(&wf_op_linear1, NULL, 0, 2, x, weight);
}

void wf_linear_group(wf_tensor *x, int count, wf_tensor *const *weight, wf_tensor **y)
{
    wf_call call = {.n_in = count + 1, .n_out = count};

    for (int m = 0; m < count; m++)
        y[m] = NULL;
    if (!members_fit(x, count))
        return;
    call.op = forward_op[count];
    call.in[0] = x;
    for (int m = 0; m < count; m++)
        call.in[m + 1] = weight[m];
    wf_dispatch(&call);
    for (int m = 0; m < count; m++)
        y[m] = call.out[m];
}

wf_tensor *wf_linear_dx(int count, wf_tensor *const *dy, wf_tensor *const *weight)
{
    return wf_linear_dx_into(count, dy, weight, NULL);
}

wf_tensor *wf_linear_dx_into(int count, wf_tensor *const *dy, wf_tensor *const *weight,
                             wf_tensor *dx)
{
    wf_call call = {.n_in = 2 * count, .n_out = 1, .into = {dx}};

    if (!members_fit(count > 0 ? dy[0] : NULL, count))
        return NULL;
    call.op = dx_op[count];
    for (int m = 0; m < count; m++) {
        call.in[2 * m] = dy[m];
        call.in[2 * m + 1] = weight[m];
    }
    wf_dispatch(&call);
    return call.out[0];
}

wf_tensor *wf_linear_dw(wf_tensor *dy, wf_tensor *x)
{
    return wf_linear_dw_add(dy, x, NULL);
}

wf_tensor *wf_linear_dw_joined(int passes, wf_tensor *const *dy, wf_tensor *const *x)
{
    wf_linear_attr attr = {.add = 0};
    wf_call call = {.op = &wf_op_linear_dw,
                    .n_in = 2 * passes,
                    .n_out = 1,
                    .attr = &attr,
                    .attr_size = sizeof attr};

    if (passes != 1 && passes != 2 && passes != WF_MOST_JOINED) {
        if (passes > 0 && dy[0])
            wf_fail(dy[0]->ctx, WF_EINVAL,
                    "gradients of 1, 2 or %d passes are one product, not %d", WF_MOST_JOINED,
                    passes);
        return NULL;
    }
    for (int i = 0; i < passes; i++) {
        call.in[2 * i] = dy[i];
        call.in[2 * i + 1] = x[i];
    }
    wf_dispatch(&call);
    return call.out[0];
}

wf_tensor *wf_linear_dw_add(wf_tensor *dy, wf_tensor *x, wf_tensor *older)
{
    wf_linear_attr attr = {.add = older != NULL};
    wf_call call = {.op = &wf_op_linear_dw,
                    .n_in = 2,
                    .in = {dy, x},
                    .n_out = 1,
                    .into = {older},
                    .attr = &attr,
                    .attr_size = sizeof attr};

    wf_dispatch(&call);
    return call.out[0];
}

wf_tensor *wf_linear_dw_rows(wf_tensor *dy, wf_tensor *x, wf_tensor *into)
{
    wf_linear_attr attr = {.rows = true};
    wf_call call = {.op = &wf_op_linear_dw,
                    .n_in = 2,
                    .in = {dy, x},
                    .n_out = 1,
                    .into = {into},
                    .attr = &attr,
                    .attr_size = sizeof attr};

    wf_dispatch(&call);
    return call.out[0];
}

wf_tensor *wf_linear_dw_to_row(wf_tensor *dy, wf_tensor *x, wf_tensor *rows, int64_t i)
{
    wf_linear_attr attr = {.add = false};
    wf_call call = {.op = &wf_op_linear_dw,
                    .n_in = 2,
                    .in = {dy, x},
                    .n_out = 1,
                    .attr = &attr,
                    .attr_size = sizeof attr};
    wf_tensor *row = rows ? wf_tensor_rows(rows, i, 1) : NULL, *like;

    if (!row || !dy || !x)
        return NULL;
    like = wf_linear_dw(wf_tensor_fake(dy->ctx, dy->dtype, dy->ndim, dy->dim, dy->layout),
                        wf_tensor_fake(x->ctx, x->dtype, x->ndim, x->dim, x->layout));
    call.into[0] = like ? wf_tensor_view(row, like->ndim, like->dim, like->layout) : NULL;
    if (call.into[0])
        wf_dispatch(&call);
    return call.out[0];
}

bool wf_comes_in_rows(const wf_tensor *dy)
{
    return dy && dy->ndim > 2 && wf_context_exact(dy->ctx) &&
           dy->dim[0].chunks == WF_CHUNKS_EACH && wf_parts_of(dy, 1) > 1 &&
           dy->dim[0].size > wf_parts_of(dy, 0);
}

wf_tensor *wf_matrix_gradient(const wf_gradient *g, int i, wf_tensor *dy, wf_tensor *x)
{
    return !g->summed[i] && wf_comes_in_rows(dy) ? wf_linear_dw_rows(dy, x, NULL)
                                                 : wf_linear_dw(dy, x);
}

static void backward(wf_gradient *g)
{
    int count = g->n_out;

    for (int m = 0; m < count; m++)
        if (!g->dout[m]) {
            wf_fail(g->ctx, WF_EINVAL,
                    "output %d of a linear group was not used: leave that member out", m);
            return;
        }
    if (g->want[0]) {
        const bool last = wf_results_later(g->ctx, g->later[0]);

        g->din[0] = wf_linear_dx(count, g->dout, &g->in[1]);
        wf_results_later(g->ctx, last);
    }
    for (int m = 0; m < count; m++)
        if (g->want[m + 1])
            g->din[m + 1] = wf_matrix_gradient(g, m + 1, g->dout[m], g->in[0]);
}

static void backward_joined(int passes, wf_gradient *const *g)
{
    wf_tensor *dy[WF_MOST_JOINED], *x[WF_MOST_JOINED];

    for (int m = 0; m < g[0]->n_out; m++) {
        if (!g[0]->want[m + 1])
            continue;
        for (int i = 0; i < passes; i++) {
            dy[i] = g[i]->dout[m];
            x[i] = g[i]->in[0];
        }
        g[0]->din[m + 1] = wf_linear_dw_joined(passes, dy, x);
    }
}

/* Writes the signature: a pair of operands for each pass; or a result for each sequence. */
static const char *dw_signature(const wf_call *call, char *text)
{
    char *at = text;

    for (int i = 0; i < call->n_in / 2; i++)
        at += sprintf(at, "%sb...n,b...k", i ? "," : "");
    strcpy(at, wf_linear_in_rows(call) ? "->bnk" : "->nk");
    return text;
}

static wf_status reference(const wf_call *call, void *workspace)
{
    const double *x = call->in[0]->data;
    int last = call->in[0]->ndim - 1;
    int64_t rows = wf_extent(call->in[0], 0, last), k = call->in[0]->local[last];

    (void)workspace;
    for (int m = 0; m < call->n_out; m++) {
        const double *w = call->in[m + 1]->data;
        double *y = call->out[m]->data;
        int64_t n = call->in[m + 1]->local[0];

        for (int64_t r = 0; r < rows; r++)
            for (int64_t j = 0; j < n; j++) {
                double sum = 0;

                for (int64_t i = 0; i < k; i++)
                    sum += x[r * k + i] * w[j * k + i];
                y[r * n + j] = sum;
            }
    }
    return WF_OK;
}

static wf_status reference_dx(const wf_call *call, void *workspace)
{
    double *dx = call->out[0]->data;
    int last = call->out[0]->ndim - 1;
    int64_t rows = wf_extent(call->out[0], 0, last), k = call->out[0]->local[last];

    (void)workspace;
    for (int64_t i = 0; i < rows * k; i++)
        dx[i] = 0;
    for (int m = 0; m < call->n_in / 2; m++) {
        const double *dy = call->in[2 * m]->data, *w = call->in[2 * m + 1]->data;
        int64_t n = call->in[2 * m + 1]->local[0];

        for (int64_t r = 0; r < rows; r++)
            for (int64_t j = 0; j < n; j++)
                for (int64_t i = 0; i < k; i++)
                    dx[r * k + i] += dy[r * n + j] * w[j * k + i];
    }
    return WF_OK;
}

static wf_status reference_dw(const wf_call *call, void *workspace)
{
    double *dw = call->out[0]->data;
    int last = call->in[0]->ndim - 1;
    int64_t rows = wf_extent(call->in[0], 0, last);
    int64_t n = call->out[0]->local[0], k = call->out[0]->local[1];

    if (wf_linear_in_rows(call))
        return wf_run_by_sequence(call, 0, reference_dw, workspace);
    for (int64_t i = 0; i < n * k && !wf_linear_adds(call); i++)
        dw[i] = 0;
    for (int pass = 0; pass < call->n_in / 2; pass++) {
        const double *dy = call->in[2 * pass]->data, *x = call->in[2 * pass + 1]->data;

        for (int64_t r = 0; r < rows; r++)
            for (int64_t j = 0; j < n; j++)
                for (int64_t i = 0; i < k; i++)
                    dw[j * k + i] += dy[r * n + j] * x[r * k + i];
    }
    return WF_OK;
}

/* Counts a product and a sum for every element of x (of dx, of the rows) and column of a
   weight. */
static double work(const wf_tensor *rows, int64_t columns)
{
    return 2 * (double)wf_tensor_local_count(rows) * (double)columns;
}

static double forward_flops(const wf_call *call)
{
    int64_t columns = 0;

    for (int m = 0; m < call->n_out; m++)
        columns += call->in[m + 1]->local[0];
    return work(call->in[0], columns);
}

static double dx_flops(const wf_call *call)
{
    int64_t columns = 0;

    for (int m = 0; m < call->n_in / 2; m++)
        columns += call->in[2 * m + 1]->local[0];
    return work(call->out[0], columns);
}

static double dw_flops(const wf_call *call)
{
    const wf_tensor *dw = call->out[0];

    return call->n_in / 2 * work(call->in[1], dw->local[dw->ndim - 2]);
}

/* x's gradient reads the weights, theirs reads x. */
enum {
    WEIGHTS = WF_SAVE_IN(1) | WF_SAVE_IN(2) | WF_SAVE_IN(3),
    SAVED = WF_SAVE_IN(0) | WEIGHTS
};

const wf_op wf_op_linear1 = {WF_OP_ROW(linear1),    .save_others = SAVED,
                             .weights = WEIGHTS,    .reference = {.run = reference},
                             .backward = backward,  .backward_joined = backward_joined,
                             .flops = forward_flops};
const wf_op wf_op_linear2 = {WF_OP_ROW(linear2),    .save_others = SAVED,
                             .weights = WEIGHTS,    .reference = {.run = reference},
                             .backward = backward,  .backward_joined = backward_joined,
                             .flops = forward_flops};
const wf_op wf_op_linear3 = {WF_OP_ROW(linear3),    .save_others = SAVED,
                             .weights = WEIGHTS,    .reference = {.run = reference},
                             .backward = backward,  .backward_joined = backward_joined,
                             .flops = forward_flops};
const wf_op wf_op_linear1_dx = {WF_OP_ROW(linear1_dx), .reference = {.run = reference_dx},
                                .flops = dx_flops};
const wf_op wf_op_linear2_dx = {WF_OP_ROW(linear2_dx), .reference = {.run = reference_dx},
                                .flops = dx_flops};
const wf_op wf_op_linear3_dx = {WF_OP_ROW(linear3_dx), .reference = {.run = reference_dx},
                                .flops = dx_flops};
const wf_op wf_op_linear_dw = {WF_OP_ROW(linear_dw), .write_signature = dw_signature,
                               .keep_fp32 = 1, .reference = {.run = reference_dw},
                               .flops = dw_flops};

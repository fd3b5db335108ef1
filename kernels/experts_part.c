/*
 * kernels/experts_part.c - experts of a part of their features (kernels/experts_part.h):
 *
 *     experts_part       down_e h of each choice, h = silu(gate_e x) * up_e x
 *     experts_part_dx    the choice's part of dx; c = down_e^T dy and h
 *     experts_part_grad  these, after dgate_e, dup_e and ddown_e
 *     experts_sum        rows of choices summed over the experts of a token, by weights
 *     experts_dot        c . h
 *
 * On the CPU the first three are the kernels of experts (kernels/cpu/moe.c, moe_grad.c), the
 * others are in kernels/cpu/experts_part.c.
 */
#include "kernels/experts_part.h"
#include "kernels/moe_internal.h"
#include <inttypes.h>
#include <string.h>

static void take_operands(wf_call *call, const wf_experts_operands *in)
{
    wf_tensor *const operands[] = {in->gate, in->up, in->down, in->x, in->weights, in->index};

    memcpy(call->in, operands, sizeof operands);
}

wf_tensor *wf_experts_part(const wf_experts_operands *in)
{
    const wf_moe_attr attr = wf_moe_attr_of(0, &in->bound);
    wf_call call = {.op = &wf_op_experts_part,
                    .n_in = WF_MOE_DY,
                    .n_out = 1,
                    .attr = &attr,
                    .attr_size = sizeof attr};

    take_operands(&call, in);
    wf_dispatch(&call);
    return call.out[0];
}

wf_experts_gradients wf_experts_part_grad(const wf_experts_operands *in, wf_tensor *dy,
                                          bool matrices)
{
    const wf_moe_attr attr = wf_moe_attr_of(0, &in->bound);
    wf_call call = {.op = matrices ? &wf_op_experts_part_grad : &wf_op_experts_part_dx,
                    .n_in = WF_MOE_DY + 1,
                    .n_out = matrices ? 6 : 3,
                    .attr = &attr,
                    .attr_size = sizeof attr};
    wf_tensor **out = call.out;

    take_operands(&call, in);
    call.in[WF_MOE_DY] = dy;
    wf_dispatch(&call);
    return matrices ? (wf_experts_gradients){out[0], out[1], out[2], out[3], out[4], out[5]}
                    : (wf_experts_gradients){.rows = out[0], .c = out[1], .h = out[2]};
}

wf_tensor *wf_experts_sum(wf_tensor *weights, wf_tensor *index, wf_tensor *rows,
                          int64_t experts, bool rounds)
{
    const wf_experts_sum_attr attr = {
        .experts = experts, .unweighted = !weights, .rounds = rounds};

    return wf_apply(&wf_op_experts_sum, &attr, sizeof attr, 3, weights ? weights : index, index,
                    rows);
}

wf_tensor *wf_experts_dot(wf_tensor *c, wf_tensor *h)
{
    return wf_apply(&wf_op_experts_dot, NULL, 0, 2, c, h);
}

/* ---- references ---- */

static double as_double(const void *data, int64_t e)
{
    return ((const double *)data)[e];
}

static size_t workspace(const wf_call *call)
{
    const wf_moe_sizes s = wf_moe_sizes_of(call);

    return (size_t)(s.f * 3 + s.d) * sizeof(double);
}

static void clear(const wf_call *call)
{
    for (int o = 0; o < call->n_out; o++)
        for (int64_t i = 0; i < wf_tensor_local_count(call->out[o]); i++)
            ((double *)call->out[o]->data)[i] = 0;
}

static wf_status reference(const wf_call *call, void *room)
{
    const wf_moe_sizes s = wf_moe_sizes_of(call);
    double *y = call->out[0]->data;
    wf_moe_one at;

    if (wf_moe_check(call, as_double) != WF_OK)
        return WF_EINVAL;
    clear(call);
    for (int64_t c = 0; c < s.tokens * s.k; c++) {
        if (wf_moe_choose_expert(call, &s, c, room, &at) < 0)
            continue;
        for (int64_t i = 0; i < s.d; i++)
            for (int64_t j = 0; j < s.f; j++)
                y[c * s.d + i] += at.down[i * s.f + j] * at.h[j];
    }
    return WF_OK;
}

static wf_status reference_grad(const wf_call *call, void *room)
{
    const wf_moe_sizes s = wf_moe_sizes_of(call);
    const int first = call->n_out - 3; /* the output that is rows of dx */
    double *rows = call->out[first]->data, *of_c = call->out[first + 1]->data;
    double *of_h = call->out[first + 2]->data, ignored;

    if (wf_moe_check(call, as_double) != WF_OK)
        return WF_EINVAL;
    clear(call);
    for (int64_t c = 0; c < s.tokens * s.k; c++) {
        double w = as_double(call->in[WF_MOE_WEIGHTS]->data, c), *dweight[3] = {NULL};
        const double *dy = (const double *)call->in[WF_MOE_DY]->data + c / s.k * s.d;
        wf_moe_one at;

        if (wf_moe_choose_expert(call, &s, c, room, &at) < 0)
            continue;
        for (int o = 0; o < first; o++)
            dweight[o] = (double *)call->out[o]->data +
                         (at.gate - (const double *)call->in[WF_MOE_GATE]->data);
        wf_moe_one_gradient(&at, &s, w, dy, rows + c * s.d, &ignored, dweight);
        for (int64_t j = 0; j < s.f; j++) {
            of_h[c * s.f + j] = at.h[j];
            for (int64_t i = 0; i < s.d; i++)
                of_c[c * s.f + j] += at.down[i * s.f + j] * dy[i];
        }
    }
    return WF_OK;
}

static wf_status reference_sum(const wf_call *call, void *unused)
{
    const wf_experts_sum_attr *a = call->attr;
    const wf_tensor *index = call->in[1], *rows = call->in[2];
    const int64_t k = index->local[index->ndim - 1], d = rows->local[rows->ndim - 1];
    double *y = call->out[0]->data;

    (void)unused;
    clear(call);
    for (int64_t c = 0; c < wf_tensor_local_count(index); c++)
        for (int64_t i = 0; i < d && as_double(index->data, c) < (double)a->experts; i++)
            y[c / k * d + i] += (a->unweighted ? 1 : as_double(call->in[0]->data, c)) *
                                as_double(rows->data, c * d + i);
    return WF_OK;
}

static wf_status reference_dot(const wf_call *call, void *unused)
{
    const wf_tensor *c = call->in[0];
    const int64_t f = c->local[c->ndim - 1];
    double *dw = call->out[0]->data;

    (void)unused;
    clear(call);
    for (int64_t i = 0; i < wf_tensor_local_count(c); i++)
        dw[i / f] += as_double(c->data, i) * as_double(call->in[1]->data, i);
    return WF_OK;
}

/* ---- rows ---- */

static wf_status shape(const wf_call *call, int out, int *ndim, wf_dim *dims)
{
    const int first = call->n_out > 1 ? call->n_out - 3 : 0; /* the output of rows */
    const wf_tensor *index = call->in[WF_MOE_INDEX], *gate = call->in[WF_MOE_GATE];
    const wf_tensor *as = call->in[out < first ? out : WF_MOE_INDEX];

    if (wf_moe_shape_check(call) != WF_OK)
        return wf_context_status(call->ctx);
    *ndim = as->ndim;
    memcpy(dims, as->dim, sizeof as->dim);
    if (out < first)
        return WF_OK;
    if (index->ndim >= WF_MAX_DIMS)
        return wf_fail(call->ctx, WF_ESHAPE,
                       "%s: rows of %d dims of tokens have one more, at most %d",
                       call->op->name, index->ndim, WF_MAX_DIMS);
    dims[(*ndim)++] = gate->dim[out == first ? 2 : 1];
    return WF_OK;
}

const wf_op wf_op_experts_part = {WF_OP_ROW(experts_part), .keep_fp32 = 1,
                                  .reference = {.run = reference, .workspace = workspace},
                                  .shape = shape, .flops = wf_moe_forward_flops};
const wf_op wf_op_experts_part_dx = {
    WF_OP_ROW(experts_part_dx),
    .keep_fp32 = 7,
    .reference = {.run = reference_grad, .workspace = workspace},
    .shape = shape,
    .flops = wf_moe_dx_flops,
    .model_flops = wf_moe_kept_dx_flops};
const wf_op wf_op_experts_part_grad = {
    WF_OP_ROW(experts_part_grad),
    .keep_fp32 = 63,
    .reference = {.run = reference_grad, .workspace = workspace},
    .shape = shape,
    .flops = wf_moe_grad_flops,
    .model_flops = wf_moe_kept_grad_flops};
const wf_op wf_op_experts_sum = {WF_OP_ROW(experts_sum), .reference = {.run = reference_sum}};
const wf_op wf_op_experts_dot = {WF_OP_ROW(experts_dot), .keep_fp32 = 1,
                                 .reference = {.run = reference_dot}};

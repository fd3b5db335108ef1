/*
 * kernels/linear_joined.c - products that are finished before they are stored.
 *
 *     linear_bias       y_m = x W_m^T + bias_m
 *     linear_bias_gelu  y = gelu(p + bias), beside the product p = x W^T, which the gradient
 *     reads
 *
 * They have the bits of linear, bias_add and bias_gelu one after the other: a product is
 * rounded to what it would be stored as before a bias is added. On the tape they are these ops,
 * so they have no gradients of their own. A product whose sum is partial must be made whole
 * before, which the signature says: k is whole on each rank.
 */
#include "core/numerics/bf16.h"
#include "core/tape.h"
#include "kernels/shared_internal.h"

enum { MEMBERS = 3 };

static const wf_op *const with_bias[] = {NULL, &wf_op_linear1_bias, NULL, &wf_op_linear3_bias};
static const wf_op *const product[] = {NULL, &wf_op_linear1, NULL, &wf_op_linear3};

/* Records it as two ops; p: the products, or handles that only represent them on the tape. */
static wf_status record(const wf_call *call, wf_tensor *const *p, const wf_op *second,
                        wf_tensor *const *y)
{
    int count = wf_linear_joined(call);
    wf_call first = {.op = product[count], .ctx = call->ctx, .n_in = count + 1, .n_out = count};
    wf_status status;

    for (int i = 0; i <= count; i++)
        first.in[i] = call->in[i];
    for (int m = 0; m < count; m++)
        first.out[m] = p[m];
    status = wf_tape_record(&first);
    for (int m = 0; m < count && status == WF_OK; m++)
        status = wf_tape_record(&(wf_call){.op = second,
                                           .ctx = call->ctx,
                                           .n_in = 2,
                                           .in = {p[m], call->in[1 + count + m]},
                                           .n_out = 1,
                                           .out = {y[m]}});
    return status;
}

void wf_linear_bias(wf_tensor *x, int count, wf_tensor *const *weight, wf_tensor *const *bias,
                    wf_tensor **y)
{
    wf_call call = {.n_in = 2 * count + 1, .n_out = count};
    wf_tensor *p[MEMBERS];

    for (int m = 0; m < count; m++)
        y[m] = NULL;
    if (count < 1 || count > MEMBERS || !with_bias[count]) {
        if (x)
            wf_fail(x->ctx, WF_EINVAL, "products with biases are one or three, not %d", count);
        return;
    }
    call.op = with_bias[count];
    call.in[0] = x;
    for (int m = 0; m < count; m++) {
        call.in[1 + m] = weight[m];
        call.in[1 + count + m] = bias[m];
    }
    if (wf_dispatch(&call) != WF_OK)
        return;
    for (int m = 0; m < count; m++) {
        p[m] = wf_tensor_alias(call.out[m]);
        if (!p[m])
            return;
    }
    if (record(&call, p, &wf_op_bias_add, call.out) == WF_OK)
        for (int m = 0; m < count; m++)
            y[m] = call.out[m];
}

wf_tensor *wf_linear_bias_gelu(wf_tensor *x, wf_tensor *weight, wf_tensor *bias)
{
    wf_call call = {
        .op = &wf_op_linear1_bias_gelu, .n_in = 3, .in = {x, weight, bias}, .n_out = 2};

    if (wf_dispatch(&call) != WF_OK)
        return NULL;
    return record(&call, &call.out[0], &wf_op_bias_gelu, &call.out[1]) == WF_OK ? call.out[1]
                                                                                : NULL;
}

/* Rounds a product to the type that it would be stored as. */
static void round_product(const wf_tensor *y)
{
    double *x = y->data;

    for (int64_t i = 0; y->rounds_to == WF_BF16 && i < wf_tensor_local_count(y); i++)
        x[i] = (double)wf_bf16_value(wf_bf16_of((float)x[i]));
}

/* Runs the parts, one after the other. */
static wf_status reference(const wf_call *call, void *workspace)
{
    int count = wf_linear_joined(call);
    bool gelu = call->n_out > count;
    const wf_op *second = gelu ? &wf_op_bias_gelu : &wf_op_bias_add;
    wf_call first = *call;

    first.op = product[count];
    first.n_in = count + 1;
    first.n_out = count;
    product[count]->reference.run(&first, workspace);
    for (int m = 0; m < count; m++)
        round_product(call->out[m]);
    for (int m = 0; m < count; m++) {
        const wf_call then = {.op = second,
                              .ctx = call->ctx,
                              .n_in = 2,
                              .in = {call->out[m], call->in[1 + count + m]},
                              .n_out = 1,
                              .out = {call->out[gelu ? 1 : m]}};

        second->reference.run(&then, workspace);
    }
    return WF_OK;
}

static double flops(const wf_call *call)
{
    wf_call first = *call;
    int count = wf_linear_joined(call);

    first.n_out = count;
    return product[count]->flops(&first);
}

const wf_op wf_op_linear1_bias = {WF_OP_ROW(linear1_bias), .reference = {.run = reference},
                                  .flops = flops};
const wf_op wf_op_linear3_bias = {WF_OP_ROW(linear3_bias), .reference = {.run = reference},
                                  .flops = flops};
const wf_op wf_op_linear1_bias_gelu = {WF_OP_ROW(linear1_bias_gelu),
                                       .reference = {.run = reference}, .flops = flops};

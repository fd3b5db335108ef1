/*
 * kernels/linear_joined.c - products that are finished before they are stored.
 *
 *     linear_bias       y_m = x W_m^T + bias_m
 *     linear_bias_gelu  y = gelu(p + bias), beside the product p = x W^T, which the gradient
 *     reads
 *     linear2_swiglu    y = silu(g) * u, beside the products g = x G^T and u = x U^T
 *     linear_add, linear_bias_add  y = r + x W^T, r + (x W^T + bias)
 *     linear3_rope      q, k and v = x W_m^T, of which q and k are rotated (rope.c)
 *
 * They have the bits of linear, bias_add, bias_gelu, add and rope_pair one after the other: a
 * product is rounded to what it would be stored as before a bias is added or it is rotated, and
 * so is that sum before it is added to r. On the tape they are these ops,
 * so they have no gradients of their own. A product whose sum is partial must be made whole
 * before, which the signature says: k is whole on each rank.
 */
#include "core/later.h"
#include "core/numerics/bf16.h"
#include "core/tape.h"
#include "kernels/attention_cached.h"
#include "kernels/attention_internal.h"
#include "kernels/shared_internal.h"
#include <inttypes.h>

enum { MEMBERS = 3 };

static const wf_op *const with_bias[] = {NULL, &wf_op_linear1_bias, NULL, &wf_op_linear3_bias};
static const wf_op *const product[] = {NULL, &wf_op_linear1, &wf_op_linear2, &wf_op_linear3};

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

wf_tensor *wf_linear_swiglu(wf_tensor *x, wf_tensor *gate, wf_tensor *up)
{
    enum { GATE, UP, Y };
    wf_call call = {.op = &wf_op_linear2_swiglu, .n_in = 3, .in = {x, gate, up}, .n_out = 3};
    wf_call products, last;

    if (wf_dispatch(&call) != WF_OK)
        return NULL;
    products = call;
    products.op = &wf_op_linear2;
    products.n_out = 2;
    last = (wf_call){.op = &wf_op_swiglu,
                     .ctx = call.ctx,
                     .n_in = 2,
                     .in = {call.out[GATE], call.out[UP]},
                     .n_out = 1,
                     .out = {call.out[Y]}};
    return wf_tape_record(&products) == WF_OK && wf_tape_record(&last) == WF_OK ? call.out[Y]
                                                                                : NULL;
}

/* Records a product that is added to the last operand as two ops, or with a bias three. */
static wf_status record_added(const wf_call *call)
{
    wf_tensor *residual = wf_linear_joined_residual(call), *y = call->out[0], *p, *sum;
    wf_tensor *bias = wf_linear_joined_bias(call, 0);
    wf_status status = WF_OK;

    p = wf_tensor_alias(y);
    sum = bias ? wf_tensor_alias(y) : p;
    if (!p || !sum)
        return wf_context_status(call->ctx);
    if (bias)
        status = record(call, &p, &wf_op_bias_add, &sum);
    else
        status = wf_tape_record(&(wf_call){.op = &wf_op_linear1,
                                           .ctx = call->ctx,
                                           .n_in = 2,
                                           .in = {call->in[0], call->in[1]},
                                           .n_out = 1,
                                           .out = {p}});
    return status != WF_OK ? status
                           : wf_tape_record(&(wf_call){.op = &wf_op_add,
                                                       .ctx = call->ctx,
                                                       .n_in = 2,
                                                       .in = {residual, sum},
                                                       .n_out = 1,
                                                       .out = {y}});
}

wf_tensor *wf_linear_add(wf_tensor *r, wf_tensor *x, wf_tensor *weight, wf_tensor *bias)
{
    wf_call call = {.op = bias ? &wf_op_linear1_bias_add : &wf_op_linear1_add,
                    .n_in = bias ? 4 : 3,
                    .in = {x, weight, bias ? bias : r, r},
                    .n_out = 1};
    wf_tensor *y = NULL;

    if (r && wf_context_fp32_residual(r->ctx)) { /* the sum is not stored as the product is */
        if (bias)
            wf_linear_bias(x, 1, &weight, &bias, &y);
        else
            y = wf_linear(x, weight);
        return wf_add(r, y);
    }
    if (wf_dispatch(&call) != WF_OK)
        return NULL;
    return record_added(&call) == WF_OK ? call.out[0] : NULL;
}

/* Records a product that rotates as three ops: heads of q and k are views of handles that only
   represent the products on the tape. */
static wf_status record_rotated(const wf_call *call, wf_tensor *const *y)
{
    enum { Q, K, V };
    wf_call first = *call,
            last = {.op = call->n_in > 1 + MEMBERS ? &wf_op_rope_pair_at : &wf_op_rope_pair,
                    .ctx = call->ctx,
                    .n_in = call->n_in > 1 + MEMBERS ? 3 : 2,
                    .in = {NULL, NULL, call->in[1 + MEMBERS]},
                    .n_out = 2,
                    .out = {y[Q], y[K]},
                    .attr = call->attr,
                    .attr_size = call->attr_size};
    wf_status status;

    first.op = &wf_op_linear3;
    first.n_in = 1 + MEMBERS;
    first.attr = NULL;
    first.attr_size = 0;
    for (int i = Q; i <= K; i++) {
        first.out[i] = wf_tensor_alias(call->out[i]);
        if (!first.out[i])
            return wf_context_status(call->ctx);
    }
    status = wf_tape_record(&first);
    for (int i = Q; i <= K && status == WF_OK; i++) {
        last.in[i] = wf_split_heads(first.out[i], call->out[i]->dim[2].grain);
        if (!last.in[i])
            return wf_context_status(call->ctx);
    }
    return status == WF_OK ? wf_tape_record(&last) : status;
}

/* Runs the ops one after the other. */
static void rotate_apart(wf_tensor *x, wf_tensor *const weight[3], wf_tensor *positions,
                         const wf_rope_options *options, wf_tensor *y[3])
{
    wf_linear_group(x, MEMBERS, weight, y);
    for (int i = 0; i < 2; i++)
        y[i] = wf_split_heads(y[i], weight[i]->dim[0].grain);
    if (y[0] && y[1])
        wf_rope_pair(y[0], y[1], positions, options, false, y);
}

void wf_linear_rope(wf_tensor *x, wf_tensor *const weight[3], wf_tensor *positions,
                    const wf_rope_options *options, wf_tensor *y[3])
{
    enum { Q, K, V };
    wf_rope_attr a;
    wf_call call = {.op = positions ? &wf_op_linear3_rope_at : &wf_op_linear3_rope,
                    .n_in = positions ? 2 + MEMBERS : 1 + MEMBERS,
                    .in = {x, weight[Q], weight[K], weight[V], positions},
                    .n_out = MEMBERS,
                    .attr = &a,
                    .attr_size = sizeof a};
    const wf_dim *q = weight[Q] ? &weight[Q]->dim[0] : NULL;
    const wf_dim *k = weight[K] ? &weight[K]->dim[0] : NULL;
    wf_tensor *heads[MEMBERS];

    y[Q] = y[K] = y[V] = NULL;
    if (!x || !q || !k || !weight[V])
        return;
    if (x->ndim < 2 || q->grain != k->grain) {
        wf_fail(x->ctx, WF_ESHAPE,
                "linear3_rope: heads of queries have %" PRId64 " features, of keys %" PRId64
                ", and x has %d dims; make both with wf_dim_heads of one size, and x [b, s, k]",
                q->grain, k->grain, x->ndim);
        return;
    }
    if (wf_is_later(x)) { /* products take its rows as they come, positions are of all rows */
        rotate_apart(x, weight, positions, options, y);
        return;
    }
    if (wf_rope_attributes(x, q->grain, options, false, &a) != WF_OK ||
        wf_dispatch(&call) != WF_OK)
        return;
    for (int m = 0; m < MEMBERS; m++) { /* records nothing of q and k: no op made them */
        heads[m] = m == V ? call.out[m] : wf_split_heads(call.out[m], q->grain);
        if (!heads[m])
            return;
    }
    if (record_rotated(&call, heads) == WF_OK)
        for (int m = 0; m < MEMBERS; m++)
            y[m] = heads[m];
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
    wf_tensor *residual = wf_linear_joined_residual(call);
    wf_call first = *call;

    first.op = product[count];
    first.n_in = count + 1;
    first.n_out = count;
    product[count]->reference.run(&first, workspace);
    for (int m = 0; m < count; m++)
        round_product(call->out[m]);
    for (int m = 0; m < count && wf_linear_joined_bias(call, m); m++) {
        const wf_call then = {.op = second,
                              .ctx = call->ctx,
                              .n_in = 2,
                              .in = {call->out[m], wf_linear_joined_bias(call, m)},
                              .n_out = 1,
                              .out = {call->out[gelu ? 1 : m]}};

        second->reference.run(&then, workspace);
    }
    if (count == 2) {
        const wf_call last = {
            .n_in = 2, .in = {call->out[0], call->out[1]}, .n_out = 1, .out = {call->out[2]}};

        wf_op_swiglu.reference.run(&last, workspace);
    }
    if (wf_linear_rotates(call)) {
        wf_tensor heads[2];
        const wf_call last = wf_linear_rope_part(call, heads);

        wf_op_rope_pair.reference.run(&last, workspace);
    }
    if (residual) {
        const wf_call last = {.n_in = 2, .in = {residual, call->out[0]}, .out = {call->out[0]}};

        round_product(call->out[0]);
        wf_op_add.reference.run(&last, workspace);
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
const wf_op wf_op_linear2_swiglu = {WF_OP_ROW(linear2_swiglu), .reference = {.run = reference},
                                    .flops = flops};
const wf_op wf_op_linear1_add = {WF_OP_ROW(linear1_add), .reference = {.run = reference},
                                 .flops = flops};
const wf_op wf_op_linear1_bias_add = {WF_OP_ROW(linear1_bias_add),
                                      .reference = {.run = reference}, .flops = flops};
const wf_op wf_op_linear3_rope = {WF_OP_ROW(linear3_rope), .reference = {.run = reference},
                                  .flops = flops};
const wf_op wf_op_linear3_rope_at = {WF_OP_ROW(linear3_rope_at), .integers = 1 << 4,
                                     .reference = {.run = reference}, .flops = flops};

/*
 * kernels/elementwise.c - the ops of kernels/expressions.def: functions, reference loops and
 * rows. Those that are more than an expression and its gradients are written out; the others
 * are made from the table.
 */
#include "kernels/elementwise.h"
#include "kernels/elementwise_ops.h"
#include "kernels/reshape.h"
#include "kernels/shared_internal.h"
#include <stdarg.h>

/* Gradients are operands of the next op down, so all of them go in one pass over memory. */
void wf_elementwise_backward(wf_gradient *g, const wf_op *gradients, int n_numbers)
{
    wf_call call = {.op = gradients,
                    .ctx = g->ctx,
                    .n_in = g->n_in + 1,
                    .attr = g->attr,
                    .attr_size = g->attr ? (size_t)n_numbers * sizeof(float) : 0,
                    .n_out = 1};

    for (const char *at = strstr(gradients->signature, "->"); *at; at++)
        call.n_out += *at == ',';
    for (int i = 0; i < g->n_in; i++)
        call.in[i] = g->in[i];
    call.in[g->n_in] = g->dout[0];
    wf_dispatch(&call);
    for (int o = 0; o < call.n_out; o++)
        g->din[o] = call.out[o];
}

wf_tensor *wf_elementwise_apply(const wf_op *op, const void *attr, size_t attr_size, int n_in,
                                ...)
{
    wf_call call = {.op = op, .n_in = n_in, .n_out = 1, .attr = attr, .attr_size = attr_size};
    va_list operands;

    va_start(operands, n_in);
    for (int i = 0; i < n_in && i < WF_MAX_INPUTS; i++)
        call.in[i] = va_arg(operands, wf_tensor *);
    va_end(operands);
    if (n_in <= WF_MAX_INPUTS)
        wf_broadcast_all(n_in, call.in);
    wf_dispatch(&call);
    return call.out[0];
}

wf_tensor *wf_add(wf_tensor *a, wf_tensor *b)
{
    return wf_elementwise_apply(&wf_op_add, NULL, 0, 2, a, b);
}

wf_tensor *wf_sub(wf_tensor *a, wf_tensor *b)
{
    return wf_elementwise_apply(&wf_op_sub, NULL, 0, 2, a, b);
}

wf_tensor *wf_mul(wf_tensor *a, wf_tensor *b)
{
    return wf_elementwise_apply(&wf_op_mul, NULL, 0, 2, a, b);
}

wf_tensor *wf_scale(wf_tensor *x, float factor)
{
    wf_scale_attr attr = {factor};

    return wf_apply(&wf_op_scale, &attr, sizeof attr, 1, x);
}

wf_tensor *wf_silu(wf_tensor *x)
{
    return wf_apply(&wf_op_silu, NULL, 0, 1, x);
}

wf_tensor *wf_gelu(wf_tensor *x)
{
    return wf_apply(&wf_op_gelu, NULL, 0, 1, x);
}

wf_tensor *wf_silu_grad(wf_tensor *x, wf_tensor *dy)
{
    return wf_apply(&wf_op_silu_grad, NULL, 0, 2, x, dy);
}

wf_tensor *wf_gelu_grad(wf_tensor *x, wf_tensor *dy)
{
    return wf_apply(&wf_op_gelu_grad, NULL, 0, 2, x, dy);
}

wf_tensor *wf_swiglu(wf_tensor *gate, wf_tensor *up)
{
    return wf_elementwise_apply(&wf_op_swiglu, NULL, 0, 2, gate, up);
}

void wf_swiglu_grad(wf_tensor *gate, wf_tensor *up, wf_tensor *dy, wf_tensor **dgate,
                    wf_tensor **dup)
{
    wf_call call = {.op = &wf_op_swiglu_grad, .n_in = 3, .in = {gate, up, dy}, .n_out = 2};

    wf_dispatch(&call);
    *dgate = call.out[0];
    *dup = call.out[1];
}

static void add_backward(wf_gradient *g)
{
    for (int i = 0; i < 2; i++)
        if (g->want[i])
            g->din[i] = g->dout[0];
}

static void sub_backward(wf_gradient *g)
{
    if (g->want[0])
        g->din[0] = g->dout[0];
    if (g->want[1])
        g->din[1] = wf_scale(g->dout[0], -1);
}

static void mul_backward(wf_gradient *g)
{
    for (int i = 0; i < 2; i++)
        if (g->want[i])
            g->din[i] = wf_mul(g->dout[0], g->in[1 - i]);
}

wf_tensor *wf_add_constant(wf_tensor *x, float value)
{
    wf_add_constant_attr attr = {value};

    return wf_apply(&wf_op_add_constant, &attr, sizeof attr, 1, x);
}

static void add_constant_backward(wf_gradient *g)
{
    g->din[0] = g->dout[0];
}

static void scale_backward(wf_gradient *g)
{
    const wf_scale_attr *attr = g->attr;

    g->din[0] = wf_scale(g->dout[0], attr->factor);
}

static void silu_backward(wf_gradient *g)
{
    g->din[0] = wf_silu_grad(g->in[0], g->dout[0]);
}

static void gelu_backward(wf_gradient *g)
{
    g->din[0] = wf_gelu_grad(g->in[0], g->dout[0]);
}

static void swiglu_backward(wf_gradient *g)
{
    wf_swiglu_grad(g->in[0], g->in[1], g->dout[0], &g->din[0], &g->din[1]);
}

static wf_tensor *silu_recompute(const wf_gradient *g)
{
    return wf_silu(g->in[0]);
}

static wf_tensor *gelu_recompute(const wf_gradient *g)
{
    return wf_gelu(g->in[0]);
}

static wf_tensor *swiglu_recompute(const wf_gradient *g)
{
    return wf_swiglu(g->in[0], g->in[1]);
}

#define EXPRESSION(name, inputs, numbers, outputs, flags)                                      \
    WF_X_REFERENCE(name, inputs, numbers, outputs)
#define ELEMENTWISE(name, inputs, numbers, expression, gradients)                              \
    WF_X_REFERENCE(name, inputs, numbers, (expression))                                        \
    WF_X_REFERENCE(name##_grad, (WF_OPEN inputs, dy), numbers, gradients)                      \
    static void name##_backward(wf_gradient *g)                                                \
    {                                                                                          \
        wf_elementwise_backward(g, &wf_op_##name##_grad, WF_COUNT(numbers));                   \
    }                                                                                          \
    const wf_op wf_op_##name = {WF_OP_ROW(name), .save = WF_SAVE_IN(WF_COUNT(inputs)) - 1,     \
                                .reference = {.run = name##_reference},                        \
                                .backward = name##_backward};                                  \
    const wf_op wf_op_##name##_grad = {WF_OP_ROW(name##_grad),                                 \
                                       .reference = {.run = name##_grad_reference}};
#include "kernels/expressions.def"

const wf_op wf_op_add = {WF_OP_ROW(add), .follows = 1, .reference = {.run = add_reference},
                         .backward = add_backward};
const wf_op wf_op_sub = {WF_OP_ROW(sub), .follows = 1, .reference = {.run = sub_reference},
                         .backward = sub_backward};
const wf_op wf_op_mul = {WF_OP_ROW(mul), .save_others = WF_SAVE_IN(0) | WF_SAVE_IN(1),
                         .reference = {.run = mul_reference}, .backward = mul_backward};
const wf_op wf_op_scale = {WF_OP_ROW(scale), .follows = 1,
                           .reference = {.run = scale_reference}, .backward = scale_backward};
const wf_op wf_op_add_constant = {WF_OP_ROW(add_constant), .keep_fp32 = 1,
                                  .reference = {.run = add_constant_reference},
                                  .backward = add_constant_backward};
const wf_op wf_op_silu = {WF_OP_ROW(silu), .save = WF_SAVE_IN(0),
                          .reference = {.run = silu_reference}, .backward = silu_backward,
                          .recompute = silu_recompute};
const wf_op wf_op_silu_grad = {WF_OP_ROW(silu_grad), .reference = {.run = silu_grad_reference}};
const wf_op wf_op_swiglu = {WF_OP_ROW(swiglu), .save = WF_SAVE_IN(0) | WF_SAVE_IN(1),
                            .reference = {.run = swiglu_reference}, .backward = swiglu_backward,
                            .recompute = swiglu_recompute};
const wf_op wf_op_swiglu_grad = {WF_OP_ROW(swiglu_grad),
                                 .reference = {.run = swiglu_grad_reference}};
const wf_op wf_op_gelu = {WF_OP_ROW(gelu), .save = WF_SAVE_IN(0),
                          .reference = {.run = gelu_reference}, .backward = gelu_backward,
                          .recompute = gelu_recompute};
const wf_op wf_op_gelu_grad = {WF_OP_ROW(gelu_grad), .reference = {.run = gelu_grad_reference}};
const wf_op wf_op_greater = {WF_OP_ROW(greater), .reference = {.run = greater_reference}};
const wf_op wf_op_greater_equal = {WF_OP_ROW(greater_equal),
                                   .reference = {.run = greater_equal_reference}};
const wf_op wf_op_equal = {WF_OP_ROW(equal), .reference = {.run = equal_reference}};
const wf_op wf_op_greater_than = {WF_OP_ROW(greater_than),
                                  .reference = {.run = greater_than_reference}};
const wf_op wf_op_less_than = {WF_OP_ROW(less_than), .reference = {.run = less_than_reference}};
const wf_op wf_op_equal_to = {WF_OP_ROW(equal_to), .reference = {.run = equal_to_reference}};
const wf_op wf_op_floor = {WF_OP_ROW(floor), .reference = {.run = floor_reference}};
const wf_op wf_op_ceil = {WF_OP_ROW(ceil), .reference = {.run = ceil_reference}};
const wf_op wf_op_round = {WF_OP_ROW(round), .reference = {.run = round_reference}};
const wf_op wf_op_sign = {WF_OP_ROW(sign), .reference = {.run = sign_reference}};
const wf_op wf_op_is_nan = {WF_OP_ROW(is_nan), .reference = {.run = is_nan_reference}};

/* Functions whose parameters are those of the row. */
#define ROW_FUNCTION(name, inputs)                                                             \
    wf_tensor *wf_##name WF_X_TENSORS(inputs)                                                  \
    {                                                                                          \
        return wf_elementwise_apply(&wf_op_##name, NULL, 0,                                    \
                                    WF_COUNT(inputs) WF_EACH(WF_X_OPERAND, inputs));           \
    }
#define ROW_FUNCTION_WITH(name, inputs, numbers)                                               \
    wf_tensor *wf_##name WF_X_TENSORS_WITH(inputs, numbers)                                    \
    {                                                                                          \
        const float attr[] = {WF_OPEN numbers};                                                \
                                                                                               \
        return wf_apply(&wf_op_##name, attr, sizeof attr,                                      \
                        WF_COUNT(inputs) WF_EACH(WF_X_OPERAND, inputs));                       \
    }
ROW_FUNCTION(exp, (x))
ROW_FUNCTION(log, (x))
ROW_FUNCTION(sqrt, (x))
ROW_FUNCTION(rsqrt, (x))
ROW_FUNCTION(relu, (x))
ROW_FUNCTION(tanh, (x))
ROW_FUNCTION(sigmoid, (x))
ROW_FUNCTION(gelu_erf, (x))
ROW_FUNCTION(softplus, (x))
ROW_FUNCTION(abs, (x))
ROW_FUNCTION(sin, (x))
ROW_FUNCTION(cos, (x))
ROW_FUNCTION(erf, (x))
ROW_FUNCTION(log1p, (x))
ROW_FUNCTION(expm1, (x))
ROW_FUNCTION(floor, (x))
ROW_FUNCTION(ceil, (x))
ROW_FUNCTION(round, (x))
ROW_FUNCTION(sign, (x))
ROW_FUNCTION(is_nan, (x))
ROW_FUNCTION(div, (a, b))
ROW_FUNCTION(maximum, (a, b))
ROW_FUNCTION(minimum, (a, b))
ROW_FUNCTION(greater, (a, b))
ROW_FUNCTION(greater_equal, (a, b))
ROW_FUNCTION(equal, (a, b))
ROW_FUNCTION_WITH(pow, (x), (exponent))
ROW_FUNCTION_WITH(leaky_relu, (x), (leak))
ROW_FUNCTION_WITH(elu, (x), (alpha))
ROW_FUNCTION_WITH(clamp, (x), (low, high))
ROW_FUNCTION_WITH(greater_than, (x), (value))
ROW_FUNCTION_WITH(less_than, (x), (value))
ROW_FUNCTION_WITH(equal_to, (x), (value))

wf_tensor *wf_tanh_grad(wf_tensor *x, wf_tensor *dy)
{
    return wf_apply(&wf_op_tanh_grad, NULL, 0, 2, x, dy);
}

wf_tensor *wf_axpby(float a, wf_tensor *x, float b, wf_tensor *y)
{
    const float attr[] = {a, b};

    return wf_elementwise_apply(&wf_op_axpby, attr, sizeof attr, 2, x, y);
}

wf_tensor *wf_neg(wf_tensor *x)
{
    return wf_scale(x, -1);
}

wf_tensor *wf_where(wf_tensor *condition, wf_tensor *a, wf_tensor *b)
{
    return wf_elementwise_apply(&wf_op_where, NULL, 0, 3, a, b, condition);
}

wf_tensor *wf_less(wf_tensor *a, wf_tensor *b)
{
    return wf_greater(b, a);
}

wf_tensor *wf_less_equal(wf_tensor *a, wf_tensor *b)
{
    return wf_greater_equal(b, a);
}

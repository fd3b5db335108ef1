/*
 * kernels/elementwise.c - one element in, one element out.
 *
 *     add, sub, mul      y = a + b, y = a - b, y = a b
 *     scale              y = factor x
 *     add_constant       y = x + value
 *     silu               y = x sigma(x)
 *     swiglu             y = silu(gate) up
 *     gelu               y = x/2 (1 + tanh(u)) = x sigma(2u),  u = sqrt(2/pi) (x + 0.044715
 * x^3)
 *
 * with sigma(z) = 1 / (1 + exp(-z)). The CPU's kernels are in kernels/cpu/elementwise.c.
 */
#include "core/numerics/math.h"
#include "kernels/shared_internal.h"

static const double gelu_root = 0.79788456080286535588; /* sqrt(2/pi) */
static const double gelu_cube = 0.044715;

wf_tensor *wf_add(wf_tensor *a, wf_tensor *b)
{
    return wf_apply(&wf_op_add, NULL, 0, 2, a, b);
}

wf_tensor *wf_sub(wf_tensor *a, wf_tensor *b)
{
    return wf_apply(&wf_op_sub, NULL, 0, 2, a, b);
}

wf_tensor *wf_mul(wf_tensor *a, wf_tensor *b)
{
    return wf_apply(&wf_op_mul, NULL, 0, 2, a, b);
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
    return wf_apply(&wf_op_swiglu, NULL, 0, 2, gate, up);
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

static double sigma(double z)
{
    return 1 / (1 + wf_exp(-z));
}

static wf_status add_reference(const wf_call *call, void *workspace)
{
    const double *a = call->in[0]->data, *b = call->in[1]->data;
    double *y = call->out[0]->data;
    int64_t n = wf_tensor_local_count(call->out[0]);

    (void)workspace;
    for (int64_t i = 0; i < n; i++)
        y[i] = a[i] + b[i];
    return WF_OK;
}

static wf_status sub_reference(const wf_call *call, void *workspace)
{
    const double *a = call->in[0]->data, *b = call->in[1]->data;
    double *y = call->out[0]->data;
    int64_t n = wf_tensor_local_count(call->out[0]);

    (void)workspace;
    for (int64_t i = 0; i < n; i++)
        y[i] = a[i] - b[i];
    return WF_OK;
}

static wf_status mul_reference(const wf_call *call, void *workspace)
{
    const double *a = call->in[0]->data, *b = call->in[1]->data;
    double *y = call->out[0]->data;
    int64_t n = wf_tensor_local_count(call->out[0]);

    (void)workspace;
    for (int64_t i = 0; i < n; i++)
        y[i] = a[i] * b[i];
    return WF_OK;
}

static wf_status scale_reference(const wf_call *call, void *workspace)
{
    const wf_scale_attr *attr = call->attr;
    const double *x = call->in[0]->data;
    double *y = call->out[0]->data;
    int64_t n = wf_tensor_local_count(call->out[0]);

    (void)workspace;
    for (int64_t i = 0; i < n; i++)
        y[i] = (double)attr->factor * x[i];
    return WF_OK;
}

static wf_status add_constant_reference(const wf_call *call, void *workspace)
{
    const wf_add_constant_attr *attr = call->attr;
    const double *x = call->in[0]->data;
    double *y = call->out[0]->data;
    int64_t n = wf_tensor_local_count(call->out[0]);

    (void)workspace;
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] + (double)attr->value;
    return WF_OK;
}

static wf_status silu_reference(const wf_call *call, void *workspace)
{
    const double *x = call->in[0]->data;
    double *y = call->out[0]->data;
    int64_t n = wf_tensor_local_count(call->out[0]);

    (void)workspace;
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] * sigma(x[i]);
    return WF_OK;
}

static wf_status silu_grad_reference(const wf_call *call, void *workspace)
{
    const double *x = call->in[0]->data, *dy = call->in[1]->data;
    double *dx = call->out[0]->data;
    int64_t n = wf_tensor_local_count(call->out[0]);

    (void)workspace;
    for (int64_t i = 0; i < n; i++) {
        double s = sigma(x[i]);

        dx[i] = dy[i] * s * (1 + x[i] * (1 - s));
    }
    return WF_OK;
}

static wf_status swiglu_reference(const wf_call *call, void *workspace)
{
    const double *gate = call->in[0]->data, *up = call->in[1]->data;
    double *y = call->out[0]->data;

    (void)workspace;
    for (int64_t i = 0; i < wf_tensor_local_count(call->out[0]); i++)
        y[i] = gate[i] * sigma(gate[i]) * up[i];
    return WF_OK;
}

static wf_status swiglu_grad_reference(const wf_call *call, void *workspace)
{
    const double *gate = call->in[0]->data, *up = call->in[1]->data, *dy = call->in[2]->data;
    double *dgate = call->out[0]->data, *dup = call->out[1]->data;

    (void)workspace;
    for (int64_t i = 0; i < wf_tensor_local_count(call->out[0]); i++) {
        double s = sigma(gate[i]);

        dgate[i] = dy[i] * up[i] * s * (1 + gate[i] * (1 - s));
        dup[i] = dy[i] * gate[i] * s;
    }
    return WF_OK;
}

static wf_status gelu_reference(const wf_call *call, void *workspace)
{
    const double *x = call->in[0]->data;
    double *y = call->out[0]->data;
    int64_t n = wf_tensor_local_count(call->out[0]);

    (void)workspace;
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] * sigma(2 * gelu_root * (x[i] + gelu_cube * x[i] * x[i] * x[i]));
    return WF_OK;
}

static wf_status gelu_grad_reference(const wf_call *call, void *workspace)
{
    const double *x = call->in[0]->data, *dy = call->in[1]->data;
    double *dx = call->out[0]->data;
    int64_t n = wf_tensor_local_count(call->out[0]);

    (void)workspace;
    for (int64_t i = 0; i < n; i++) {
        double square = x[i] * x[i];
        double s = sigma(2 * gelu_root * x[i] * (1 + gelu_cube * square));
        double tanh_gradient = 2 * gelu_root * (1 + 3 * gelu_cube * square);

        dx[i] = dy[i] * s * (1 + x[i] * (1 - s) * tanh_gradient);
    }
    return WF_OK;
}

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

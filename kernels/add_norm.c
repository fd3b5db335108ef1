/*
 * kernels/add_norm.c - where a branch joins the residual stream and a norm reads it: one op.
 *
 *     add_layernorm, add_rmsnorm    s = x + dropout(y), z = norm(s)
 *     add_*_dx                      ds + the gradient of norm(s) at dz
 *
 * z comes first, then s and the norm's statistics. All of it is made of kernels/norm.c's ops,
 * whose bits it has; the gradients of gain and bias are those ops themselves, or come with that
 * of s (norm_grad.c).
 */
#include "kernels/shared_internal.h"

enum { NORMED, SUM, STATISTICS };

static wf_tensor *apply(wf_call *call, float eps, float p, int site, wf_tensor **sum)
{
    wf_context *ctx = call->in[0] ? call->in[0]->ctx : NULL;
    wf_add_norm_attr attr = {.eps = eps};

    *sum = NULL;
    if (!ctx || wf_dropout_here(ctx, call->op->name, p, site, &attr.dropout) != WF_OK)
        return NULL;
    if (!(eps > 0)) {
        wf_fail(ctx, WF_EINVAL, "%s: eps is %g, but must be greater than 0", call->op->name,
                (double)eps);
        return NULL;
    }
    call->attr = &attr;
    call->attr_size = sizeof attr;
    wf_dispatch(call);
    *sum = call->out[SUM];
    return call->out[NORMED];
}

wf_tensor *wf_add_layernorm(wf_tensor *x, wf_tensor *y, wf_tensor *gain, wf_tensor *bias,
                            float eps, float p, int site, wf_tensor **sum)
{
    wf_call call = {
        .op = &wf_op_add_layernorm, .n_in = 4, .in = {x, y, gain, bias}, .n_out = 4};

    return apply(&call, eps, p, site, sum);
}

wf_tensor *wf_add_rmsnorm(wf_tensor *x, wf_tensor *y, wf_tensor *gain, float eps, float p,
                          int site, wf_tensor **sum)
{
    wf_call call = {.op = &wf_op_add_rmsnorm, .n_in = 3, .in = {x, y, gain}, .n_out = 3};

    return apply(&call, eps, p, site, sum);
}

/* Returns the gradient of s, from that of z, of s itself, or both. */
static wf_tensor *sum_gradient(const wf_gradient *g, bool centred)
{
    wf_tensor *s = g->out[SUM], *gain = g->in[2], *dz = g->dout[NORMED], *ds = g->dout[SUM];
    wf_tensor *mean = g->out[STATISTICS], *rstd = g->out[STATISTICS + centred];

    if (!dz)
        return ds;
    if (!ds)
        return centred ? wf_layernorm_dx(s, gain, mean, rstd, dz)
                       : wf_rmsnorm_dx(s, gain, rstd, dz);
    return centred ? wf_apply(&wf_op_add_layernorm_dx, NULL, 0, 6, s, gain, mean, rstd, dz, ds)
                   : wf_apply(&wf_op_add_rmsnorm_dx, NULL, 0, 5, s, gain, rstd, dz, ds);
}

static void backward(wf_gradient *g)
{
    bool centred = g->n_in == 4;
    const wf_add_norm_attr *attr = g->attr;
    const wf_dropout_attr *dropout = &attr->dropout;
    wf_tensor *s = g->out[SUM], *dz = g->dout[NORMED];
    wf_tensor *mean = centred ? g->out[STATISTICS] : NULL, *rstd = g->out[STATISTICS + centred];
    bool all = dz && wf_norm_gradients(g, 2, s, g->in[2], mean, rstd, dz, g->dout[SUM]);

    if (!all && (g->want[0] || g->want[1]))
        g->din[0] = sum_gradient(g, centred);
    if (g->want[1])
        g->din[1] = dropout->p > 0
                        ? wf_apply(&wf_op_dropout, dropout, sizeof *dropout, 1, g->din[0])
                        : g->din[0];
    if (all || !dz || !(g->want[2] || (centred && g->want[3])))
        return;
    if (centred)
        wf_layernorm_dw(s, mean, rstd, dz, &g->din[2], &g->din[3]);
    else
        g->din[2] = wf_rmsnorm_dw(s, rstd, dz);
    for (int i = 2; i < g->n_in; i++)
        g->din[i] = wf_vector_gradient(g, i, g->din[i]);
}

static wf_tensor *recompute(const wf_gradient *g)
{
    const wf_add_norm_attr *attr = g->attr;

    return g->n_in == 4 ? wf_layernorm(g->out[SUM], g->in[2], g->in[3], attr->eps)
                        : wf_rmsnorm(g->out[SUM], g->in[2], attr->eps);
}

/* Returns the plain norm of s, on this op's operands and outputs. */
static wf_call norm_of(const wf_call *call)
{
    const wf_add_norm_attr *attr = call->attr;
    bool centred = call->n_in == 4;
    wf_call norm = {.op = centred ? &wf_op_layernorm : &wf_op_rmsnorm,
                    .ctx = call->ctx,
                    .n_in = call->n_in - 1,
                    .in = {call->out[SUM], call->in[2], call->in[3]},
                    .n_out = call->n_out - 1,
                    .out = {call->out[NORMED], call->out[STATISTICS]},
                    .attr = &attr->eps,
                    .attr_size = sizeof attr->eps};

    if (centred)
        norm.out[2] = call->out[STATISTICS + 1];
    return norm;
}

static wf_status reference(const wf_call *call, void *workspace)
{
    const wf_add_norm_attr *attr = call->attr;
    const double *x = call->in[0]->data, *y = call->in[1]->data;
    double *s = call->out[SUM]->data;
    wf_call norm = norm_of(call);

    for (int64_t i = 0; i < wf_tensor_local_count(call->in[1]); i++)
        s[i] = x[i] + y[i] * wf_dropout_factor(&attr->dropout, call->in[1], i);
    return norm.op->reference.run(&norm, workspace);
}

static wf_status reference_dx(const wf_call *call, void *workspace)
{
    wf_call norm = *call;
    const double *ds = call->in[call->n_in - 1]->data;
    double *d = call->out[0]->data;

    norm.op = call->n_in == 6 ? &wf_op_layernorm_dx : &wf_op_rmsnorm_dx;
    norm.n_in--;
    norm.op->reference.run(&norm, workspace);
    for (int64_t i = 0; i < wf_tensor_local_count(call->out[0]); i++)
        d[i] += ds[i];
    return WF_OK;
}

const wf_op wf_op_add_layernorm = {WF_OP_ROW(add_layernorm),
                                   .keep_fp32 = 1 << 2 | 1 << 3,
                                   .follows = 1 << SUM,
                                   .save = WF_SAVE_IN(2) | WF_SAVE_IN(3) | WF_SAVE_OUT(1) |
                                           WF_SAVE_OUT(2) | WF_SAVE_OUT(3),
                                   .reference = {.run = reference},
                                   .backward = backward,
                                   .recompute = recompute};
const wf_op wf_op_add_layernorm_dx = {WF_OP_ROW(add_layernorm_dx), .follows = 1,
                                      .reference = {.run = reference_dx}};
const wf_op wf_op_add_rmsnorm = {WF_OP_ROW(add_rmsnorm),
                                 .keep_fp32 = 1 << 2,
                                 .follows = 1 << SUM,
                                 .save = WF_SAVE_IN(2) | WF_SAVE_OUT(1) | WF_SAVE_OUT(2),
                                 .reference = {.run = reference},
                                 .backward = backward,
                                 .recompute = recompute};
const wf_op wf_op_add_rmsnorm_dx = {WF_OP_ROW(add_rmsnorm_dx), .follows = 1,
                                    .reference = {.run = reference_dx}};

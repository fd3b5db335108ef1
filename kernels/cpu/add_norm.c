/*
 * kernels/cpu/add_norm.c - residual additions joined with norms on the CPU: a few rows at a
 * time go through the inner loops of the ops that are joined, and stay in the first-level cache
 * from one to the next. So memory is passed once and the bits are those of the separate ops.
 */
#include "kernels/cpu/dropout_internal.h"
#include "kernels/cpu/rows_internal.h"

/* y = norm(s) of s = x + dropout(y): x, y by rows, and z, s, statistics. Gradients: s,
   statistics, dz, ds. */
enum {
    SUM = WF_IN(0) | WF_IN(1) | WF_OUT(0) | WF_OUT(1),
    LAYERNORM = SUM | WF_OUT(2) | WF_OUT(3),
    RMSNORM = SUM | WF_OUT(2),
    LAYERNORM_STORED = WF_IN(0) | WF_IN(4) | WF_IN(5) | WF_OUT(0),
    LAYERNORM_DX = LAYERNORM_STORED | WF_IN(2) | WF_IN(3),
    RMSNORM_STORED = WF_IN(0) | WF_IN(3) | WF_IN(4) | WF_OUT(0),
    RMSNORM_DX = RMSNORM_STORED | WF_IN(2)
};

static int64_t width(const wf_call *call)
{
    return call->in[0]->local[call->in[0]->ndim - 1];
}

static void add_norm_rows(const wf_row_run *r)
{
    const wf_add_norm_attr *attr = r->call->attr;
    const float *y = r->in[1];
    float *const *out = r->out;
    int64_t d = width(r->call);

    if (attr->dropout.p > 0) {
        wf_cpu_dropout_range(r->simd, &attr->dropout, r->call->in[1], r->first * d, r->n * d, y,
                             out[1]);
        y = out[1];
    }
    r->simd->add(r->in[0], y, out[1], r->n * d);
    if (r->call->n_in == 4)
        r->simd->layernorm(out[1], r->in[2], r->in[3], attr->eps, out[0], out[2], out[3], r->n,
                           d);
    else
        r->simd->rmsnorm(out[1], r->in[2], attr->eps, out[0], out[2], r->n, d);
}

static void add_norm_dx_rows(const wf_row_run *r)
{
    const float *const *in = r->in;
    float *dx = r->out[0];
    int64_t d = width(r->call);

    if (r->call->n_in == 6)
        r->simd->layernorm_grad(in[0], in[1], in[2], in[3], in[4], dx, r->n, d);
    else
        r->simd->rmsnorm_grad(in[0], in[1], in[2], in[3], dx, r->n, d);
    r->simd->add(in[r->call->n_in - 1], dx, dx, r->n * d);
}

static wf_status add_norm(const wf_call *call, void *workspace)
{
    const wf_tensor *x = call->in[0];

    return wf_cpu_run_rows(call, workspace, wf_extent(x, 0, x->ndim - 1),
                           call->n_in == 4 ? LAYERNORM : RMSNORM, add_norm_rows);
}

static wf_status add_norm_dx(const wf_call *call, void *workspace)
{
    const wf_tensor *x = call->in[0];

    return wf_cpu_run_rows(call, workspace, wf_extent(x, 0, x->ndim - 1),
                           call->n_in == 6 ? LAYERNORM_DX : RMSNORM_DX, add_norm_dx_rows);
}

const wf_kernel wf_cpu_add_layernorm = WF_ROWS_KERNEL(add_norm, SUM);
const wf_kernel wf_cpu_add_layernorm_dx = WF_ROWS_KERNEL(add_norm_dx, LAYERNORM_STORED);
const wf_kernel wf_cpu_add_rmsnorm = WF_ROWS_KERNEL(add_norm, SUM);
const wf_kernel wf_cpu_add_rmsnorm_dx = WF_ROWS_KERNEL(add_norm_dx, RMSNORM_STORED);

/* kernels/cpu/elementwise.c - ops element by element: a row is an element
   (kernels/cpu/rows_internal.h). */
#include "kernels/cpu/rows_internal.h"
#include "kernels/shared_internal.h"

enum {
    ONE = WF_IN(0) | WF_OUT(0),
    TWO = ONE | WF_IN(1),
    FIVE = TWO | WF_IN(2) | WF_OUT(1) /* swiglu_grad */
};

static wf_status run(const wf_call *call, void *workspace, unsigned by_rows, wf_row_loop *loop)
{
    return wf_cpu_run_rows(call, workspace, wf_tensor_local_count(call->out[0]), by_rows, loop);
}

static void add_rows(const wf_row_run *r)
{
    r->simd->add(r->in[0], r->in[1], r->out[0], r->n);
}

static wf_status add(const wf_call *call, void *workspace)
{
    return run(call, workspace, TWO, add_rows);
}

static void sub_rows(const wf_row_run *r)
{
    r->simd->sub(r->in[0], r->in[1], r->out[0], r->n);
}

static wf_status sub(const wf_call *call, void *workspace)
{
    return run(call, workspace, TWO, sub_rows);
}

static void mul_rows(const wf_row_run *r)
{
    r->simd->mul(r->in[0], r->in[1], r->out[0], r->n);
}

static wf_status mul(const wf_call *call, void *workspace)
{
    return run(call, workspace, TWO, mul_rows);
}

static void scale_rows(const wf_row_run *r)
{
    r->simd->scale(r->in[0], ((const wf_scale_attr *)r->call->attr)->factor, r->out[0], r->n);
}

static wf_status scale(const wf_call *call, void *workspace)
{
    return run(call, workspace, ONE, scale_rows);
}

static void add_constant_rows(const wf_row_run *r)
{
    float value = ((const wf_add_constant_attr *)r->call->attr)->value;

    for (int64_t i = 0; i < r->n; i++)
        r->out[0][i] = r->in[0][i] + value;
}

static wf_status add_constant(const wf_call *call, void *workspace)
{
    return run(call, workspace, ONE, add_constant_rows);
}

static void silu_rows(const wf_row_run *r)
{
    r->simd->silu(r->in[0], r->out[0], r->n);
}

static wf_status silu(const wf_call *call, void *workspace)
{
    return run(call, workspace, ONE, silu_rows);
}

static void silu_grad_rows(const wf_row_run *r)
{
    r->simd->silu_grad(r->in[0], r->in[1], r->out[0], r->n);
}

static wf_status silu_grad(const wf_call *call, void *workspace)
{
    return run(call, workspace, TWO, silu_grad_rows);
}

static void gelu_rows(const wf_row_run *r)
{
    r->simd->gelu(r->in[0], r->out[0], r->n);
}

static wf_status gelu(const wf_call *call, void *workspace)
{
    return run(call, workspace, ONE, gelu_rows);
}

static void gelu_grad_rows(const wf_row_run *r)
{
    r->simd->gelu_grad(r->in[0], r->in[1], r->out[0], r->n);
}

static wf_status gelu_grad(const wf_call *call, void *workspace)
{
    return run(call, workspace, TWO, gelu_grad_rows);
}

static void swiglu_rows(const wf_row_run *r)
{
    r->simd->swiglu(r->in[0], r->in[1], r->out[0], r->n);
}

static wf_status swiglu(const wf_call *call, void *workspace)
{
    return run(call, workspace, TWO, swiglu_rows);
}

static void swiglu_grad_rows(const wf_row_run *r)
{
    r->simd->swiglu_grad(r->in[0], r->in[1], r->in[2], r->out[0], r->out[1], r->n);
}

static wf_status swiglu_grad(const wf_call *call, void *workspace)
{
    return run(call, workspace, FIVE, swiglu_grad_rows);
}

const wf_kernel wf_cpu_add = WF_ROWS_KERNEL(add, TWO);
const wf_kernel wf_cpu_sub = WF_ROWS_KERNEL(sub, TWO);
const wf_kernel wf_cpu_mul = WF_ROWS_KERNEL(mul, TWO);
const wf_kernel wf_cpu_scale = WF_ROWS_KERNEL(scale, ONE);
const wf_kernel wf_cpu_add_constant = WF_ROWS_KERNEL(add_constant, ONE);
const wf_kernel wf_cpu_silu = WF_ROWS_KERNEL(silu, ONE);
const wf_kernel wf_cpu_silu_grad = WF_ROWS_KERNEL(silu_grad, TWO);
const wf_kernel wf_cpu_gelu = WF_ROWS_KERNEL(gelu, ONE);
const wf_kernel wf_cpu_gelu_grad = WF_ROWS_KERNEL(gelu_grad, TWO);
const wf_kernel wf_cpu_swiglu = WF_ROWS_KERNEL(swiglu, TWO);
const wf_kernel wf_cpu_swiglu_grad = WF_ROWS_KERNEL(swiglu_grad, FIVE);

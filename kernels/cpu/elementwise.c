/*
 * kernels/cpu/elementwise.c - the CPU's kernels of kernels/expressions.def and of ops by
 * expression in applications: each op brings a loop for each instruction set
 * (kernels/elementwise.h).
 */
#include "kernels/elementwise.h"
#include "kernels/cpu/rows_internal.h"

/* A row is an element. */
static void rows(const wf_row_run *r)
{
    const wf_elementwise *op = r->with;
    float number[4];

    wf_elementwise_numbers(r->call, op->n_numbers, number);
    op->lanes[r->simd->lanes](r->in, number, r->out, r->n);
}

wf_status wf_elementwise_cpu(const wf_call *call, void *workspace, const wf_elementwise *op)
{
    const unsigned all = (WF_IN(op->n_in) - 1) | (WF_OUT(op->n_out) - WF_OUT(0));

    return wf_cpu_run_rows_with(call, workspace, wf_tensor_local_count(call->out[0]), all, rows,
                                op);
}

size_t wf_elementwise_workspace(const wf_call *call)
{
    return wf_cpu_rows_workspace(call);
}

#define EXPRESSION(name, inputs, numbers, outputs, flags)                                      \
    WF_X_CPU(name, inputs, numbers, outputs)                                                   \
    const wf_kernel wf_cpu_##name = WF_X_KERNEL(name, inputs, outputs);
#define ELEMENTWISE(name, inputs, numbers, expression, gradients)                              \
    EXPRESSION(name, inputs, numbers, (expression), 0)                                         \
    EXPRESSION(name##_grad, (WF_OPEN inputs, dy), numbers, gradients, 0)
#include "kernels/expressions.def"

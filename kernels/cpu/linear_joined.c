/*
 * kernels/cpu/linear_joined.c - products with biases, gated and added, on the CPU. Where
 * results are stored as bf16 a bias is added to what the product is stored as: a layer whose
 * product is a sum over ranks rounds it then, and has the same bits so.
 */
#include "kernels/cpu/linear_internal.h"
#include "kernels/cpu/rows_internal.h"
#include "kernels/shared_internal.h"

enum {
    W1 = WF_IN(1),
    W3 = W1 | WF_IN(2) | WF_IN(3),
    Y1 = WF_OUT(0),
    Y2 = Y1 | WF_OUT(1),
    Y3 = Y2 | WF_OUT(2)
};

/* Returns the products, then biases where they lie: a sum over ranks' parts is not part of
   these ops. */
static wf_call product_of(const wf_call *call)
{
    wf_call product = *call;

    product.n_out = wf_linear_joined(call);
    return product;
}

/* Returns the bias's part of a member: in place, or from the product to the activation. */
static wf_call bias_of(const wf_call *call, int m)
{
    return (wf_call){.op = call->op,
                     .ctx = call->ctx,
                     .n_in = 2,
                     .in = {call->out[m], wf_linear_joined_bias(call, m)},
                     .n_out = 1,
                     .out = {call->out[call->n_out > wf_linear_joined(call) ? 1 : m]}};
}

/* Returns what is done at last with two tensors: swiglu of both products, or the addition to
   what the call adds its product to, in place. *kernel: NULL where there is no such thing. */
static wf_call last_of(const wf_call *call, const wf_kernel **kernel)
{
    const bool gated = wf_linear_joined(call) == 2;
    wf_tensor *residual = wf_linear_joined_residual(call);

    *kernel = gated ? &wf_cpu_swiglu : residual ? &wf_cpu_add : NULL;
    return (wf_call){
        .op = call->op,
        .ctx = call->ctx,
        .n_in = 2,
        .in = {gated ? call->out[0] : residual, gated ? call->out[1] : call->out[0]},
        .n_out = 1,
        .out = {gated ? call->out[2] : call->out[0]}};
}

static size_t joined_workspace(const wf_call *call)
{
    wf_call product = product_of(call), last;
    size_t most = wf_cpu_linear_forward_workspace(&product);
    const wf_kernel *kernel;

    for (int m = 0; m < product.n_out && wf_linear_joined_bias(call, m); m++) {
        wf_call bias = bias_of(call, m);
        size_t bytes = wf_cpu_rows_workspace(&bias);

        most = bytes > most ? bytes : most;
    }
    last = last_of(call, &kernel);
    if (kernel) {
        size_t bytes = kernel->workspace(&last);

        most = bytes > most ? bytes : most;
    }
    return most;
}

static wf_status joined(const wf_call *call, void *workspace)
{
    wf_call product = product_of(call), last;
    wf_status status = wf_cpu_linear_forward(&product, workspace);
    const wf_kernel *kernel;

    for (int m = 0; m < product.n_out && wf_linear_joined_bias(call, m) && status == WF_OK;
         m++) {
        wf_call bias = bias_of(call, m);

        status = (call->n_out > product.n_out ? wf_cpu_bias_gelu : wf_cpu_bias_add)
                     .run(&bias, workspace);
    }
    last = last_of(call, &kernel);
    return status == WF_OK && kernel ? kernel->run(&last, workspace) : status;
}

const wf_kernel wf_cpu_linear1_bias = WF_LINEAR_KERNEL(joined, W1, Y1);
const wf_kernel wf_cpu_linear3_bias = WF_LINEAR_KERNEL(joined, W3, Y3);
const wf_kernel wf_cpu_linear1_bias_gelu = WF_LINEAR_KERNEL(joined, W1, Y2);
const wf_kernel wf_cpu_linear2_swiglu = WF_LINEAR_KERNEL(joined, W1 | WF_IN(2), Y3);
const wf_kernel wf_cpu_linear1_add = WF_LINEAR_KERNEL(joined, W1, Y1 | WF_IN(2));
const wf_kernel wf_cpu_linear1_bias_add = WF_LINEAR_KERNEL(joined, W1, Y1 | WF_IN(3));

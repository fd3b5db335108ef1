/*
 * kernels/cpu/linear_joined.c - products with biases, gated, added and rotated, on the CPU.
 * Where results are stored as bf16 a bias is added to what the product is stored as: a layer
 * whose product is a sum over ranks rounds it then, and has the same bits so.
 */
#include "core/numerics/bf16.h"
#include "kernels/attention_internal.h"
#include "kernels/cpu/linear_internal.h"
#include "kernels/cpu/rows_internal.h"
#include "kernels/cpu/task_size_internal.h"
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

/* Rounds the floats of a tensor to the numbers of bf16. */
static void round_some(void *arg, int64_t begin, int64_t end, int worker)
{
    float *x = arg;

    (void)worker;
    for (int64_t i = begin; i < end; i++)
        x[i] = wf_bf16_value(wf_bf16_of(x[i]));
}

static size_t rotated_workspace(const wf_call *call)
{
    wf_tensor heads[2];
    const wf_call product = product_of(call), rope = wf_linear_rope_part(call, heads);
    const size_t first = wf_cpu_linear_forward_workspace(&product);
    const size_t last = wf_cpu_rope_pair.workspace(&rope);

    return first > last ? first : last;
}

/* Rotates two of the products in place. They are floats here, which are rounded first where
   they would have been stored as bf16. */
static wf_status rotated(const wf_call *call, void *workspace)
{
    wf_tensor heads[2];
    const wf_call product = product_of(call), rope = wf_linear_rope_part(call, heads);
    const wf_status status = wf_cpu_linear_forward(&product, workspace);

    for (int m = 0; m < 2 && status == WF_OK; m++)
        if (heads[m].rounds_to == WF_BF16)
            wf_thread_pool_run(wf_cpu_of(call)->pool, wf_tensor_local_count(&heads[m]),
                               wf_task_rows(1), round_some, heads[m].data);
    return status == WF_OK ? wf_cpu_rope_pair.run(&rope, workspace) : status;
}

const wf_kernel wf_cpu_linear1_bias = WF_LINEAR_KERNEL(joined, W1, Y1);
const wf_kernel wf_cpu_linear3_bias = WF_LINEAR_KERNEL(joined, W3, Y3);
const wf_kernel wf_cpu_linear1_bias_gelu = WF_LINEAR_KERNEL(joined, W1, Y2);
const wf_kernel wf_cpu_linear2_swiglu = WF_LINEAR_KERNEL(joined, W1 | WF_IN(2), Y3);
const wf_kernel wf_cpu_linear1_add = WF_LINEAR_KERNEL(joined, W1, Y1 | WF_IN(2));
const wf_kernel wf_cpu_linear1_bias_add = WF_LINEAR_KERNEL(joined, W1, Y1 | WF_IN(3));
const wf_kernel wf_cpu_linear3_rope = WF_LINEAR_KERNEL(rotated, W3, WF_OUT(2));
const wf_kernel wf_cpu_linear3_rope_at = WF_LINEAR_KERNEL(rotated, W3, WF_OUT(2));

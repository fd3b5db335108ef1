/*
 * kernels/cpu/norm_grad.c - the gradients of a norm's rows and vectors on the CPU: the two
 * kernels one after the other. Their orders differ (rows by tasks, vectors by chunks of
 * tokens), and a chunk of x and dy is found in the cache only where a model is small.
 */
#include "kernels/cpu/cpu_internal.h"
#include "kernels/shared_internal.h"

static const wf_kernel *rows_kernel(const wf_call *call)
{
    const bool adds = wf_norm_grad_adds(call);

    if (call->n_out == 3)
        return adds ? &wf_cpu_add_layernorm_dx : &wf_cpu_layernorm_dx;
    return adds ? &wf_cpu_add_rmsnorm_dx : &wf_cpu_rmsnorm_dx;
}

static const wf_kernel *vectors_kernel(const wf_call *call)
{
    return call->n_out == 3 ? &wf_cpu_layernorm_dw : &wf_cpu_rmsnorm_dw;
}

static size_t workspace_bytes(const wf_call *call)
{
    wf_call rows = wf_norm_grad_rows(call), vectors = wf_norm_grad_vectors(call);
    size_t of_rows = rows_kernel(call)->workspace(&rows);
    size_t of_vectors = vectors_kernel(call)->workspace(&vectors);

    return of_rows > of_vectors ? of_rows : of_vectors;
}

static wf_status both(const wf_call *call, void *workspace)
{
    wf_call rows = wf_norm_grad_rows(call), vectors = wf_norm_grad_vectors(call);
    wf_status status = rows_kernel(call)->run(&rows, workspace);

    return status == WF_OK ? vectors_kernel(call)->run(&vectors, workspace) : status;
}

/* Operands that the kernel of rows takes as they are stored: x, dy and what is added, dx. The
   kernel of vectors takes these, too. */
#define KERNEL(stored)                                                                         \
    {                                                                                          \
        .run = both, .workspace = workspace_bytes, .mixed_ok = WF_IN(0) | WF_OUT(0) | (stored) \
    }

const wf_kernel wf_cpu_layernorm_grad = KERNEL(WF_IN(4));
const wf_kernel wf_cpu_rmsnorm_grad = KERNEL(WF_IN(3));
const wf_kernel wf_cpu_add_layernorm_grad = KERNEL(WF_IN(4) | WF_IN(5));
const wf_kernel wf_cpu_add_rmsnorm_grad = KERNEL(WF_IN(3) | WF_IN(4));

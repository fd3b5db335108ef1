/*
 * kernels/cuda/update_host.c - updates by functions of the application's own. They run on the
 * host: what they read is copied there, and what they write brought back to the GPU.
 */
#include "kernels/cuda/device_internal.h"
#include "kernels/shared_internal.h"
#include <stdlib.h>

static wf_status read_all(const wf_call *call, int operands, int64_t n, float *host)
{
    wf_cuda *cuda = wf_cuda_of(call);
    wf_error error = {WF_OK, ""};

    for (int i = 0; i < operands && error.code == WF_OK; i++)
        wf_cuda_memory.read(&cuda->device, host + i * n, call->in[i]->data,
                            (size_t)n * sizeof *host, &error);
    return error.code == WF_OK
               ? WF_OK
               : wf_cuda_host_table->fail(call->ctx, error.code, "%s", error.text);
}

static wf_status update_elements(const wf_call *call, void *workspace)
{
    const wf_update_attr *attr = call->attr;
    wf_cuda *cuda = wf_cuda_of(call);
    int64_t n = wf_cuda_host_table->tensor_local_count(call->in[0]);
    int operands = 2 + attr->states;
    float *host = malloc((size_t)n * (size_t)operands * sizeof *host + 1);
    float *state[WF_UPDATE_STATES] = {NULL};
    wf_status status;

    (void)workspace;
    if (!host)
        return wf_cuda_host_table->fail(call->ctx, WF_ENOMEM,
                                        "%s: no memory for %lld numbers on the host",
                                        call->op->name, (long long)(n * operands));
    for (int k = 0; k < attr->states; k++)
        state[k] = host + (2 + k) * n;
    status = n ? read_all(call, operands, n, host) : WF_OK;
    if (status == WF_OK && n) {
        for (int64_t i = 0; i < n; i++)
            host[n + i] *= attr->update.grad_scale;
        attr->run(&attr->update, n, host, host + n, state);
        for (int i = 0; i < operands; i++)
            if (i != 1)
                wf_cuda_memory.write(&cuda->device, call->in[i]->data, host + i * n,
                                     (size_t)n * sizeof *host);
        status = wf_cuda_check(call->ctx, cudaSuccess, call->op->name);
    }
    free(host);
    return status;
}

const wf_kernel wf_cuda_update_elements = {.run = update_elements};

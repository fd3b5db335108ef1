/*
 * kernels/cuda/init_host.c - initialisation by functions of the application's own. They run on
 * the host, and what they set is brought to the GPU.
 */
#include "kernels/cuda/device_internal.h"
#include "kernels/shared_internal.h"
#include <stdlib.h>
#include <string.h>

static wf_status no_memory(const wf_call *call, int64_t elements)
{
    return wf_cuda_host_table->fail(call->ctx, WF_ENOMEM,
                                    "%s: no memory for %lld numbers on the host",
                                    call->op->name, (long long)elements);
}

static wf_status bring(const wf_call *call, const float *part, int64_t count)
{
    const wf_tensor *t = call->in[0];
    wf_cuda *cuda = wf_cuda_of(call);

    wf_cuda_memory.write(&cuda->device, t->data, part, (size_t)count * sizeof *part);
    return wf_cuda_check(call->ctx, cudaSuccess, call->op->name);
}

static wf_status init_elements(const wf_call *call, void *workspace)
{
    const wf_init_attr *attr = call->attr;
    const wf_init_site site = wf_init_site_of(attr);
    const wf_tensor *t = call->in[0];
    int64_t count = wf_cuda_host_table->tensor_local_count(t), run;
    float *part = malloc((size_t)count * sizeof *part + 1);
    wf_status status;

    (void)workspace;
    if (!part)
        return no_memory(call, count);
    for (int64_t i = 0; i < count; i += run) {
        int64_t first = wf_global_index(t, 0, i, &run);

        attr->elements(part + i, run, first, &site);
    }
    status = count ? bring(call, part, count) : WF_OK;
    free(part);
    return status;
}

static int64_t whole_count(const wf_tensor *t)
{
    int64_t n = 1;

    for (int d = 0; d < t->ndim; d++)
        n *= t->dim[d].size;
    return n;
}

/* Makes the whole, and moves the part to its front, which it never overtakes. */
static wf_status init_whole(const wf_call *call, void *workspace)
{
    const wf_init_attr *attr = call->attr;
    const wf_init_site site = wf_init_site_of(attr);
    const wf_tensor *t = call->in[0];
    int64_t count = wf_cuda_host_table->tensor_local_count(t), n;
    float *whole = malloc((size_t)whole_count(t) * sizeof *whole + 1);
    wf_status status;

    (void)workspace;
    if (!whole)
        return no_memory(call, whole_count(t));
    status = attr->whole(whole, t, &site);
    for (int64_t i = 0; status == WF_OK && i < count; i += n) {
        int64_t first = wf_global_index(t, 0, i, &n);

        memmove(whole + i, whole + first, (size_t)n * sizeof *whole);
    }
    if (status == WF_OK && count)
        status = bring(call, whole, count);
    free(whole);
    return status;
}

const wf_kernel wf_cuda_init_elements = {.run = init_elements};
const wf_kernel wf_cuda_init_whole = {.run = init_whole};

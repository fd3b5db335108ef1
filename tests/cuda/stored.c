/* tests/cuda/stored.c - see the header. */
#include "tests/cuda/stored.h"
#include "core/host_data.h"
#include "core/nf4_tensor.h"
#include "kernels/devices.h"
#include "tests/mesh/ranks.h"
#include <stdlib.h>
#include <string.h>

wf_context *open_stored(int device)
{
    wf_error error = {WF_OK, ""};
    wf_device *d = device == GPU ? wf_cuda_device(&(wf_cuda_options){.ordinal = 0}, &error)
                                 : wf_cpu_device(1, &error);
    wf_context *ctx = wf_context_open(d, &(wf_context_options){.seed = 7}, &error);

    CU_ASSERT_PTR_NOT_NULL_FATAL(ctx);
    return ctx;
}

void write_numbers(wf_tensor *t, int member, int salt)
{
    wf_host_data view;
    float *x = wf_data_write_f32(t, &view);

    for (int64_t k = 0; x && k < wf_tensor_local_count(t); k++)
        x[k] = number(member, salt, k) * (k % 7 == 3 ? 1e-4f : k % 11 == 5 ? 0 : 1);
    wf_data_close(&view);
}

static void read_bytes(const wf_tensor *t, void *to)
{
    wf_host_data view;
    const void *data = wf_data_read(t, &view);

    if (data)
        memcpy(to, data, wf_tensor_bytes(t));
    wf_data_close(&view);
}

bool same_bytes(const wf_tensor *a, const wf_tensor *b)
{
    char *x = malloc(wf_tensor_bytes(a) + 1), *y = malloc(wf_tensor_bytes(b) + 1);
    bool alike = wf_tensor_bytes(a) == wf_tensor_bytes(b);

    CU_ASSERT_FATAL(x && y);
    read_bytes(a, x);
    read_bytes(b, y);
    alike = alike && memcmp(x, y, wf_tensor_bytes(a)) == 0;
    free(x);
    free(y);
    return alike;
}

wf_tensor *stored_part(wf_context *ctx, wf_dtype dtype, region at)
{
    const wf_dim dims[] = {wf_dim_chunked(at.rows), wf_dim_chunked(at.size)};
    wf_tensor *t = dtype == WF_NF4
                       ? wf_nf4_new(ctx, 2, dims, NULL, WF_MEMORY_ACTIVATION, WF_F32)
                       : wf_tensor_new(ctx, dtype, 2, dims, NULL, WF_MEMORY_ACTIVATION);

    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    t->start[1] = at.from; /* as a rank of several has it */
    t->local[1] = at.columns;
    return t;
}

int64_t launches_of(wf_context *ctx)
{
    const wf_device *device = wf_context_device(ctx);

    return device->counts ? device->counts().launches : 0;
}

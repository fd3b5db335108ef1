/*
 * kernels/cuda/update_host.c - updates by functions of the application's own. They run on the
 * host: what they read is copied there, and what they write brought back to the GPU. States in
 * 8 bits are widened there and stored narrow again.
 */
#include "kernels/cuda/device_internal.h"
#include "kernels/shared_internal.h"
#include <stdlib.h>

/* One operand on the host. */
typedef struct operand {
    float *x;       /* [n] */
    uint8_t *codes; /* NULL: it is stored as floats; else its bytes */
    size_t bytes;   /* as it is stored */
} operand;

static wf_dynamic8_row row_of(const wf_tensor *t)
{
    const int last = t->ndim - 1;

    return wf_cuda_host_table->dynamic8_row_of(t->dim[last].size, t->dim[last].grain,
                                               t->start[last], t->local[last]);
}

/* Goes through the blocks of rows of n numbers: widens codes, or where `map` is not NULL stores
   the numbers as codes. Returns the bytes of them. */
static size_t go_through(const wf_tensor *t, int64_t n, const wf_dynamic8_map *map,
                         const float *level, uint8_t *codes, float *x)
{
    const wf_dynamic8_row row = row_of(t);
    size_t at = 0;

    for (int64_t i = 0; i < n;)
        for (int64_t column = 0, count; (count = wf_dynamic8_block(&row, column)) > 0;
             column += count, i += count) {
            if (map)
                wf_dynamic8_pack_block(map, x + i, count, codes + at);
            else if (codes)
                wf_dynamic8_widen_block(level, codes + at, count, x + i);
            at += WF_DYNAMIC8_SCALE + (size_t)count;
        }
    return at;
}

/* Returns which levels the codes of a tensor represent. */
static int levels_of(const wf_tensor *t)
{
    return t->dtype == WF_DYNAMIC8U;
}

static wf_status read_one(const wf_call *call, int i, int64_t n, operand *o)
{
    const wf_tensor *t = call->in[i];
    wf_cuda *cuda = wf_cuda_of(call);
    wf_error error = {WF_OK, ""};

    o->bytes = (size_t)n * sizeof *o->x;
    if (wf_dtype_is_dynamic8(t->dtype)) {
        o->bytes = go_through(t, n, NULL, NULL, NULL, NULL);
        o->codes = malloc(o->bytes + 1);
        if (!o->codes)
            return wf_cuda_host_table->fail(call->ctx, WF_ENOMEM,
                                            "%s: no memory for %zu bytes on the host",
                                            call->op->name, o->bytes);
    }
    if (wf_cuda_memory.read(&cuda->device, o->codes ? (void *)o->codes : o->x, t->data,
                            o->bytes, &error) != WF_OK)
        return wf_cuda_host_table->fail(call->ctx, error.code, "%s", error.text);
    if (o->codes)
        go_through(t, n, NULL, wf_cuda_host_table->dynamic8_levels[levels_of(t)], o->codes,
                   o->x);
    return WF_OK;
}

static void write_one(const wf_call *call, int i, int64_t n, const operand *o)
{
    const wf_tensor *t = call->in[i];
    wf_cuda *cuda = wf_cuda_of(call);
    wf_dynamic8_map map;

    if (o->codes) {
        wf_cuda_host_table->dynamic8_map_make(
            &map, wf_cuda_host_table->dynamic8_levels[levels_of(t)]);
        go_through(t, n, &map, NULL, o->codes, o->x);
    }
    wf_cuda_memory.write(&cuda->device, t->data, o->codes ? (void *)o->codes : o->x, o->bytes);
}

wf_status wf_cuda_update_on_host(const wf_call *call)
{
    const wf_update_attr *attr = call->attr;
    int64_t n = wf_cuda_host_table->tensor_local_count(call->in[0]);
    int operands = 2 + attr->states;
    float *host = malloc((size_t)n * (size_t)operands * sizeof *host + 1);
    float *state[WF_UPDATE_STATES] = {NULL};
    operand list[2 + WF_UPDATE_STATES] = {{.x = NULL}};
    wf_status status = WF_OK;

    if (!host)
        return wf_cuda_host_table->fail(call->ctx, WF_ENOMEM,
                                        "%s: no memory for %lld numbers on the host",
                                        call->op->name, (long long)(n * operands));
    for (int i = 0; i < operands && n && status == WF_OK; i++) {
        list[i].x = host + i * n;
        status = read_one(call, i, n, &list[i]);
    }
    for (int k = 0; k < attr->states; k++)
        state[k] = host + (2 + k) * n;
    if (status == WF_OK && n) {
        for (int64_t i = 0; i < n; i++)
            host[n + i] *= attr->update.grad_scale;
        attr->run(&attr->update, n, host, host + n, state);
        for (int i = 0; i < operands; i++)
            if (i != 1)
                write_one(call, i, n, &list[i]);
        status = wf_cuda_check(call->ctx, cudaSuccess, call->op->name);
    }
    for (int i = 0; i < operands; i++)
        free(list[i].codes);
    free(host);
    return status;
}

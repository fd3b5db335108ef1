/* core/host_data.c - between the host and tensors that may lie elsewhere. */
#include "core/host_data.h"
#include "core/context_internal.h"
#include "core/dynamic8_tensor.h"
#include "core/later.h"
#include "core/nf4_tensor.h"
#include "core/offload.h"
#include "core/numerics/bf16.h"
#include "core/sharing_internal.h"
#include <stdlib.h>
#include <string.h>

static size_t bytes_of(const wf_tensor *t)
{
    return wf_tensor_bytes(t);
}

/* Copies elements from the device, or fails with an error in the context. */
static wf_status fetch(const wf_tensor *t, size_t at, size_t bytes, void *to)
{
    wf_device *device = t->ctx->device;
    wf_error error = {WF_OK, ""};

    if (bytes == 0)
        return WF_OK;
    if (device->memory->read(device, to, (const char *)t->data + at, bytes, &error) == WF_OK)
        return WF_OK;
    return wf_fail(t->ctx, error.code, "%s", error.text);
}

/* Returns the data of a tensor that lies in host memory. */
static void *in_place(const wf_tensor *t)
{
    return wf_tensor_is_offloaded(t)
               ? (char *)wf_storage_on_host(t->ctx, t->storage) + t->offset
               : t->data;
}

/* Has the data of a tensor be there, wherever they are: rows that come later do, and what was
   given back is an error. A tensor changes by that as if it had been there before. */
static wf_status have_data(const wf_tensor *t, const char *what)
{
    if (wf_handle_check(t, what) != WF_OK)
        return WF_EINVAL;
    if (wf_later_come((wf_tensor *)(uintptr_t)t) != WF_OK)
        return wf_context_status(t->ctx);
    if (wf_tensor_is_absent(t) && !wf_tensor_is_offloaded(t))
        return wf_fail(t->ctx, WF_EINVAL,
                       "%s: its memory was given back (wf_tensor_drop): a parameter is there "
                       "while its module runs",
                       what);
    return WF_OK;
}

static void *open_view(wf_tensor *t, bool fill, wf_host_data *view)
{
    *view = (wf_host_data){.t = t};
    if (have_data(t, "the tensor whose data are asked for") != WF_OK)
        return NULL;
    if (!t->ctx->device->memory || wf_tensor_is_offloaded(t))
        return in_place(t);
    view->copy = malloc(bytes_of(t) + 1);
    if (!view->copy)
        wf_fail(t->ctx, WF_ENOMEM, "no memory for %zu bytes of a tensor on the host",
                bytes_of(t));
    else if (!fill || fetch(t, 0, bytes_of(t), view->copy) == WF_OK)
        return view->copy;
    free(view->copy);
    view->copy = NULL;
    return NULL;
}

const void *wf_data_read(const wf_tensor *t, wf_host_data *view)
{
    return open_view((wf_tensor *)(uintptr_t)t, true, view); /* changed nowhere */
}

void *wf_data_write(wf_tensor *t, bool keep, wf_host_data *view)
{
    bool good = wf_handle_check(t, "the tensor whose data are to be written") == WF_OK;
    void *data = good && wf_tensor_own(t, keep) == WF_OK ? open_view(t, keep, view) : NULL;

    view->changed = data != NULL;
    if (data)
        wf_tensor_changed(t, "wf_data_write");
    return data;
}

/* Makes room for the values of `view`; NULL with an error in the context. */
static float *values_of(const wf_tensor *t, wf_host_data *view)
{
    view->f32 = malloc((size_t)wf_tensor_local_count(t) * sizeof(float) + 1);
    if (!view->f32)
        wf_fail(t->ctx, WF_ENOMEM, "no memory for the values of a tensor on the host");
    return view->f32;
}

static void widen_nf4(const wf_tensor *t, const uint8_t *bytes, float *values)
{
    wf_host_data view;
    const float *scales = wf_data_read(t->scales, &view);

    if (scales)
        wf_nf4_values(t, bytes, scales, 0, wf_nf4_part_of(t).rows, values);
    wf_data_close(&view);
}

static void widen_dynamic8(const wf_tensor *t, const uint8_t *bytes, float *values)
{
    const wf_dynamic8_row row = wf_dynamic8_row_of_tensor(t);

    wf_dynamic8_widen(&row, wf_dynamic8_levels(t->dtype), bytes, wf_dynamic8_rows(t), values);
}

/* Returns true where numbers are stored in another form than floats. */
static bool is_narrow(const wf_tensor *t)
{
    return t->dtype == WF_BF16 || t->dtype == WF_NF4 || wf_dtype_is_dynamic8(t->dtype);
}

const float *wf_data_read_f32(const wf_tensor *t, wf_host_data *view)
{
    const void *data = wf_data_read(t, view);
    const uint16_t *bits = data;
    int64_t count;
    float *values;

    if (!data || !is_narrow(t))
        return data;
    values = values_of(t, view);
    count = values && t->dtype == WF_BF16 ? wf_tensor_local_count(t) : 0;
    if (values && t->dtype == WF_NF4)
        widen_nf4(t, data, values);
    if (values && wf_dtype_is_dynamic8(t->dtype))
        widen_dynamic8(t, data, values);
    for (int64_t i = 0; i < count; i++)
        values[i] = wf_bf16_value(bits[i]);
    return values;
}

float *wf_data_write_f32(wf_tensor *t, wf_host_data *view)
{
    void *data;

    if (t->dtype == WF_NF4) {
        *view = (wf_host_data){.t = t};
        wf_fail(t->ctx, WF_EDTYPE,
                "numbers of nf4 are scaled by those of other ranks: wf_nf4_store takes them");
        return NULL;
    }
    data = wf_data_write(t, false, view);
    return data && is_narrow(t) ? values_of(t, view) : data;
}

/* Converts the written values to the stored type. */
static void store_values(wf_host_data *view)
{
    const wf_tensor *t = view->t;
    uint16_t *bits = view->copy ? view->copy : in_place(t);
    const float *values = view->f32;
    const int64_t count = t->dtype == WF_BF16 ? wf_tensor_local_count(t) : 0;

    if (wf_dtype_is_dynamic8(t->dtype)) {
        const wf_dynamic8_row row = wf_dynamic8_row_of_tensor(t);

        wf_dynamic8_pack(&row, wf_dynamic8_levels(t->dtype), values, wf_dynamic8_rows(t),
                         (uint8_t *)bits);
    }
    for (int64_t i = 0; i < count; i++)
        bits[i] = wf_bf16_of(values[i]);
}

void wf_data_close(wf_host_data *view)
{
    wf_device *device = view->copy ? view->t->ctx->device : NULL;

    if (view->f32 && view->changed)
        store_values(view);
    free(view->f32);
    if (device && view->changed && bytes_of(view->t))
        device->memory->write(device, view->t->data, view->copy, bytes_of(view->t));
    free(view->copy);
    *view = (wf_host_data){.t = NULL};
}

wf_status wf_data_get(const wf_tensor *t, int64_t first, int64_t n, void *to)
{
    size_t size = wf_dtype_size(t->dtype), at = (size_t)first * size, bytes = (size_t)n * size;

    if (have_data(t, "wf_data_get: the tensor") != WF_OK)
        return wf_context_status(t->ctx);
    if (t->ctx->device->memory && !wf_tensor_is_offloaded(t))
        return fetch(t, at, bytes, to);
    memcpy(to, (const char *)in_place(t) + at, bytes);
    return WF_OK;
}

void *wf_data_take(wf_context *ctx, size_t bytes, wf_memory_kind kind)
{
    wf_error error = {WF_OK, ""};
    void *block;

    if (ctx->device->memory)
        block = malloc(ctx->options.plan ? 1 : bytes + 1); /* a plan touches none of it */
    else
        block = wf_pool_take(ctx->pool, bytes, kind, &error);
    if (!block)
        wf_fail(ctx, WF_ENOMEM, "%s",
                error.code != WF_OK ? error.text : "no memory left on the host");
    return block;
}

void wf_data_give(wf_context *ctx, void *block, size_t bytes, wf_memory_kind kind)
{
    if (ctx->device->memory)
        free(block);
    else
        wf_pool_give(ctx->pool, block, bytes, kind);
}

/* mesh/array/move_local.c - the steps of a redistribution that a rank does with what it has: a
   slice, a summand. */
#include "mesh/array/move_internal.h"
#include <string.h>

/* Nothing is copied where there is nothing: a parameter before it is materialised, a plan. */
static bool has_values(const wf_tensor *t)
{
    return !wf_tensor_is_fake(t) && !wf_context_dry_run(t->ctx);
}

/* Copies [at, at + length) of a dim of src to [to, to + length) of the same dim of dst; all
   other dims are alike, `rows` counts those before and `bytes` those after. */
static void slab(wf_context *ctx, char *dst, int64_t dst_n, int64_t to, const char *src,
                 int64_t src_n, int64_t at, int64_t length, int64_t rows, size_t bytes)
{
    wf_copy copy = {.from = src + (size_t)at * bytes,
                    .to = dst + (size_t)to * bytes,
                    .bytes = (size_t)length * bytes,
                    .from_step = (size_t)src_n * bytes,
                    .to_step = (size_t)dst_n * bytes,
                    .rows = rows};

    if (!copy.bytes || rows == 0)
        return;
    if (wf_context_device(ctx)->memory) {
        wf_context_device(ctx)->memory->copy(wf_context_device(ctx), &copy, false, NULL);
        return;
    }
    for (int64_t r = 0; r < rows; r++)
        memcpy((char *)copy.to + (size_t)r * copy.to_step,
               (const char *)copy.from + (size_t)r * copy.from_step, copy.bytes);
}

/* -0 is the one number that leaves every other as it is. */
static void fill_zeros(wf_tensor *t)
{
    wf_device *device = wf_context_device(t->ctx);
    int64_t n = wf_tensor_local_count(t);
    float *zero = t->data;

    if (device->memory && n)
        device->memory->fill(device, zero, 0x80000000u, n);
    for (int64_t i = 0; i < n && !device->memory; i++)
        zero[i] = -0.0f;
}

void wf_move_local(wf_context *ctx, const wf_move_step *step, const wf_tensor *x, wf_tensor *y)
{
    size_t element = wf_dtype_size(x->dtype);
    int d = step->dim;

    if (!has_values(x))
        return;
    if (step->kind == WF_MOVE_SLICE) {
        slab(ctx, y->data, y->local[d], 0, x->data, x->local[d], y->start[d] - x->start[d],
             y->local[d], wf_outer_count(x, d), (size_t)wf_inner_count(x, d) * element);
    } else if (step->reduction == WF_REDUCE_MAX ||
               wf_mesh_coordinate(wf_mesh_of(ctx), step->axis) == 0) {
        int64_t n = wf_tensor_local_count(x);

        slab(ctx, y->data, n, 0, x->data, n, 0, n, 1, element);
    } else {
        fill_zeros(y);
    }
}

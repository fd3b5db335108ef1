/* core/nf4_tensor.c - see the header. */
#include "core/nf4_tensor.h"
#include "core/context_internal.h"
#include "core/host_data.h"
#include "core/numerics/bf16.h"
#include <stdlib.h>
#include <string.h>

wf_nf4_part wf_nf4_part_at(int ndim, const wf_dim *dims, const int64_t *start,
                           const int64_t *local)
{
    const int last = ndim - 1;
    wf_nf4_part part = {.height = 1,
                        .width = dims[last].size,
                        .rows = 1,
                        .first_column = start[last],
                        .columns = local[last]};

    for (int d = 0; d < last; d++) {
        part.height *= dims[d].size;
        part.rows *= local[d];
        part.first_row = part.first_row * dims[d].size + start[d];
        part.run *= local[d];
        part.step *= dims[d].size;
        if (d > 0 && local[d] != dims[d].size) { /* rows of each index before it are a run */
            part.run = local[d];
            part.step = dims[d].size;
        }
    }
    return part;
}

wf_nf4_part wf_nf4_part_of(const wf_tensor *t)
{
    return wf_nf4_part_at(t->ndim, t->dim, t->start, t->local);
}

static int64_t block_count(int ndim, const wf_dim *dims)
{
    int64_t numbers = 1;

    for (int d = 0; d < ndim; d++)
        numbers *= dims[d].size;
    return wf_nf4_blocks(numbers);
}

int64_t wf_nf4_scale_count(int ndim, const wf_dim *dims)
{
    return 1 + wf_nf4_nested(block_count(ndim, dims));
}

wf_tensor *wf_nf4_new(wf_context *ctx, int ndim, const wf_dim *dims, const wf_layout *layout,
                      wf_memory_kind kind, wf_dtype as)
{
    wf_tensor *t = wf_tensor_new(ctx, WF_NF4, ndim, dims, layout, kind);
    wf_dim n = wf_dim_width(t ? wf_nf4_scale_count(ndim, dims) : 0);
    int split = 0;

    if (!t)
        return NULL;
    for (int d = 1; d < ndim - 1; d++) /* runs of rows are at one distance */
        if (t->local[d] != dims[d].size && split++ > 0) {
            wf_fail(
                ctx, WF_ELAYOUT,
                "nf4: dim %d of %d is split, and one before it, too: rows of such are split "
                "in dim 0 and one more",
                d, ndim);
            return NULL;
        }
    t->rounds_to = as;
    t->scales = wf_tensor_retain(wf_tensor_new(ctx, WF_F32, 1, &n, NULL, kind));
    return t->scales ? t : NULL;
}

wf_tensor *wf_nf4_absent(wf_tensor *t, const wf_layout *layout)
{
    wf_tensor *y = t ? wf_tensor_absent(t->ctx, WF_NF4, t->ndim, t->dim, layout) : NULL;

    if (y) {
        y->rounds_to = t->rounds_to;
        y->scales = wf_tensor_retain(t->scales);
    }
    return y;
}

wf_status wf_nf4_store(wf_tensor *t, const float *values, const float *absmax)
{
    const wf_nf4_part part = wf_nf4_part_of(t);
    int64_t blocks = block_count(t->ndim, t->dim);
    uint8_t *code = malloc((size_t)blocks + 1), *bytes;
    wf_host_data view[2];
    float *scales;

    if (!code)
        return wf_fail(t->ctx, WF_ENOMEM, "no memory for the scales of a matrix");
    scales = wf_data_write(t->scales, false, &view[0]);
    bytes = wf_data_write(t, false, &view[1]);
    if (scales && bytes) {
        wf_nf4_scales(blocks, absmax, code, scales);
        wf_nf4_pack(&part, values, absmax, code, bytes);
    }
    wf_data_close(&view[1]);
    wf_data_close(&view[0]);
    free(code);
    return wf_context_status(t->ctx);
}

void wf_nf4_values(const wf_tensor *t, const uint8_t *bytes, const float *scales, int64_t row,
                   int64_t rows, float *to)
{
    const wf_nf4_part part = wf_nf4_part_of(t);

    wf_nf4_widen(&part, bytes, scales, row, rows, to);
    for (int64_t i = 0; t->rounds_to == WF_BF16 && i < rows * part.columns; i++)
        to[i] = wf_bf16_value(wf_bf16_of(to[i]));
}

/* core/nf4_tensor.c - see the header. */
#include "core/nf4_tensor.h"
#include "core/context_internal.h"
#include "core/host_data.h"
#include "core/numerics/bf16.h"
#include <stdlib.h>
#include <string.h>

wf_nf4_part wf_nf4_part_of(const wf_tensor *t)
{
    return (wf_nf4_part){t->dim[0].size, t->dim[1].size, t->start[0],
                         t->local[0],    t->start[1],    t->local[1]};
}

static int64_t block_count(const wf_dim *dims)
{
    return wf_nf4_blocks(dims[0].size * dims[1].size);
}

int64_t wf_nf4_scale_count(const wf_dim *dims)
{
    return 1 + wf_nf4_nested(block_count(dims));
}

wf_tensor *wf_nf4_new(wf_context *ctx, int ndim, const wf_dim *dims, const wf_layout *layout,
                      wf_memory_kind kind, wf_dtype as)
{
    wf_tensor *t = wf_tensor_new(ctx, WF_NF4, ndim, dims, layout, kind);
    wf_dim n = wf_dim_width(t ? wf_nf4_scale_count(dims) : 0);

    if (!t)
        return NULL;
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
    int64_t blocks = block_count(t->dim);
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

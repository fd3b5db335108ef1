/* nn/optim/parts.c - parts of parameters, moved to where rows or columns are whole. */
#include "nn/optim/parts.h"
#include "core/context.h"
#include "core/host_data.h"
#include "kernels/ops.h"
#include <math.h>

static wf_tensor *move(const wf_nn_parts *parts, wf_tensor *t, const wf_layout *to)
{
    return t && parts->mover ? parts->mover->move(parts->mover->arg, t, to) : t;
}

wf_tensor *wf_nn_parts_split(const wf_nn_parts *parts, wf_tensor *t, int dim)
{
    const wf_nn_mover *m = parts->mover;

    return t && m ? move(parts, t, m->split(m->arg, parts->layout, dim, dim)) : t;
}

wf_tensor *wf_nn_parts_like(const wf_nn_parts *parts, wf_tensor *t, const wf_tensor *like)
{
    return move(parts, t, like->layout);
}

wf_tensor *wf_nn_parts_local(wf_tensor *t)
{
    wf_dim dims[WF_MAX_DIMS];

    for (int d = 0; t && d < t->ndim; d++)
        dims[d] = wf_dim_width(t->local[d]);
    return t ? wf_tensor_view(t, t->ndim, dims, NULL) : NULL;
}

/* Returns the sum of squares of each row, [rows], as rows are split: x is split along dim 0
   alone, and what has one dim is made of rows of one element. */
static wf_tensor *row_squares(const wf_tensor *x, wf_tensor *part)
{
    int64_t width = x->ndim > 1 ? x->dim[x->ndim - 1].size : 1;
    int64_t rows = wf_tensor_count(x) / width, each = rows / x->dim[0].size;
    const wf_dim all = {rows, x->dim[0].grain * each, WF_CHUNKS_1};
    const wf_dim here[2] = {wf_dim_width(wf_tensor_local_count(x) / width),
                            wf_dim_width(width)};
    wf_tensor *flat = part ? wf_tensor_view(part, 2, here, NULL) : NULL;
    wf_tensor *sums;

    if (flat && here[0].size == 0) /* a rank without rows */
        return wf_tensor_new(x->ctx, x->dtype, 1, &all, x->layout, WF_MEMORY_WORKSPACE);
    sums = flat ? wf_sum(wf_mul(flat, flat), 1) : NULL;
    return sums ? wf_tensor_view(sums, 1, &all, x->layout) : NULL;
}

float wf_nn_parts_rms(const wf_nn_parts *parts, wf_tensor *t)
{
    wf_tensor *x, *sum = NULL;
    wf_host_data view;
    const float *value = NULL;
    float rms = 1;

    if (!t || !wf_tensor_count(t))
        return 1;
    wf_scope_open(t->ctx);
    x = wf_nn_parts_split(parts, t, 0);
    if (x)
        sum = wf_nn_parts_split(parts, row_squares(x, wf_nn_parts_local(x)), -1);
    if (sum)
        sum = wf_sum(wf_nn_parts_local(sum), 0);
    if (sum && !wf_context_dry_run(sum->ctx)) {
        value = wf_data_read_f32(sum, &view);
        if (value)
            rms = (float)sqrt((double)*value / (double)wf_tensor_count(x));
        wf_data_close(&view);
    }
    wf_scope_close(t->ctx);
    return rms;
}

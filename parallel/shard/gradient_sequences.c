/* parallel/shard/gradient_sequences.c - gradients per sequence, added by the rank that keeps
   them; see the header. */
#include "parallel/shard/gradient_sequences_internal.h"
#include "core/shape.h"
#include "kernels/ops.h"
#include <string.h>

/* Returns the layout `front`, followed by dims `from`, .. of this layout as dims 0, 1, ... */
static const wf_layout *outermost(wf_par *par, const wf_layout *front, const wf_layout *layout,
                                  int from, int first)
{
    int axis[WF_MAX_AXES];

    for (int d = from; d < WF_MAX_DIMS; d++) {
        int n = wf_layout_dim_axes(layout, d, axis);

        for (int i = 0; i < n; i++)
            front = wf_layout_split(par->mesh, front, first + d - from, axis[i]);
    }
    return front;
}

/* Rows split over those data-parallel axes that the mask has. */
static const wf_layout *rows_over(wf_par *par, unsigned axes)
{
    const wf_layout *layout = NULL;

    for (int i = 0; i < par->n_dp; i++)
        if (axes >> par->dp_axis[i] & 1)
            layout = wf_layout_split(par->mesh, layout, 0, par->dp_axis[i]);
    return layout;
}

wf_tensor *wf_par_per_sequence_put(wf_par *par, wf_tensor *grad)
{
    wf_dim dim[WF_MAX_DIMS];

    if (!grad)
        return NULL;
    if (grad->ndim == WF_MAX_DIMS) {
        wf_fail(
            par->ctx, WF_ESHAPE,
            "a gradient of %d dims cannot be sent by sequences: take a global batch that is "
            "dp times a power of two",
            grad->ndim);
        return NULL;
    }
    dim[0] = wf_dim_batch(wf_par_dp(par));
    memcpy(dim + 1, grad->dim, (size_t)grad->ndim * sizeof *dim);
    return wf_tensor_view(
        grad, grad->ndim + 1, dim,
        outermost(par, rows_over(par, wf_par_dp_axes(par)), grad->layout, 0, 1));
}

const wf_layout *wf_par_per_sequence_layout(wf_par *par, const wf_par_parameter_state *h,
                                            const wf_tensor *rows)
{
    const wf_layout *kept = h->gradient;
    unsigned split = wf_layout_split_axes(kept);

    for (int i = 0; i < par->n_dp && rows && rows->ndim > 1; i++)
        if (par->reduced >> par->dp_axis[i] & 1 && !(split >> par->dp_axis[i] & 1))
            kept = wf_layout_split(par->mesh, kept, 0, par->dp_axis[i]);
    return outermost(par, rows_over(par, wf_par_dp_axes(par) & ~par->reduced), kept, 0, 1);
}

/* In memory of its own, as it is stored. */
static wf_tensor *copy_of(wf_tensor *t)
{
    wf_dtype storage = wf_context_storage(t->ctx, t->dtype);
    wf_tensor *copy = wf_scale(t, 1);

    wf_context_storage(t->ctx, storage);
    return copy;
}

wf_tensor *wf_par_per_sequence_take(wf_par *par, wf_tensor *rows, int64_t i, bool stays)
{
    wf_tensor *row = wf_tensor_rows(rows, i, 1);
    const wf_layout *layout;

    row = stays && row ? copy_of(row) : row;
    if (!row)
        return NULL;
    layout = outermost(par, NULL, row->layout, 1, 0);
    for (int k = 0; k < par->n_dp; k++)
        if (!(par->reduced >> par->dp_axis[k] & 1))
            layout = wf_layout_partial(par->mesh, layout, par->dp_axis[k], WF_REDUCE_SUM);
    return wf_tensor_view(row, rows->ndim - 1, row->dim + 1, layout);
}

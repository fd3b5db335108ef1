/*
 * kernels/views.c - split_heads and merge_heads: the same data under other dims.
 *
 * A last dim of heads * dim elements with grain dim is [heads, dim]: heads keeps the chunks,
 * dim is whole on every rank. The layout of heads is that of the merged dim, since both are cut
 * at the same heads.
 */
#include "kernels/op_table_internal.h"
#include <inttypes.h>

/* Attributes of one head; grain and chunks 0: those of a width. */
typedef struct heads_attr {
    int64_t dim, grain;
    int64_t chunks;
} heads_attr;

wf_tensor *wf_split_heads(wf_tensor *x, int64_t head_dim)
{
    heads_attr attr = {.dim = head_dim};

    if (x && x->ndim >= WF_MAX_DIMS) {
        wf_fail(x->ctx, WF_ESHAPE,
                "split_heads: %d dims would be one more than a tensor has (%d)", x->ndim,
                WF_MAX_DIMS);
        return NULL;
    }
    return wf_apply(&wf_op_split_heads, &attr, sizeof attr, 1, x);
}

wf_tensor *wf_merge_heads(wf_tensor *x)
{
    heads_attr attr = {0};

    if (x && x->ndim) {
        const wf_dim *head = &x->dim[x->ndim - 1];

        attr = (heads_attr){head->size, head->grain, head->chunks};
    }
    return wf_apply(&wf_op_merge_heads, &attr, sizeof attr, 1, x);
}

static void split_backward(wf_gradient *g)
{
    g->din[0] = wf_merge_heads(g->dout[0]);
}

/* Gives the gradient the dims that x had, whatever its heads were. */
static void merge_backward(wf_gradient *g)
{
    g->din[0] = wf_apply(&wf_op_split_heads, g->attr, sizeof(heads_attr), 1, g->dout[0]);
}

static wf_status split_shape(const wf_call *call, int out, int *ndim, wf_dim *dims)
{
    const heads_attr *attr = call->attr;
    int64_t head_dim = attr->dim;
    const wf_tensor *x = call->in[0];
    int last = x->ndim - 1;

    (void)out;
    if (head_dim < 1 || x->dim[last].grain != head_dim)
        return wf_fail(call->ctx, WF_ESHAPE,
                       "split_heads: the last dim has grain %" PRId64
                       ", not the head size %" PRId64
                       "; make it with wf_dim_heads(heads, %" PRId64 ")",
                       x->dim[last].grain, head_dim, head_dim);
    for (int d = 0; d < last; d++)
        dims[d] = x->dim[d];
    dims[last] = (wf_dim){x->dim[last].size / head_dim, 1, x->dim[last].chunks};
    dims[last + 1] = attr->chunks ? (wf_dim){head_dim, attr->grain, (int)attr->chunks}
                                  : wf_dim_width(head_dim);
    *ndim = x->ndim + 1;
    return WF_OK;
}

static wf_status merge_shape(const wf_call *call, int out, int *ndim, wf_dim *dims)
{
    const wf_tensor *x = call->in[0];
    int last = x->ndim - 1;
    int64_t head_dim = x->dim[last].size;

    (void)out;
    if (head_dim < 1 || x->dim[last - 1].grain != 1)
        return wf_fail(call->ctx, WF_ESHAPE,
                       "merge_heads: heads of size %" PRId64 " (at least 1) and grain %" PRId64
                       " (only 1) cannot be merged; give it what split_heads returns",
                       head_dim, x->dim[last - 1].grain);
    for (int d = 0; d < last - 1; d++)
        dims[d] = x->dim[d];
    dims[last - 1] =
        (wf_dim){x->dim[last - 1].size * head_dim, head_dim, x->dim[last - 1].chunks};
    *ndim = x->ndim - 1;
    return WF_OK;
}

const wf_op wf_op_split_heads = {WF_OP_ROW(split_heads), .shape = split_shape,
                                 .backward = split_backward};
const wf_op wf_op_merge_heads = {WF_OP_ROW(merge_heads), .shape = merge_shape,
                                 .backward = merge_backward};

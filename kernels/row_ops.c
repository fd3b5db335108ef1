/*
 * kernels/row_ops.c - ops on rows: shapes, gradients, reference loops
 * (kernels/row_loops_internal.h), rows; their functions are in kernels/row_functions.c.
 *
 *     topk       the first k of a row in order, and their indices
 *     gather     y[i] = x[index[i]]; scatter adds values at their indices: each is the other's
 *                gradient
 *     one_hot    y[i] = 1 where the index is i
 *     cumsum     y[i] = x[0] + .. + x[i]
 *     triangle   a matrix on one side of a diagonal
 *     concat     one tensor after another along a dim; pad a value before and after
 */
#include "kernels/row_ops_internal.h"
#include "kernels/dims_internal.h"
#include "kernels/row_ops.h"
#include <inttypes.h>
#include <math.h>

#define T        double
#define ROW_LOOP static inline
#include "kernels/row_loops_internal.h"
#undef ROW_LOOP
#undef T

static double as_double(const void *data, int64_t e)
{
    return ((const double *)data)[e];
}

wf_status wf_check_indices(const wf_call *call, double (*at)(const void *data, int64_t e))
{
    const int operand = call->op->id == WF_ID_one_hot ? 0 : 1;
    const wf_tensor *index = call->in[operand];
    const wf_tensor *rows = call->op->id == WF_ID_gather ? call->in[0] : call->out[0];
    int64_t size = rows->local[rows->ndim - 1];

    for (int64_t e = 0; e < wf_tensor_local_count(index); e++) {
        double i = at(index->data, e);

        if (!(i >= 0 && i < (double)size && i == (double)(int64_t)i))
            return wf_fail(call->ctx, WF_EINVAL,
                           "%s: element %" PRId64
                           " of operand %d is %g, no index of [0, %" PRId64
                           "): give it whole numbers, as wf_topk makes them",
                           call->op->name, e, operand, i, size);
    }
    return WF_OK;
}

static bool takes_indices(const wf_call *call)
{
    return call->op->id == WF_ID_gather || call->op->id == WF_ID_scatter ||
           call->op->id == WF_ID_one_hot;
}

static wf_status run(const wf_call *call, void (*loop)(const wf_row_job *, int64_t,
                                                       const double *const *, double *const *))
{
    wf_row_job j = wf_row_job_of(call);

    if (takes_indices(call) && wf_check_indices(call, as_double) != WF_OK)
        return WF_EINVAL;
    for (int64_t r = 0; r < j.rows; r++) {
        const double *in[3] = {NULL};
        double *out[2] = {NULL};

        for (int i = 0; i < j.n_in; i++)
            in[i] = (const double *)j.in[i] + r * j.width_in[i];
        for (int o = 0; o < j.n_out; o++)
            out[o] = (double *)j.out[o] + r * j.width_out[o];
        loop(&j, r, in, out);
    }
    return WF_OK;
}

#define ROW_OP(name)                                                                           \
    static wf_status name##_reference(const wf_call *call, void *workspace)                    \
    {                                                                                          \
        (void)workspace;                                                                       \
        return run(call, name##_row);                                                          \
    }
ROW_OPS
#undef ROW_OP

/* ---- shapes ---- */

/* Lists the first operand's dims, the last one a width of `last`. */
static void dims_with_last(const wf_tensor *x, int64_t last, int *ndim, wf_dim *dims)
{
    *ndim = x->ndim;
    for (int d = 0; d < x->ndim; d++)
        dims[d] = x->dim[d];
    dims[x->ndim - 1] = wf_dim_width(last);
}

static wf_status topk_shape(const wf_call *call, int out, int *ndim, wf_dim *dims)
{
    const wf_row_attr *a = call->attr;
    const wf_tensor *x = call->in[0];
    int64_t n = x->dim[x->ndim - 1].size;

    (void)out;
    if (a->count < 0 || a->count > n || n > 1 << 24)
        return wf_fail(call->ctx, WF_ESHAPE,
                       "topk: %" PRId64 " of a row of %" PRId64
                       "; take 0 to all of at most 16777216, beyond which no float is an index",
                       a->count, n);
    dims_with_last(x, a->count, ndim, dims);
    return WF_OK;
}

/* Outputs are as the signature says; rows longer than the indices of floats are refused. */
static wf_status indexed_shape(const wf_call *call, int out, int *ndim, wf_dim *dims)
{
    const wf_tensor *x = call->in[0], *index = call->in[1];
    int64_t n = x->dim[x->ndim - 1].size;
    const wf_tensor *last = call->op == &wf_op_gather ? index : x;

    (void)out;
    if (n > 1 << 24)
        return wf_fail(call->ctx, WF_ESHAPE,
                       "%s: a row of %" PRId64
                       "; take at most 16777216, beyond which no float is an index",
                       call->op->name, n);
    *ndim = x->ndim;
    for (int d = 0; d < x->ndim; d++)
        dims[d] = d == x->ndim - 1 ? last->dim[d] : x->dim[d];
    return WF_OK;
}

static wf_status one_hot_shape(const wf_call *call, int out, int *ndim, wf_dim *dims)
{
    const wf_row_attr *a = call->attr;
    const wf_tensor *x = call->in[0];

    (void)out;
    if (a->count < 1 || a->count > 1 << 24 || x->ndim >= WF_MAX_DIMS)
        return wf_fail(call->ctx, WF_ESHAPE,
                       "one_hot: %" PRId64
                       " classes of a tensor of %d dims; take 1 to 16777216 "
                       "classes and at most %d dims",
                       a->count, x->ndim, WF_MAX_DIMS - 1);
    *ndim = x->ndim + 1;
    for (int d = 0; d < x->ndim; d++)
        dims[d] = x->dim[d];
    dims[x->ndim] = wf_dim_width(a->count);
    return WF_OK;
}

/* Resizes a dim, by whole grains of it. */
static wf_status resized(const wf_call *call, int64_t size, int *ndim, wf_dim *dims)
{
    const wf_row_attr *a = call->attr;
    const wf_tensor *x = call->in[0];

    *ndim = x->ndim;
    for (int d = 0; d < x->ndim; d++)
        dims[d] = x->dim[d];
    dims[a->dim].size = size;
    if (size % dims[a->dim].grain)
        return wf_fail(call->ctx, WF_ESHAPE,
                       "%s: dim %d would have %" PRId64 " indices, in grains of %" PRId64
                       "; make it of whole grains",
                       call->op->name, a->dim, size, dims[a->dim].grain);
    return WF_OK;
}

static wf_status concat_shape(const wf_call *call, int out, int *ndim, wf_dim *dims)
{
    const wf_row_attr *a = call->attr;
    const wf_dim *first = &call->in[0]->dim[a->dim], *second = &call->in[1]->dim[a->dim];

    (void)out;
    if (first->grain != second->grain || first->chunks != second->chunks)
        return wf_fail(call->ctx, WF_ESHAPE,
                       "concat: dim %d of one tensor has grain %" PRId64
                       " and chunks %d, of the next one grain %" PRId64
                       " and chunks %d; make both with the same wf_dim",
                       a->dim, first->grain, first->chunks, second->grain, second->chunks);
    return resized(call, call->in[0]->dim[a->dim].size + call->in[1]->dim[a->dim].size, ndim,
                   dims);
}

static wf_status pad_shape(const wf_call *call, int out, int *ndim, wf_dim *dims)
{
    const wf_row_attr *a = call->attr;

    (void)out;
    if (a->first < 0 || a->count < 0)
        return wf_fail(call->ctx, WF_ESHAPE,
                       "pad: %" PRId64 " before and %" PRId64
                       " after; wf_slice takes some away",
                       a->first, a->count);
    return resized(call, call->in[0]->dim[a->dim].size + a->first + a->count, ndim, dims);
}

/* "bi!j,bz!j->bi!j" for two operands and dim 1, "bi!j->bi!j" for one. */
static const char *dim_signature(const wf_call *call, char *text)
{
    const wf_row_attr *a = call->attr;
    int ndim = call->in[0]->ndim;
    char *at = text;

    for (int k = 0; k <= call->n_in; k++) {
        for (int d = 0; d < ndim; d++) {
            *at++ = d == a->dim && k == 1 && call->n_in == 2 ? 'z' : "bijklm"[d];
            if (d == a->dim)
                *at++ = '!';
        }
        if (k == call->n_in - 1) {
            *at++ = '-';
            *at++ = '>';
        } else if (k < call->n_in) {
            *at++ = ',';
        }
    }
    *at = '\0';
    return text;
}

/* ---- gradients ---- */

static wf_tensor *apply(const wf_op *op, wf_row_attr a, wf_tensor *x)
{
    return wf_apply(op, &a, sizeof a, 1, x);
}

/* Zeros but where the forward op took its values. */
static void topk_backward(wf_gradient *g)
{
    if (g->dout[0])
        g->din[0] = wf_scatter(g->in[0], g->out[1], g->dout[0]);
}

static void gather_backward(wf_gradient *g)
{
    if (g->want[0])
        g->din[0] = wf_scatter(g->in[0], g->in[1], g->dout[0]);
}

static void scatter_backward(wf_gradient *g)
{
    if (g->want[2])
        g->din[2] = wf_gather(g->dout[0], g->in[1]);
}

static void cumsum_backward(wf_gradient *g)
{
    wf_row_attr a = *(const wf_row_attr *)g->attr;

    a.reverse = !a.reverse;
    g->din[0] = apply(&wf_op_cumsum, a, g->dout[0]);
}

static void triangle_backward(wf_gradient *g)
{
    g->din[0] = apply(&wf_op_triangle, *(const wf_row_attr *)g->attr, g->dout[0]);
}

static void concat_backward(wf_gradient *g)
{
    int dim = ((const wf_row_attr *)g->attr)->dim;
    int64_t first = g->in[0]->dim[dim].size;

    if (g->want[0])
        g->din[0] = wf_slice(g->dout[0], dim, 0, first);
    if (g->want[1])
        g->din[1] = wf_slice(g->dout[0], dim, first, g->dout[0]->dim[dim].size - first);
}

static void pad_backward(wf_gradient *g)
{
    const wf_row_attr *a = g->attr;

    g->din[0] = wf_slice(g->dout[0], a->dim, a->first,
                         g->dout[0]->dim[a->dim].size - a->first - a->count);
}

const wf_op wf_op_topk = {
    WF_OP_ROW(topk),          .save = WF_SAVE_OUT(1), .save_shape = WF_SAVE_IN(0),
    .keep_fp32 = 1 << 1,      .shape = topk_shape,    .reference = {.run = topk_reference},
    .backward = topk_backward};
const wf_op wf_op_gather = {WF_OP_ROW(gather),
                            .save = WF_SAVE_IN(1),
                            .save_shape = WF_SAVE_IN(0),
                            .shape = indexed_shape,
                            .reference = {.run = gather_reference},
                            .backward = gather_backward};
const wf_op wf_op_scatter = {WF_OP_ROW(scatter),
                             .save = WF_SAVE_IN(1),
                             .shapes = 1,
                             .shape = indexed_shape,
                             .reference = {.run = scatter_reference},
                             .backward = scatter_backward};
const wf_op wf_op_one_hot = {WF_OP_ROW(one_hot), .shape = one_hot_shape,
                             .reference = {.run = one_hot_reference}};
const wf_op wf_op_cumsum = {WF_OP_ROW(cumsum), .reference = {.run = cumsum_reference},
                            .backward = cumsum_backward};
const wf_op wf_op_triangle = {WF_OP_ROW(triangle), .reference = {.run = triangle_reference},
                              .backward = triangle_backward};
const wf_op wf_op_concat = {WF_OP_ROW(concat),
                            .write_signature = dim_signature,
                            .shape = concat_shape,
                            .save_shape = WF_SAVE_IN(0) | WF_SAVE_IN(1),
                            .reference = {.run = concat_reference},
                            .backward = concat_backward};
const wf_op wf_op_pad = {WF_OP_ROW(pad), .write_signature = dim_signature, .shape = pad_shape,
                         .reference = {.run = pad_reference}, .backward = pad_backward};

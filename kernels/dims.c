/*
 * kernels/dims.c - ops on dims that the caller names: their signatures are written for each
 * call.
 *
 *     permute      y = x with its dims in another order (transpose: two of them exchanged)
 *     slice        y = the indices [first, first + count) of one dim; slice_grad puts them back
 *     sum          y = sum of x over one dim, in the dim's chunks; sum_expand is its transpose
 *
 * A mean is a sum, scaled. The CPU's kernels are in kernels/cpu/dims.c.
 */
#include "kernels/dims_internal.h"
#include <inttypes.h>

/* Returns the letter of a dim: as in ops.def, b is the first one. */
static char letter(int dim)
{
    return "bijklm"[dim];
}

/* Writes the letters of dims 0 .. ndim - 1, `mark` after that of dim `at`; returns the end. */
static char *write_dims(char *text, int ndim, int at, const char *mark)
{
    for (int d = 0; d < ndim; d++) {
        *text++ = letter(d);
        for (const char *m = d == at ? mark : ""; *m; m++)
            *text++ = *m;
    }
    return text;
}

static char *write_text(char *text, const char *more)
{
    while (*more)
        *text++ = *more++;
    *text = '\0';
    return text;
}

bool wf_has_dim(const wf_tensor *x, const char *op, int dim)
{
    if (!x)
        return false;
    if (dim < 0 || dim >= x->ndim)
        wf_fail(x->ctx, WF_ESHAPE, "%s: dim %d of a tensor with %d dims; they count from 0", op,
                dim, x->ndim);
    return dim >= 0 && dim < x->ndim;
}

/* ---- permute ---- */

wf_tensor *wf_permute(wf_tensor *x, const int *order)
{
    wf_permute_attr a = {{0}};
    unsigned seen = 0;

    if (!x)
        return NULL;
    for (int d = 0; d < x->ndim; d++) {
        if (!wf_has_dim(x, "permute", order[d]))
            return NULL;
        seen |= 1u << order[d];
        a.order[d] = (int8_t)order[d];
    }
    if (seen != (1u << x->ndim) - 1) {
        wf_fail(x->ctx, WF_ESHAPE,
                "permute: the order of %d dims names one of them twice; it takes each once",
                x->ndim);
        return NULL;
    }
    return wf_apply(&wf_op_permute, &a, sizeof a, 1, x);
}

wf_tensor *wf_transpose(wf_tensor *x, int dim0, int dim1)
{
    int order[WF_MAX_DIMS];

    if (!wf_has_dim(x, "transpose", dim0) || !wf_has_dim(x, "transpose", dim1))
        return NULL;
    for (int d = 0; d < x->ndim; d++)
        order[d] = d == dim0 ? dim1 : d == dim1 ? dim0 : d;
    return wf_permute(x, order);
}

static const char *permute_signature(const wf_call *call, char *text)
{
    const wf_permute_attr *a = call->attr;
    int ndim = call->in[0]->ndim;
    char *at = write_text(write_dims(text, ndim, -1, ""), "->");

    for (int d = 0; d < ndim; d++)
        *at++ = letter(a->order[d]);
    *at = '\0';
    return text;
}

static void permute_backward(wf_gradient *g)
{
    const wf_permute_attr *a = g->attr;
    int back[WF_MAX_DIMS];

    for (int d = 0; d < g->dout[0]->ndim; d++)
        back[a->order[d]] = d;
    g->din[0] = wf_permute(g->dout[0], back);
}

static wf_status permute_reference(const wf_call *call, void *workspace)
{
    const wf_permute_attr *a = call->attr;
    const wf_tensor *x = call->in[0], *y = call->out[0];
    int64_t step[WF_MAX_DIMS];

    (void)workspace;
    wf_permute_steps(a, x, step);
    wf_copy_by_steps(x, y, step);
    return WF_OK;
}

/* ---- slice ---- */

wf_tensor *wf_slice(wf_tensor *x, int dim, int64_t first, int64_t count)
{
    wf_slice_attr a = {.dim = (int8_t)dim, .first = first, .count = count};

    return wf_has_dim(x, "slice", dim) ? wf_apply(&wf_op_slice, &a, sizeof a, 1, x) : NULL;
}

wf_tensor *wf_slice_grad(wf_tensor *like, wf_tensor *dy, int dim, int64_t first)
{
    wf_slice_attr a = {.dim = (int8_t)dim, .first = first};

    return wf_has_dim(like, "slice_grad", dim)
               ? wf_apply(&wf_op_slice_grad, &a, sizeof a, 2, like, dy)
               : NULL;
}

/* Checks that the indices [first, first + count) of `whole` are whole grains of its dim. */
static wf_status check_slice(const wf_call *call, const wf_tensor *whole, int64_t count)
{
    const wf_slice_attr *a = call->attr;
    const wf_dim *dim = &whole->dim[a->dim];

    if (a->first >= 0 && count >= 0 && a->first <= dim->size - count &&
        a->first % dim->grain == 0 && count % dim->grain == 0)
        return WF_OK;
    return wf_fail(call->ctx, WF_ESHAPE,
                   "%s: %" PRId64 " indices from %" PRId64 " on of dim %d, which has %" PRId64
                   " in grains of %" PRId64 "; take whole grains inside of it",
                   call->op->name, count, a->first, a->dim, dim->size, dim->grain);
}

/* "bi!j->bi!j" */
static const char *slice_signature(const wf_call *call, char *text)
{
    const wf_slice_attr *a = call->attr;
    int ndim = call->in[0]->ndim;
    char *at = write_text(write_dims(text, ndim, a->dim, "!"), "->");

    write_text(write_dims(at, ndim, a->dim, "!"), "");
    return text;
}

/* "bi!j,bz!j->bi!j" */
static const char *slice_grad_signature(const wf_call *call, char *text)
{
    const wf_slice_attr *a = call->attr;
    int ndim = call->in[0]->ndim;
    char *at = write_text(write_dims(text, ndim, a->dim, "!"), ",");
    char *dy = at;

    at = write_text(write_dims(at, ndim, a->dim, "!"), "->");
    dy[a->dim] = 'z';
    write_text(write_dims(at, ndim, a->dim, "!"), "");
    return text;
}

static wf_status slice_shape(const wf_call *call, int out, int *ndim, wf_dim *dims)
{
    const wf_slice_attr *a = call->attr;
    const wf_tensor *x = call->in[0];

    (void)out;
    *ndim = x->ndim;
    for (int d = 0; d < x->ndim; d++)
        dims[d] = x->dim[d];
    dims[a->dim].size = a->count;
    return check_slice(call, x, a->count);
}

static wf_status slice_grad_shape(const wf_call *call, int out, int *ndim, wf_dim *dims)
{
    const wf_slice_attr *a = call->attr;
    const wf_tensor *like = call->in[0];
    const wf_dim *part = &call->in[1]->dim[a->dim];

    (void)out;
    *ndim = like->ndim;
    for (int d = 0; d < like->ndim; d++)
        dims[d] = like->dim[d];
    if (part->grain != dims[a->dim].grain || part->chunks != dims[a->dim].chunks)
        return wf_fail(call->ctx, WF_ESHAPE,
                       "slice_grad: dim %d of the slice has grain %" PRId64
                       " and chunks %d, but the whole has grain %" PRId64
                       " and chunks %d; make both with the same wf_dim",
                       a->dim, part->grain, part->chunks, dims[a->dim].grain,
                       dims[a->dim].chunks);
    return check_slice(call, like, part->size);
}

static void slice_backward(wf_gradient *g)
{
    const wf_slice_attr *a = g->attr;

    g->din[0] = wf_slice_grad(g->in[0], g->dout[0], a->dim, a->first);
}

static void slice_grad_backward(wf_gradient *g)
{
    const wf_slice_attr *a = g->attr;

    if (g->want[1])
        g->din[1] = wf_slice(g->dout[0], a->dim, a->first, g->in[1]->dim[a->dim].size);
}

static wf_status slice_reference(const wf_call *call, void *workspace)
{
    wf_slice_rows s = wf_slice_rows_of(call, call->in[0], call->out[0]);
    const double *x = call->in[0]->data;
    double *y = call->out[0]->data;

    (void)workspace;
    for (int64_t o = 0; o < s.outer; o++)
        for (int64_t i = 0; i < s.part; i++)
            y[o * s.part + i] = x[o * s.whole + s.skip + i];
    return WF_OK;
}

static wf_status slice_grad_reference(const wf_call *call, void *workspace)
{
    wf_slice_rows s = wf_slice_rows_of(call, call->out[0], call->in[1]);
    const double *dy = call->in[1]->data;
    double *dx = call->out[0]->data;

    (void)workspace;
    for (int64_t o = 0; o < s.outer; o++)
        for (int64_t i = 0; i < s.whole; i++)
            dx[o * s.whole + i] =
                i >= s.skip && i < s.skip + s.part ? dy[o * s.part + i - s.skip] : 0;
    return WF_OK;
}

/* ---- sum ---- */

wf_tensor *wf_sum(wf_tensor *x, int dim)
{
    wf_dim_attr a = {(int8_t)dim};

    return wf_has_dim(x, "sum", dim) ? wf_apply(&wf_op_sum, &a, sizeof a, 1, x) : NULL;
}

wf_tensor *wf_sum_expand(wf_tensor *y, wf_tensor *like, int dim)
{
    wf_dim_attr a = {(int8_t)dim};

    return wf_has_dim(like, "sum_expand", dim)
               ? wf_apply(&wf_op_sum_expand, &a, sizeof a, 2, y, like)
               : NULL;
}

wf_tensor *wf_mean(wf_tensor *x, int dim)
{
    wf_tensor *sum = wf_sum(x, dim);

    return sum ? wf_scale(sum, 1.0f / (float)x->dim[dim].size) : NULL;
}

/* Writes the letters of dims 0 .. ndim - 1 without that of dim `at`. */
static char *write_without(char *text, int ndim, int at)
{
    for (int d = 0; d < ndim; d++)
        if (d != at)
            *text++ = letter(d);
    *text = '\0';
    return text;
}

static const char *sum_signature(const wf_call *call, char *text)
{
    const wf_dim_attr *a = call->attr;
    int ndim = call->in[0]->ndim;

    write_without(write_text(write_dims(text, ndim, -1, ""), "->"), ndim, a->dim);
    return text;
}

static const char *sum_expand_signature(const wf_call *call, char *text)
{
    const wf_dim_attr *a = call->attr;
    int ndim = call->in[1]->ndim;
    char *at = write_text(write_without(text, ndim, a->dim), ",");

    at = write_text(write_dims(at, ndim, -1, ""), "->");
    write_text(write_dims(at, ndim, -1, ""), "");
    return text;
}

static void sum_backward(wf_gradient *g)
{
    g->din[0] = wf_sum_expand(g->dout[0], g->in[0], ((const wf_dim_attr *)g->attr)->dim);
}

static void sum_expand_backward(wf_gradient *g)
{
    if (g->want[0])
        g->din[0] = wf_sum(g->dout[0], ((const wf_dim_attr *)g->attr)->dim);
}

static wf_status sum_reference(const wf_call *call, void *workspace)
{
    const wf_tensor *x = call->in[0];
    int dim = ((const wf_dim_attr *)call->attr)->dim;
    int64_t outer = wf_extent(x, 0, dim), rows = x->local[dim];
    int64_t n = wf_extent(x, dim + 1, x->ndim);
    double *y = call->out[0]->data;

    (void)workspace;
    for (int64_t i = 0; i < outer * n; i++) {
        const double *at = (const double *)x->data + i / n * rows * n + i % n;

        y[i] = 0;
        for (int64_t r = 0; r < rows; r++)
            y[i] += at[r * n];
    }
    return WF_OK;
}

static wf_status sum_expand_reference(const wf_call *call, void *workspace)
{
    const wf_tensor *y = call->out[0];
    int dim = ((const wf_dim_attr *)call->attr)->dim;
    int64_t rows = y->local[dim], n = wf_extent(y, dim + 1, y->ndim);

    (void)workspace;
    for (int64_t e = 0; e < wf_tensor_local_count(y); e++)
        ((double *)y->data)[e] =
            ((const double *)call->in[0]->data)[e / (rows * n) * n + e % n];
    return WF_OK;
}

const wf_op wf_op_permute = {WF_OP_ROW(permute), .write_signature = permute_signature,
                             .reference = {.run = permute_reference},
                             .backward = permute_backward};
const wf_op wf_op_slice = {
    WF_OP_ROW(slice),     .write_signature = slice_signature,    .save_shape = WF_SAVE_IN(0),
    .shape = slice_shape, .reference = {.run = slice_reference}, .backward = slice_backward};
const wf_op wf_op_slice_grad = {WF_OP_ROW(slice_grad),
                                .write_signature = slice_grad_signature,
                                .shape = slice_grad_shape,
                                .save_shape = WF_SAVE_IN(1),
                                .shapes = 1,
                                .reference = {.run = slice_grad_reference},
                                .backward = slice_grad_backward};
const wf_op wf_op_sum = {WF_OP_ROW(sum), .write_signature = sum_signature,
                         .save_shape = WF_SAVE_IN(0), .reference = {.run = sum_reference},
                         .backward = sum_backward};
const wf_op wf_op_sum_expand = {WF_OP_ROW(sum_expand), .write_signature = sum_expand_signature,
                                .shapes = 1 << 1, .reference = {.run = sum_expand_reference},
                                .backward = sum_expand_backward};

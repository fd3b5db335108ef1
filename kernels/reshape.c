/*
 * kernels/reshape.c - the same elements in the same order under other dims.
 *
 * From the left, dims of both shapes are taken together until their products are equal. Such a
 * group shares nothing with the others. Inside of it the first dim of x and the first dim of y
 * that are not 1 run over the same elements, so an axis may split both where they are cut at
 * the same ones: grain * (product of the dims after it) is alike. All other dims of a group are
 * whole on each rank.
 */
#include "kernels/reshape.h"
#include "kernels/dims_internal.h"
#include "kernels/row_ops.h"
#include <inttypes.h>

static wf_dim dim_of(const wf_reshape_attr *a, int d)
{
    return (wf_dim){a->size[d], a->grain[d], a->chunks[d]};
}

static int64_t product(int ndim, const wf_dim *dims)
{
    int64_t n = 1;

    for (int d = 0; d < ndim; d++)
        n *= dims[d].size;
    return n;
}

/* Writes "bijk" with marks; letter[d] is upper case where the dim has to be whole. */
static char *write_marked(char *at, int ndim, const char *letter)
{
    for (int d = 0; d < ndim; d++) {
        bool whole = letter[d] >= 'A' && letter[d] <= 'Z';

        *at++ = (char)(whole ? letter[d] - 'A' + 'a' : letter[d]);
        if (whole)
            *at++ = '!';
    }
    return at;
}

typedef struct dim_run {
    int first, end; /* dims of one shape */
} dim_run;

/* Ends runs that begin at equal products where the products are next equal. */
static void end_runs(const wf_dim *x, dim_run *a, const wf_dim *y, dim_run *b)
{
    int64_t n = x[a->first].size, m = y[b->first].size;

    a->end = a->first + 1;
    b->end = b->first + 1;
    while (n != m)
        if (n < m)
            n *= x[a->end++].size;
        else
            m *= y[b->end++].size;
}

static bool cut_alike(const wf_dim *x, dim_run a, const wf_dim *y, dim_run b)
{
    return x[a.first].grain * product(a.end - a.first - 1, x + a.first + 1) ==
           y[b.first].grain * product(b.end - b.first - 1, y + b.first + 1);
}

/* Names dims: small letters, alike in both, for those that axes may split. */
static void name_dims(const wf_tensor *x, const wf_reshape_attr *a, char *in, char *out)
{
    wf_dim y[WF_MAX_DIMS];
    bool empty = product(x->ndim, x->dim) == 0;
    dim_run from = {0, 0}, to = {0, 0};

    for (int d = 0; d < WF_MAX_DIMS; d++) {
        in[d] = "BIJKLM"[d];
        out[d] = "NOPQRS"[d];
        y[d] = d < a->ndim ? dim_of(a, d) : wf_dim_width(1);
    }
    while (from.first < x->ndim && to.first < a->ndim) {
        const wf_dim *p = &x->dim[from.first], *q = &y[to.first];

        if (!wf_dim_equal(*p, *q) && (p->size == 1 || q->size == 1)) {
            *(p->size == 1 ? &from.first : &to.first) += 1;
            continue;
        }
        if (empty && p->size != q->size)
            return; /* dims after it have no elements to distinguish */
        end_runs(x->dim, &from, y, &to);
        if (cut_alike(x->dim, from, y, to))
            in[from.first] = out[to.first] = "bijklm"[from.first];
        from.first = from.end;
        to.first = to.end;
    }
}

static const char *reshape_signature(const wf_call *call, char *text)
{
    const wf_reshape_attr *a = call->attr;
    char in[WF_MAX_DIMS], out[WF_MAX_DIMS];
    char *at;

    name_dims(call->in[0], a, in, out);
    at = write_marked(text, call->in[0]->ndim, in);
    *at++ = '-';
    *at++ = '>';
    *write_marked(at, a->ndim, out) = '\0';
    return text;
}

static wf_status reshape_shape(const wf_call *call, int out, int *ndim, wf_dim *dims)
{
    const wf_reshape_attr *a = call->attr;

    (void)out;
    *ndim = a->ndim;
    for (int d = 0; d < a->ndim; d++)
        dims[d] = dim_of(a, d);
    return WF_OK;
}

/* Checks the dims of a result, whose sizes are -1 (one of them) or more. */
static wf_status check_dims(const wf_tensor *x, int ndim, const wf_dim *dims)
{
    if (ndim < 0 || ndim > WF_MAX_DIMS)
        return wf_fail(x->ctx, WF_ESHAPE, "reshape: %d dims; a tensor has 0 to %d", ndim,
                       WF_MAX_DIMS);
    for (int d = 0; d < ndim; d++)
        if (dims[d].size < 0 || dims[d].grain < 1 || dims[d].grain > INT32_MAX ||
            dims[d].size % dims[d].grain ||
            (dims[d].chunks != WF_CHUNKS_1 && dims[d].chunks != WF_CHUNKS_8 &&
             dims[d].chunks != WF_CHUNKS_EACH && dims[d].chunks != WF_CHUNKS_EXPERTS))
            return wf_fail(x->ctx, WF_ESHAPE,
                           "reshape: dim %d would have size %" PRId64 ", grain %" PRId64
                           " and chunks %d; make it with wf_dim_width, wf_dim_chunked, "
                           "wf_dim_heads or wf_dim_batch",
                           d, dims[d].size, dims[d].grain, dims[d].chunks);
    if (product(ndim, dims) != product(x->ndim, x->dim))
        return wf_fail(x->ctx, WF_ESHAPE,
                       "reshape: %" PRId64 " elements in dims for %" PRId64
                       "; the product of the sizes stays the same",
                       product(x->ndim, x->dim), product(ndim, dims));
    return WF_OK;
}

/* Fills in a size of -1: what the others leave of x. */
static void fill_in(const wf_tensor *x, int ndim, wf_dim *dims)
{
    int open = -1;
    int64_t others = 1;

    for (int d = 0; d < ndim; d++)
        if (dims[d].size == -1)
            open = d;
        else
            others *= dims[d].size;
    if (open >= 0 && others > 0 && product(x->ndim, x->dim) % others == 0)
        dims[open].size = product(x->ndim, x->dim) / others;
}

wf_tensor *wf_reshape(wf_tensor *x, int ndim, const wf_dim *dims)
{
    wf_dim whole[WF_MAX_DIMS];
    wf_reshape_attr a;

    if (!x)
        return NULL;
    for (int d = 0; d < ndim && d < WF_MAX_DIMS; d++)
        whole[d] = dims[d];
    if (ndim >= 0 && ndim <= WF_MAX_DIMS)
        fill_in(x, ndim, whole);
    if (check_dims(x, ndim, whole) != WF_OK)
        return NULL;
    memset(&a, 0, sizeof a);
    a.ndim = (int8_t)ndim;
    for (int d = 0; d < ndim; d++) {
        a.size[d] = whole[d].size;
        a.grain[d] = (int32_t)whole[d].grain;
        a.chunks[d] = (int8_t)whole[d].chunks;
    }
    return wf_apply(&wf_op_reshape, &a, sizeof a, 1, x);
}

static void reshape_backward(wf_gradient *g)
{
    g->din[0] = wf_reshape(g->dout[0], g->in[0]->ndim, g->in[0]->dim);
}

wf_tensor *wf_unsqueeze(wf_tensor *x, int dim)
{
    wf_dim dims[WF_MAX_DIMS];

    if (!x)
        return NULL;
    if (dim < 0 || dim > x->ndim || x->ndim >= WF_MAX_DIMS) {
        wf_fail(x->ctx, WF_ESHAPE,
                "unsqueeze: a new dim %d of a tensor with %d dims; it is one of 0 to %d, and a "
                "tensor has at most %d",
                dim, x->ndim, x->ndim, WF_MAX_DIMS);
        return NULL;
    }
    for (int d = 0; d <= x->ndim; d++)
        dims[d] = d == dim ? wf_dim_width(1) : x->dim[d - (d > dim)];
    return wf_reshape(x, x->ndim + 1, dims);
}

wf_tensor *wf_squeeze(wf_tensor *x, int dim)
{
    wf_dim dims[WF_MAX_DIMS];

    if (!wf_has_dim(x, "squeeze", dim))
        return NULL;
    if (x->dim[dim].size != 1) {
        wf_fail(x->ctx, WF_ESHAPE, "squeeze: dim %d has size %" PRId64 "; only 1 goes", dim,
                x->dim[dim].size);
        return NULL;
    }
    for (int d = 0; d < x->ndim - 1; d++)
        dims[d] = x->dim[d + (d >= dim)];
    return wf_reshape(x, x->ndim - 1, dims);
}

wf_tensor *wf_flatten(wf_tensor *x, int first, int last)
{
    wf_dim dims[WF_MAX_DIMS], *joined = &dims[first < 0 ? 0 : first];
    int64_t inner;

    if (!wf_has_dim(x, "flatten", first) || !wf_has_dim(x, "flatten", last))
        return NULL;
    if (last < first) {
        wf_fail(x->ctx, WF_ESHAPE, "flatten: dims %d to %d; the first comes first", first,
                last);
        return NULL;
    }
    inner = product(last - first, x->dim + first + 1);
    for (int d = 0; d < first; d++)
        dims[d] = x->dim[d];
    *joined = x->dim[first];
    joined->size *= inner;
    joined->grain *= inner > 0 ? inner : 1;
    if (joined->chunks == WF_CHUNKS_EACH && inner > 1)
        joined->chunks = WF_CHUNKS_8;
    for (int d = last + 1; d < x->ndim; d++)
        dims[d - (last - first)] = x->dim[d];
    return wf_reshape(x, x->ndim - (last - first), dims);
}

wf_tensor *wf_stack(int count, wf_tensor *const *x, int dim)
{
    wf_tensor *y = count > 0 ? wf_unsqueeze(x[0], dim) : NULL;

    for (int i = 1; i < count && y; i++)
        y = wf_concat(2, (wf_tensor *const[]){y, wf_unsqueeze(x[i], dim)}, dim);
    return y;
}

const wf_op wf_op_reshape = {WF_OP_ROW(reshape), .write_signature = reshape_signature,
                             .save_shape = WF_SAVE_IN(0), .shape = reshape_shape,
                             .backward = reshape_backward};

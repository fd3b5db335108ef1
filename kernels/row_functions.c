/* kernels/row_functions.c - the functions of kernels/row_ops.h, over the rows of
   kernels/row_ops.c. */
#include "kernels/dims_internal.h"
#include "kernels/row_ops.h"
#include "kernels/row_ops_internal.h"
#include <inttypes.h>

static wf_tensor *apply(const wf_op *op, wf_row_attr a, wf_tensor *x)
{
    return wf_apply(op, &a, sizeof a, 1, x);
}

static bool has_rows(wf_tensor *x, const char *op)
{
    return wf_has_dim(x, op, x ? x->ndim - 1 : 0);
}

static void ordered(wf_tensor *x, int64_t k, bool least, wf_tensor **values, wf_tensor **index)
{
    const wf_row_attr a = {.count = k, .reverse = least};
    wf_call call = {.op = &wf_op_topk,
                    .ctx = x ? x->ctx : NULL,
                    .n_in = 1,
                    .in = {x},
                    .n_out = 2,
                    .attr = &a,
                    .attr_size = sizeof a};

    *values = *index = NULL;
    if (!has_rows(x, "topk"))
        return;
    wf_dispatch(&call);
    *values = call.out[0];
    *index = call.out[1];
}

void wf_topk(wf_tensor *x, int64_t k, wf_tensor **values, wf_tensor **index)
{
    ordered(x, k, false, values, index);
}

void wf_sort(wf_tensor *x, bool descending, wf_tensor **values, wf_tensor **index)
{
    ordered(x, x && x->ndim ? x->dim[x->ndim - 1].size : 0, !descending, values, index);
}

/* Returns the first in order of a dim, or its index, without that dim. */
static wf_tensor *first_of(wf_tensor *x, int dim, bool least, bool index)
{
    wf_tensor *out[2];

    if (!wf_has_dim(x, "max", dim))
        return NULL;
    ordered(wf_transpose(x, dim, x->ndim - 1), 1, least, &out[0], &out[1]);
    if (!out[0])
        return NULL;
    return wf_sum(wf_transpose(out[index], dim, x->ndim - 1), dim);
}

wf_tensor *wf_max(wf_tensor *x, int dim)
{
    return first_of(x, dim, false, false);
}

wf_tensor *wf_min(wf_tensor *x, int dim)
{
    return first_of(x, dim, true, false);
}

wf_tensor *wf_argmax(wf_tensor *x, int dim)
{
    return first_of(x, dim, false, true);
}

wf_tensor *wf_gather(wf_tensor *x, wf_tensor *index)
{
    return wf_apply(&wf_op_gather, NULL, 0, 2, x, index);
}

wf_tensor *wf_scatter(wf_tensor *like, wf_tensor *index, wf_tensor *values)
{
    return wf_apply(&wf_op_scatter, NULL, 0, 3, like, index, values);
}

wf_tensor *wf_one_hot(wf_tensor *index, int64_t classes)
{
    return apply(&wf_op_one_hot, (wf_row_attr){.count = classes}, index);
}

wf_tensor *wf_cumsum(wf_tensor *x)
{
    return apply(&wf_op_cumsum, (wf_row_attr){.reverse = false}, x);
}

wf_tensor *wf_tril(wf_tensor *x, int64_t diagonal)
{
    return apply(&wf_op_triangle, (wf_row_attr){.first = diagonal}, x);
}

wf_tensor *wf_triu(wf_tensor *x, int64_t diagonal)
{
    return apply(&wf_op_triangle, (wf_row_attr){.first = diagonal, .reverse = true}, x);
}

wf_tensor *wf_concat(int count, wf_tensor *const *x, int dim)
{
    const wf_row_attr a = {.dim = (int8_t)dim};
    wf_tensor *y = count > 0 ? x[0] : NULL;

    if (!wf_has_dim(y, "concat", dim))
        return NULL;
    for (int i = 1; i < count; i++)
        y = wf_apply(&wf_op_concat, &a, sizeof a, 2, y, x[i]);
    return y;
}

void wf_split(wf_tensor *x, int dim, int64_t each, int count, wf_tensor **parts)
{
    bool good = wf_has_dim(x, "split", dim);

    if (good && (each < 1 || (x->dim[dim].size + each - 1) / each != count)) {
        wf_fail(x->ctx, WF_ESHAPE,
                "split: %d parts of %" PRId64 " each of a dim of %" PRId64
                "; it is ceil(size / each) parts",
                count, each, x->dim[dim].size);
        good = false;
    }
    for (int i = 0; i < count; i++) {
        int64_t left = good ? x->dim[dim].size - i * each : 0;

        parts[i] = good ? wf_slice(x, dim, i * each, left < each ? left : each) : NULL;
    }
}

wf_tensor *wf_pad(wf_tensor *x, int dim, int64_t before, int64_t after, float value)
{
    const wf_row_attr a = {.dim = (int8_t)dim, .first = before, .count = after, .value = value};

    return wf_has_dim(x, "pad", dim) ? apply(&wf_op_pad, a, x) : NULL;
}

wf_tensor *wf_expand(wf_tensor *y, wf_tensor *like, int dim)
{
    return wf_sum_expand(y, like, dim);
}

wf_tensor *wf_variance(wf_tensor *x, int dim, int64_t correction)
{
    wf_tensor *mean = wf_mean(x, dim), *centred;
    int64_t n;

    if (!mean)
        return NULL;
    n = x->dim[dim].size - correction;
    if (n < 1 || correction < 0) {
        wf_fail(x->ctx, WF_EINVAL,
                "variance: of %" PRId64 " elements, less %" PRId64
                "; the sum is divided by the difference, which has to be 1 or more",
                x->dim[dim].size, correction);
        return NULL;
    }
    centred = wf_sub(x, wf_sum_expand(mean, x, dim));
    return wf_scale(wf_sum(wf_mul(centred, centred), dim), 1.0f / (float)n);
}

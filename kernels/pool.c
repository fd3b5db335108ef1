/* kernels/pool.c - pooling, more pixels, transposed convolutions and group norms, each made of
   ops that are there; see the header. */
#include "kernels/pool.h"
#include "core/context.h"
#include "kernels/ops.h"
#include "kernels/parameters.h"
#include "kernels/reshape.h"
#include "kernels/row_ops.h"
#include <inttypes.h>
#include <math.h>

static bool is_picture(const wf_tensor *x, const char *op)
{
    if (x && (x->ndim == 3 || x->ndim == 4))
        return true;
    if (x)
        wf_fail(x->ctx, WF_ESHAPE,
                "%s: a tensor with %d dims; it is [batch, length, channels] or [batch, rows, "
                "columns, channels]",
                op, x->ndim);
    return false;
}

/* ---- pooling ---- */

/* The options of a pool with its strides filled in; false, and the reason, where they are
   none. */
static bool pool_options(const wf_tensor *x, const char *op, const int *kernel,
                         const wf_conv_options *from, wf_conv_options *o)
{
    if (!is_picture(x, op))
        return false;
    *o = from ? *from : (wf_conv_options){.groups = 1};
    for (int i = 0; i < x->ndim - 2; i++) {
        if (kernel[i] < 1 || o->padding[i] < 0 || o->padding[i] > kernel[i] / 2) {
            wf_fail(
                x->ctx, WF_ESHAPE,
                "%s: a kernel of %d with a padding of %d along dim %d; a kernel is 1 or more, "
                "and a padding 0 to half of it",
                op, kernel[i], o->padding[i], i + 1);
            return false;
        }
        if (!o->stride[i])
            o->stride[i] = kernel[i];
    }
    if (o->groups > 1) {
        wf_fail(x->ctx, WF_EINVAL, "%s: %d groups; a pool has none: leave them 0", op,
                o->groups);
        return false;
    }
    return true;
}

wf_tensor *wf_avg_pool(wf_tensor *x, const int *kernel, const wf_conv_options *options)
{
    wf_conv_options o;
    wf_tensor *p =
        pool_options(x, "avg_pool", kernel, options, &o) ? wf_patches(x, kernel, &o) : NULL;

    return p ? wf_mean(p, p->ndim - 1) : NULL;
}

wf_tensor *wf_max_pool(wf_tensor *x, const int *kernel, const wf_conv_options *options)
{
    wf_conv_options o;
    wf_tensor *p;

    if (!pool_options(x, "max_pool", kernel, options, &o))
        return NULL;
    for (int i = 0, dims = x->ndim - 2; i < dims && x; i++) {
        if (o.padding[i])
            x = wf_pad(x, i + 1, o.padding[i], o.padding[i], -INFINITY);
        o.padding[i] = 0;
    }
    p = wf_patches(x, kernel, &o);
    return p ? wf_max(p, p->ndim - 1) : NULL;
}

/* Returns y with dim i + 1, new between those of x, as part of dim i. */
static wf_tensor *join_phases(wf_tensor *y, const wf_tensor *x, int i)
{
    wf_dim dims[WF_MAX_DIMS];

    if (!y)
        return NULL;
    for (int d = 0; d < x->ndim; d++)
        dims[d] = x->dim[d];
    dims[i].size *= y->dim[i + 1].size;
    return wf_reshape(y, x->ndim, dims);
}

/* Returns x with each index of dim i several times. */
static wf_tensor *repeat(wf_tensor *x, int i, int times)
{
    wf_tensor *one = wf_unsqueeze(x, i + 1), *y = one;

    while (y && y->dim[i + 1].size < times) {
        int64_t left = times - y->dim[i + 1].size, has = y->dim[i + 1].size;
        wf_tensor *more = has <= left ? y : left == 1 ? one : wf_slice(y, i + 1, 0, left);

        y = wf_concat(2, (wf_tensor *const[]){y, more}, i + 1);
    }
    return join_phases(y, x, i);
}

/* Returns x with lines between the indices of dim i: of each index, points on the lines to the
   one before and to the one after. Ends are repeated beyond them. */
static wf_tensor *interpolate(wf_tensor *x, int i, int times)
{
    const int64_t n = x->dim[i].size;
    wf_tensor *before = x, *after = x, *y = NULL;

    if (n > 1) {
        before = wf_concat(
            2, (wf_tensor *const[]){wf_slice(x, i, 0, 1), wf_slice(x, i, 0, n - 1)}, i);
        after = wf_concat(
            2, (wf_tensor *const[]){wf_slice(x, i, 1, n - 1), wf_slice(x, i, n - 1, 1)}, i);
    }
    for (int k = 0; k < times; k++) {
        float at = ((float)k + 0.5f) / (float)times - 0.5f, share = fabsf(at);
        wf_tensor *point = x;

        if (share > 0)
            point = wf_add(wf_scale(x, 1 - share), wf_scale(at < 0 ? before : after, share));
        point = wf_unsqueeze(point, i + 1);
        y = k ? wf_concat(2, (wf_tensor *const[]){y, point}, i + 1) : point;
    }
    return join_phases(y, x, i);
}

static wf_tensor *enlarge(wf_tensor *x, const char *op, const int *factor,
                          wf_tensor *(*one)(wf_tensor *x, int dim, int times))
{
    wf_tensor *y = x;

    if (!is_picture(x, op))
        return NULL;
    for (int i = 1; i < x->ndim - 1 && y; i++) {
        int times = factor[i - 1];

        if (times < 1) {
            wf_fail(x->ctx, WF_EINVAL, "%s: dim %d %d times; a factor is 1 or more", op, i,
                    times);
            return NULL;
        }
        y = times > 1 ? one(y, i, times) : y;
    }
    return y;
}

wf_tensor *wf_upsample(wf_tensor *x, const int *factor)
{
    return enlarge(x, "upsample", factor, repeat);
}

wf_tensor *wf_upsample_linear(wf_tensor *x, const int *factor)
{
    return enlarge(x, "upsample_linear", factor, interpolate);
}

/* ---- transposed convolutions ---- */

/* Refuses a weight and options that do not fit x. */
static bool transposed_fits(const wf_tensor *x, const wf_tensor *weight,
                            const wf_conv_options *o, const int *more)
{
    int last = x->ndim - 1;
    char of[2][192];

    if (weight->ndim != x->ndim || weight->dim[0].size != x->dim[last].size ||
        (o && o->groups > 1)) {
        wf_fail(x->ctx, WF_ESHAPE,
                "conv_transpose: %s, a weight %s and %d groups; the weight is [channels of x, "
                "channels of y, taps..], and groups are 0 or 1",
                wf_tensor_describe(x, of[0], sizeof of[0]),
                wf_tensor_describe(weight, of[1], sizeof of[1]), o ? o->groups : 0);
        return false;
    }
    for (int i = 0; i < x->ndim - 2; i++) {
        int stride = o && o->stride[i] ? o->stride[i] : 1;

        if (more && (more[i] < 0 || more[i] >= stride)) {
            wf_fail(x->ctx, WF_ESHAPE,
                    "conv_transpose: %d indices more of dim %d, whose stride is %d; it is 0 to "
                    "stride - 1",
                    more[i], i + 1, stride);
            return false;
        }
    }
    return true;
}

/* A tensor that has the shape of the result and x's layout: of p, [b, o.., c, taps], a tap. */
static wf_tensor *shape_of_result(wf_tensor *p, const int *kernel, const wf_conv_options *o,
                                  const int *more)
{
    wf_tensor *like = p ? wf_squeeze(wf_slice(p, p->ndim - 1, 0, 1), p->ndim - 1) : NULL;

    for (int i = 0; like && i < like->ndim - 2; i++) {
        int64_t n = like->dim[i + 1].size, stride = o && o->stride[i] ? o->stride[i] : 1;
        int64_t reach = (o && o->dilation[i] ? o->dilation[i] : 1) * (int64_t)(kernel[i] - 1);
        int64_t size = (n - 1) * stride - 2 * (int64_t)(o ? o->padding[i] : 0) + reach + 1 +
                       (more ? more[i] : 0);

        if (size < 1) {
            wf_fail(p->ctx, WF_ESHAPE,
                    "conv_transpose: dim %d of the result would have size %" PRId64
                    "; a smaller padding gives it one",
                    i + 1, size);
            return NULL;
        }
        like = size < n   ? wf_slice(like, i + 1, 0, size)
               : size > n ? wf_pad(like, i + 1, 0, size - n, 0)
                          : like;
    }
    return like;
}

wf_tensor *wf_conv_transpose(wf_tensor *x, wf_tensor *weight, const wf_conv_options *options,
                             const int *more)
{
    static const int channels_first[] = {1, 2, 3};
    int kernel[2] = {1, 1}, order[4];
    wf_dim dims[WF_MAX_DIMS], taps = wf_dim_width(1), channels;
    wf_tensor *p;

    if (!weight || !is_picture(x, "conv_transpose") ||
        !transposed_fits(x, weight, options, more))
        return NULL;
    for (int i = 0; i < x->ndim - 2; i++) {
        kernel[i] = (int)weight->dim[i + 2].size;
        taps.size *= kernel[i];
    }
    channels = weight->dim[1];
    memcpy(order, channels_first, sizeof channels_first);
    order[x->ndim - 1] = 0;
    p = wf_linear(x, wf_flatten(wf_permute(weight, order), 0, x->ndim - 2));
    if (!p)
        return NULL;
    for (int d = 0; d < x->ndim - 1; d++)
        dims[d] = p->dim[d];
    dims[x->ndim - 1] = channels;
    dims[x->ndim] = taps;
    p = wf_reshape(p, x->ndim + 1, dims);
    return wf_patches_grad(shape_of_result(p, kernel, options, more), p, kernel, options);
}

/* ---- group norm ---- */

/* A vector of n equal numbers, which takes no gradient. */
static wf_tensor *filled(wf_context *ctx, int64_t n, float value)
{
    const wf_dim dim = wf_dim_width(n);
    wf_tensor *t =
        wf_tensor_new(ctx, wf_context_device(ctx)->dtype, 1, &dim, NULL, WF_MEMORY_ACTIVATION);

    return t && wf_init_fill(t, value) == WF_OK ? t : NULL;
}

wf_tensor *wf_group_norm(wf_tensor *x, int64_t groups, wf_tensor *weight, wf_tensor *bias,
                         float eps)
{
    static const int groups_first[] = {0, 2, 1, 3};
    wf_dim c, group, each, positions = wf_dim_width(1);
    wf_tensor *y;

    if (!x)
        return NULL;
    c = x->ndim ? x->dim[x->ndim - 1] : wf_dim_width(0);
    if (x->ndim < 2 || groups < 1 || c.size % groups) {
        wf_fail(x->ctx, WF_ESHAPE,
                "group_norm: %" PRId64 " groups of %" PRId64
                " channels of a tensor with %d dims; it is [batch, .., channels], and groups "
                "divide the channels",
                groups, c.size, x->ndim);
        return NULL;
    }
    each = wf_dim_width(c.size / groups);
    group = wf_dim_width(groups);
    if (c.grain == each.size)
        group.chunks = c.chunks; /* ranks may split whole groups */
    for (int d = 1; d < x->ndim - 1; d++)
        positions.size *= x->dim[d].size;
    y = wf_reshape(x, 4, (wf_dim[]){x->dim[0], positions, group, each});
    y = wf_reshape(wf_permute(y, groups_first), 3,
                   (wf_dim[]){x->dim[0], group, wf_dim_width(positions.size * each.size)});
    y = wf_layernorm(y, filled(x->ctx, positions.size * each.size, 1),
                     filled(x->ctx, positions.size * each.size, 0), eps);
    y = wf_reshape(y, 4, (wf_dim[]){x->dim[0], group, positions, each});
    y = wf_reshape(wf_permute(y, groups_first), x->ndim, x->dim);
    y = weight ? wf_mul(y, weight) : y;
    return bias ? wf_bias_add(y, bias) : y;
}

/*
 * kernels/conv.c - convolutions: patches, and products over them.
 *
 *     patches       y[b, o, c, k] = x[b, o * stride - padding + k * dilation, c], or 0 outside
 *     patches_grad  dx[b, i, c] = sum over k of dy[b, o, c, k] where o and k read i
 *
 * A convolution is wf_linear of the patches, with a sum over c and k in the chunks of c. With
 * groups it is a product for each sequence and group, whose weight is repeated over the batch:
 * the weight's gradient is then a chunk per sequence as wf_linear's is.
 */
#include "kernels/conv.h"
#include "kernels/conv_internal.h"
#include "kernels/dims_internal.h"
#include "kernels/reshape.h"
#include <inttypes.h>

#define T double
#include "kernels/conv_loops_internal.h"
#undef T

/* Counts the positions of a kernel along one dim of `size` indices; 0 where it does not fit. */
static int64_t positions(const wf_patch_attr *a, int dim, int64_t size)
{
    int64_t reach = (int64_t)a->dilation[dim] * (a->kernel[dim] - 1) + 1;
    int64_t room = size + 2 * (int64_t)a->padding[dim] - reach;

    return room < 0 ? 0 : room / a->stride[dim] + 1;
}

/* Fills in what is said of a kernel; false, and WF_ESHAPE, where it is none. */
static bool attributes(const wf_tensor *x, const int *kernel, const wf_conv_options *o,
                       wf_patch_attr *a)
{
    int dims = x->ndim - 2;

    if (dims != 1 && dims != 2) {
        wf_fail(x->ctx, WF_ESHAPE,
                "conv: a tensor with %d dims; it is [batch, length, channels] or [batch, rows, "
                "columns, channels]",
                x->ndim);
        return false;
    }
    *a = (wf_patch_attr){{1, 1}, {1, 1}, {0, 0}, {1, 1}};
    for (int i = 0; i < dims; i++) {
        int to = i + 2 - dims; /* the columns are the last dim */

        a->kernel[to] = kernel[i];
        a->stride[to] = o && o->stride[i] ? o->stride[i] : 1;
        a->padding[to] = o ? o->padding[i] : 0;
        a->dilation[to] = o && o->dilation[i] ? o->dilation[i] : 1;
        if (a->kernel[to] < 1 || a->stride[to] < 1 || a->padding[to] < 0 ||
            a->dilation[to] < 1 || positions(a, to, x->dim[i + 1].size) < 1) {
            wf_fail(x->ctx, WF_ESHAPE,
                    "conv: a kernel of %d with stride %d, padding %d and dilation %d along dim "
                    "%d, which has %" PRId64
                    " indices; all but the padding are 1 or more, and it has to fit in once",
                    a->kernel[to], a->stride[to], a->padding[to], a->dilation[to], i + 1,
                    x->dim[i + 1].size);
            return false;
        }
    }
    return true;
}

wf_tensor *wf_patches(wf_tensor *x, const int *kernel, const wf_conv_options *options)
{
    wf_patch_attr a;

    if (!x || !attributes(x, kernel, options, &a))
        return NULL;
    return wf_apply(&wf_op_patches, &a, sizeof a, 1, x);
}

wf_tensor *wf_patches_grad(wf_tensor *like, wf_tensor *dy, const int *kernel,
                           const wf_conv_options *options)
{
    wf_patch_attr a;

    if (!like || !attributes(like, kernel, options, &a))
        return NULL;
    return wf_apply(&wf_op_patches_grad, &a, sizeof a, 2, like, dy);
}

static const char *patches_signature(const wf_call *call, char *text)
{
    (void)text;
    return call->in[0]->ndim == 4 ? "bs!t!c->bm!n!ck!" : "bs!c->bn!ck!";
}

static const char *patches_grad_signature(const wf_call *call, char *text)
{
    (void)text;
    return call->in[0]->ndim == 4 ? "bs!t!c,bm!n!ck!->bs!t!c" : "bs!c,bn!ck!->bs!c";
}

/* Lists the dims of patches of x. */
static void patch_dims(const wf_patch_attr *a, const wf_tensor *x, wf_dim *dims)
{
    int n = x->ndim - 2;

    dims[0] = x->dim[0];
    for (int i = 1; i <= n; i++) {
        dims[i] = x->dim[i];
        dims[i].grain = 1;
        dims[i].size = positions(a, i + 1 - n, x->dim[i].size);
    }
    dims[n + 1] = x->dim[n + 1];
    dims[n + 2] = wf_dim_width((int64_t)a->kernel[0] * a->kernel[1]);
}

static wf_status patches_shape(const wf_call *call, int out, int *ndim, wf_dim *dims)
{
    (void)out;
    *ndim = call->in[0]->ndim + 1;
    patch_dims(call->attr, call->in[0], dims);
    return WF_OK;
}

static wf_status patches_grad_shape(const wf_call *call, int out, int *ndim, wf_dim *dims)
{
    const wf_tensor *x = call->in[0], *dy = call->in[1];
    wf_dim want[WF_MAX_DIMS];

    (void)out;
    patch_dims(call->attr, x, want);
    *ndim = x->ndim;
    for (int d = 0; d < x->ndim + 1; d++) {
        if (d < x->ndim)
            dims[d] = x->dim[d];
        if (!wf_dim_equal(dy->dim[d], want[d]))
            return wf_fail(call->ctx, WF_ESHAPE,
                           "patches_grad: dim %d of operand 1 has size %" PRId64
                           ", grain %" PRId64 " and chunks %d, but such patches have %" PRId64
                           ", %" PRId64 " and %d; give it what has their shape",
                           d, dy->dim[d].size, dy->dim[d].grain, dy->dim[d].chunks,
                           want[d].size, want[d].grain, want[d].chunks);
    }
    return WF_OK;
}

static void patches_backward(wf_gradient *g)
{
    g->din[0] =
        wf_apply(&wf_op_patches_grad, g->attr, sizeof(wf_patch_attr), 2, g->in[0], g->dout[0]);
}

/* Each is the other's transpose. */
static void patches_grad_backward(wf_gradient *g)
{
    if (g->want[1])
        g->din[1] = wf_apply(&wf_op_patches, g->attr, sizeof(wf_patch_attr), 1, g->dout[0]);
}

static wf_status patches_reference(const wf_call *call, void *workspace)
{
    wf_patch_job j = wf_patch_job_of(call, call->in[0], call->out[0]);
    int64_t pixels = j.in[0] * j.in[1], n = j.out[0] * j.out[1];

    (void)workspace;
    for (int64_t i = 0; i < j.batch * n; i++)
        patches_position(&j, i % n,
                         (const double *)call->in[0]->data + i / n * pixels * j.channels,
                         (double *)call->out[0]->data + i / n * n * j.channels * j.taps);
    return WF_OK;
}

static wf_status patches_grad_reference(const wf_call *call, void *workspace)
{
    wf_patch_job j = wf_patch_job_of(call, call->out[0], call->in[1]);
    int64_t pixels = j.in[0] * j.in[1], n = j.out[0] * j.out[1];

    (void)workspace;
    for (int64_t i = 0; i < j.batch * pixels; i++)
        patches_grad_pixel(&j, i % pixels,
                           (const double *)call->in[1]->data +
                               i / pixels * n * j.channels * j.taps,
                           (double *)call->out[0]->data + i / pixels * pixels * j.channels);
    return WF_OK;
}

/* ---- products ---- */

/* y[b, g, o, n] = sum over k of patches[b, g, o, k] weight[g, n, k], a product for each b and
   g; k runs over the channels of a group and the taps. */
static wf_tensor *grouped(wf_tensor *p, wf_tensor *weight, int64_t groups)
{
    const wf_matmul_options transposed = {.transpose_b = true};
    const wf_dim *channels = &p->dim[p->ndim - 2], out = weight->dim[0];
    const wf_dim group = wf_dim_width(groups), each = wf_dim_width(out.size / groups);
    const wf_dim k = wf_dim_width(channels->size / groups * p->dim[p->ndim - 1].size);
    wf_tensor *x, *w, *y;
    wf_dim dims[WF_MAX_DIMS];

    for (int d = 0; d < p->ndim - 2; d++)
        dims[d] = p->dim[d];
    dims[p->ndim - 2] = out;
    x = wf_reshape(p, 4, (wf_dim[]){p->dim[0], wf_dim_width(-1), group, k});
    x = wf_permute(x, (const int[]){0, 2, 1, 3});
    w = wf_reshape(weight, 3, (wf_dim[]){group, each, k});
    w = wf_broadcast_like(w, wf_slice(x, 2, 0, 1));
    y = wf_permute(wf_matmul(x, w, &transposed), (const int[]){0, 2, 1, 3});
    return wf_reshape(y, p->ndim - 1, dims);
}

static int64_t taps_of(const wf_tensor *weight)
{
    int64_t taps = 1;

    for (int d = 2; d < weight->ndim; d++)
        taps *= weight->dim[d].size;
    return taps;
}

wf_tensor *wf_conv_patched(wf_tensor *p, wf_tensor *weight, int groups)
{
    int last = p ? p->ndim - 1 : 0;

    if (!p || !weight)
        return NULL;
    if (last < 3 || weight->ndim < 3 || groups < 1 ||
        weight->dim[1].size * groups != p->dim[last - 1].size || weight->dim[0].size % groups ||
        taps_of(weight) != p->dim[last].size) {
        char of[2][192];

        wf_fail(p->ctx, WF_ESHAPE,
                "conv: patches %s, a weight %s and %d groups; the weight is [n, channels / "
                "groups, taps..], and groups divide both",
                wf_tensor_describe(p, of[0], sizeof of[0]),
                wf_tensor_describe(weight, of[1], sizeof of[1]), groups);
        return NULL;
    }
    if (groups > 1)
        return grouped(p, weight, groups);
    return wf_linear(wf_flatten(p, last - 1, last), wf_flatten(weight, 1, weight->ndim - 1));
}

wf_tensor *wf_conv(wf_tensor *x, wf_tensor *weight, const wf_conv_options *options)
{
    int kernel[2] = {1, 1};

    if (!x || !weight)
        return NULL;
    if (weight->ndim != x->ndim) {
        wf_fail(x->ctx, WF_ESHAPE,
                "conv: a weight with %d dims for a tensor with %d; both have one for each dim "
                "that the kernel moves over, and two more",
                weight->ndim, x->ndim);
        return NULL;
    }
    for (int i = 0; i < weight->ndim - 2 && i < 2; i++)
        kernel[i] = weight->dim[i + 2].size > INT32_MAX ? 0 : (int)weight->dim[i + 2].size;
    return wf_conv_patched(wf_patches(x, kernel, options), weight,
                           options && options->groups ? options->groups : 1);
}

const wf_op wf_op_patches = {WF_OP_ROW(patches),
                             .write_signature = patches_signature,
                             .save_shape = WF_SAVE_IN(0),
                             .shape = patches_shape,
                             .reference = {.run = patches_reference},
                             .backward = patches_backward};
const wf_op wf_op_patches_grad = {WF_OP_ROW(patches_grad),
                                  .write_signature = patches_grad_signature,
                                  .shape = patches_grad_shape,
                                  .shapes = 1,
                                  .reference = {.run = patches_grad_reference},
                                  .backward = patches_grad_backward};

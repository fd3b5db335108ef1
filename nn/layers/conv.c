/* nn/layers/conv.c - convolutions with a weight and a bias. */
#include "nn/layers/conv.h"
#include "kernels/ops.h"

static wf_tensor *forward(wf_nn_module *self, wf_tensor *x)
{
    wf_nn_conv *m = (wf_nn_conv *)self;
    wf_tensor *weight = wf_nn_use(m, m->weight), *y;
    int kernel[2] = {1, 1};

    for (int d = 2; weight && d < weight->ndim; d++)
        kernel[d - 2] = (int)weight->dim[d].size;
    y = wf_nn_at(m, "in", wf_patches(x, kernel, &m->how));
    y = wf_nn_at(m, "sum", wf_conv_patched(y, weight, m->how.groups));
    return m->bias ? wf_bias_add(y, wf_nn_use(m, m->bias)) : y;
}

static const wf_nn_field fields[] = {
    {"weight", WF_NN_PARAMETER, offsetof(wf_nn_conv, weight), 0},
    {"bias", WF_NN_PARAMETER, offsetof(wf_nn_conv, bias), 0},
    {NULL, 0, 0, 0}};

static const wf_nn_type type = {"conv", sizeof(wf_nn_conv), fields, forward, NULL, "in sum"};

static wf_nn_conv *make(wf_context *ctx, const wf_nn_conv_options *o, int dims)
{
    int groups = o->how.groups ? o->how.groups : 1;
    wf_dim shape[4] = {o->out, o->in, wf_dim_width(o->kernel[0]), wf_dim_width(o->kernel[1])};
    wf_nn_conv *m;

    if (o->kernel[0] < 1 || (dims == 2 && o->kernel[1] < 1) || groups < 1 ||
        o->in.size % groups || o->out.size % groups) {
        wf_fail(
            ctx, WF_EINVAL,
            "a convolution with a kernel of %d x %d and %d groups of %lld and %lld channels; "
            "kernels are 1 or more, and groups divide both",
            o->kernel[0], dims == 2 ? o->kernel[1] : 1, groups, (long long)o->in.size,
            (long long)o->out.size);
        return NULL;
    }
    m = wf_nn_new(ctx, &type);
    if (!m)
        return NULL;
    if (groups > 1)
        shape[1] = wf_dim_width(o->in.size / groups);
    m->how = o->how;
    m->how.groups = groups;
    m->weight = wf_nn_parameter_new(ctx, 2 + dims, shape, true);
    wf_nn_init_normal(m->weight, 0, o->deviation);
    if (o->bias)
        m->bias = wf_nn_parameter_new(ctx, 1, &o->out, false);
    return m;
}

wf_nn_conv *wf_nn_conv1d_new(wf_context *ctx, const wf_nn_conv_options *options)
{
    return make(ctx, options, 1);
}

wf_nn_conv *wf_nn_conv2d_new(wf_context *ctx, const wf_nn_conv_options *options)
{
    return make(ctx, options, 2);
}

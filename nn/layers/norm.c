/* nn/layers/norm.c - norms as modules. */
#include "nn/layers/norm.h"
#include "kernels/ops.h"

static wf_tensor *gain(wf_nn_norm *m)
{
    wf_tensor *w = wf_nn_use(m, m->gain);

    return m->offset ? wf_add_constant(w, 1) : w;
}

/* Returns the bias of a LayerNorm, zeros where it has none. */
static wf_tensor *bias(wf_nn_norm *m, wf_tensor *gains)
{
    wf_tensor *zeros;

    if (m->bias || !gains)
        return wf_nn_use(m, m->bias);
    zeros = wf_tensor_new(gains->ctx, wf_context_device(gains->ctx)->dtype, gains->ndim,
                          gains->dim, gains->layout, WF_MEMORY_ACTIVATION);
    if (!zeros || wf_init_fill(zeros, 0) != WF_OK)
        return NULL;
    return zeros->dtype == gains->dtype ? zeros : wf_cast(zeros, gains->dtype);
}

/* Returns the norm of what has passed "in". */
static wf_tensor *normed(wf_nn_norm *m, wf_tensor *x)
{
    wf_tensor *w = gain(m);

    return wf_nn_at(m, "out",
                    m->bias || m->unbiased ? wf_layernorm(x, w, bias(m, w), m->eps)
                                           : wf_rmsnorm(x, w, m->eps));
}

static wf_tensor *forward(wf_nn_module *self, wf_tensor *x)
{
    return normed((wf_nn_norm *)self, wf_nn_at(self, "in", x));
}

/* Returns the norm of *x + dropout(y), which *x becomes; one op where nothing happens at
   "in". */
static wf_tensor *add_and_norm(wf_nn_norm *m, wf_tensor **x, wf_tensor *y, float p, int site)
{
    wf_tensor *sum = NULL, *result, *w;

    if (wf_nn_acts(m, "in")) {
        *x = wf_dropout_add(*x, y, p, site);
        return normed(m, wf_nn_at(m, "in", *x));
    }
    w = gain(m);
    result = m->bias || m->unbiased
                 ? wf_add_layernorm(*x, y, w, bias(m, w), m->eps, p, site, &sum)
                 : wf_add_rmsnorm(*x, y, w, m->eps, p, site, &sum);
    *x = sum;
    wf_nn_at(m, "in", sum); /* for hooks that only look */
    return wf_nn_at(m, "out", result);
}

wf_tensor *wf_nn_add_norm(wf_nn_norm *m, wf_tensor **x, wf_tensor *y, float p, int site)
{
    enum { NORMED, SUM };
    wf_tensor *result[2] = {NULL, NULL};
    const char *outside;

    if (m && *x && y) {
        outside = wf_nn_enter(m);
        result[SUM] = *x;
        result[NORMED] = add_and_norm(m, &result[SUM], y, p, site);
        wf_nn_leave(m, outside, 2, result);
    }
    *x = result[SUM];
    return result[NORMED];
}

static const wf_nn_field fields[] = {{"gain", WF_NN_PARAMETER, offsetof(wf_nn_norm, gain), 0},
                                     {"bias", WF_NN_PARAMETER, offsetof(wf_nn_norm, bias), 0},
                                     {NULL, 0, 0, 0}};

static const wf_nn_type layernorm_type = {
    "layernorm", sizeof(wf_nn_norm), fields, forward, NULL, "in out"};
static const wf_nn_type rmsnorm_type = {"rmsnorm", sizeof(wf_nn_norm), fields, forward, NULL,
                                        "in out"};

static wf_nn_norm *norm(wf_context *ctx, const wf_nn_type *type, wf_dim width, float eps)
{
    wf_nn_norm *m = wf_nn_new(ctx, type);

    if (!m)
        return NULL;
    m->eps = eps;
    m->gain = wf_nn_parameter_new(ctx, 1, &width, false);
    wf_nn_init_fill(m->gain, 1);
    return m;
}

wf_nn_norm *wf_nn_layernorm_new(wf_context *ctx, wf_dim width, float eps)
{
    wf_nn_norm *m = norm(ctx, &layernorm_type, width, eps);

    if (m)
        m->bias = wf_nn_parameter_new(ctx, 1, &width, false);
    return m;
}

wf_nn_norm *wf_nn_layernorm_unbiased_new(wf_context *ctx, wf_dim width, float eps)
{
    wf_nn_norm *m = norm(ctx, &layernorm_type, width, eps);

    if (m)
        m->unbiased = true;
    return m;
}

wf_nn_norm *wf_nn_rmsnorm_new(wf_context *ctx, wf_dim width, float eps)
{
    return norm(ctx, &rmsnorm_type, width, eps);
}

wf_nn_norm *wf_nn_rmsnorm_offset_new(wf_context *ctx, wf_dim width, float eps)
{
    wf_nn_norm *m = norm(ctx, &rmsnorm_type, width, eps);

    if (!m)
        return NULL;
    m->offset = true;
    wf_nn_init_fill(m->gain, 0);
    return m;
}

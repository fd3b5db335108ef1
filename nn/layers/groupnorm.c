/* nn/layers/groupnorm.c - group norms as modules. */
#include "nn/layers/groupnorm.h"
#include "kernels/pool.h"

static wf_tensor *forward(wf_nn_module *self, wf_tensor *x)
{
    wf_nn_groupnorm *m = (wf_nn_groupnorm *)self;

    x = wf_nn_at(m, "in", x);
    return wf_nn_at(
        m, "out",
        wf_group_norm(x, m->groups, wf_nn_use(m, m->gain), wf_nn_use(m, m->bias), m->eps));
}

static const wf_nn_field fields[] = {
    {"gain", WF_NN_PARAMETER, offsetof(wf_nn_groupnorm, gain), 0},
    {"bias", WF_NN_PARAMETER, offsetof(wf_nn_groupnorm, bias), 0},
    {NULL, 0, 0, 0}};

static const wf_nn_type type = {"groupnorm", sizeof(wf_nn_groupnorm), fields, forward, NULL,
                                "in out"};

wf_nn_groupnorm *wf_nn_groupnorm_new(wf_context *ctx, wf_dim channels, int64_t groups,
                                     float eps)
{
    wf_nn_groupnorm *m;

    if (groups < 1 || channels.size % groups) {
        wf_fail(ctx, WF_EINVAL, "a norm of %lld groups of %lld channels: groups divide them",
                (long long)groups, (long long)channels.size);
        return NULL;
    }
    m = wf_nn_new(ctx, &type);
    if (!m)
        return NULL;
    m->groups = groups;
    m->eps = eps;
    m->gain = wf_nn_parameter_new(ctx, 1, &channels, false);
    wf_nn_init_fill(m->gain, 1);
    m->bias = wf_nn_parameter_new(ctx, 1, &channels, false);
    return m;
}

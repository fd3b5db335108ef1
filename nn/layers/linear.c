/* nn/layers/linear.c - y = x W^T + b, or its gelu. Copy this file to add a module. */
#include "nn/layers/linear.h"
#include "kernels/ops.h"
#include <stdlib.h>

enum { TOGETHER = 3 }; /* members of a group, in one op */

/* A bias may join the product where a plan leaves that as it is. */
static bool joins(const wf_nn_linear *m)
{
    return m->bias && !wf_nn_acts(m, "sum");
}

static wf_tensor *finish(wf_nn_linear *m, wf_tensor *y)
{
    y = wf_nn_at(m, "sum", y);
    if (m->gelu)
        return m->bias ? wf_bias_gelu(y, wf_nn_use(m, m->bias)) : wf_gelu(y);
    return m->bias ? wf_bias_add(y, wf_nn_use(m, m->bias)) : y;
}

static wf_tensor *forward(wf_nn_module *self, wf_tensor *x)
{
    wf_nn_linear *m = (wf_nn_linear *)self;
    wf_tensor *weight, *bias, *y;

    x = wf_nn_at(m, "in", x);
    weight = wf_nn_use(m, m->weight);
    if (!joins(m))
        return finish(m, wf_linear(x, weight));
    bias = wf_nn_use(m, m->bias);
    if (m->gelu)
        return wf_linear_bias_gelu(x, weight, bias);
    wf_linear_bias(x, 1, &weight, &bias, &y);
    return y;
}

static const wf_nn_field fields[] = {
    {"weight", WF_NN_PARAMETER, offsetof(wf_nn_linear, weight), 0},
    {"bias", WF_NN_PARAMETER, offsetof(wf_nn_linear, bias), 0},
    {NULL, 0, 0, 0}};

static const wf_nn_type linear_type = {"linear", sizeof(wf_nn_linear), fields, forward, NULL};

wf_nn_linear *wf_nn_linear_new(wf_context *ctx, const wf_nn_linear_options *o)
{
    wf_nn_linear *m = wf_nn_new(ctx, &linear_type);
    wf_dim shape[] = {o->out, o->in};

    if (!m)
        return NULL;
    m->weight = wf_nn_parameter_new(ctx, 2, shape, true);
    wf_nn_init_normal(m->weight, 0, o->deviation);
    m->gelu = o->gelu;
    if (m->weight)
        m->weight->matrix = true;
    if (o->bias)
        m->bias = wf_nn_parameter_new(ctx, 1, &o->out, false);
    return m;
}

static const wf_nn_field group_fields[] = {{"member", WF_NN_MEMBERS,
                                            offsetof(wf_nn_linear_group, member),
                                            offsetof(wf_nn_linear_group, count)},
                                           {NULL, 0, 0, 0}};

static const wf_nn_type group_type = {"linear_group", sizeof(wf_nn_linear_group), group_fields,
                                      NULL, NULL};

wf_nn_linear_group *wf_nn_linear_group_new(wf_context *ctx, int count, const char *const *name,
                                           const wf_nn_linear_options *options)
{
    wf_nn_linear_group *m;

    if (count < 1) {
        wf_fail(ctx, WF_EINVAL, "a group of %d linears: it has at least 1", count);
        return NULL;
    }
    m = wf_nn_new(ctx, &group_type);
    if (!m)
        return NULL;
    m->member = calloc((size_t)count, sizeof *m->member);
    if (!m->member) {
        wf_fail(ctx, WF_ENOMEM, "no memory for a group of %d linears", count);
        wf_nn_free(&m->base);
        return NULL;
    }
    for (int i = 0; i < count; i++) {
        wf_nn_linear *member = wf_nn_linear_new(ctx, &options[i]);

        if (!member)
            break;
        member->base.name = name[i];
        m->member[m->count++] = &member->base;
    }
    return m;
}

/* Whether the biases of these members join their products in one op. */
static bool all_join(wf_nn_module *const *member, int count)
{
    bool all = count != 2;

    for (int i = 0; i < count; i++) {
        const wf_nn_linear *m = (const wf_nn_linear *)member[i];

        all = all && joins(m) && !m->gelu;
    }
    return all;
}

/* Up to three members in one op. */
static void call_together(wf_nn_module *const *member, int count, wf_tensor *x, wf_tensor **y)
{
    wf_tensor *weight[TOGETHER], *bias[TOGETHER];

    for (int i = 0; i < count; i++)
        weight[i] = wf_nn_use(member[i], ((wf_nn_linear *)member[i])->weight);
    if (all_join(member, count)) {
        for (int i = 0; i < count; i++)
            bias[i] = wf_nn_use(member[i], ((wf_nn_linear *)member[i])->bias);
        wf_linear_bias(x, count, weight, bias, y);
        return;
    }
    wf_linear_group(x, count, weight, y);
    for (int i = 0; i < count; i++)
        y[i] = finish((wf_nn_linear *)member[i], y[i]);
}

void wf_nn_call_group(wf_nn_linear_group *m, wf_tensor *x, wf_tensor **y)
{
    const char *outside;
    int count = (int)m->count;

    for (int i = 0; i < count; i++)
        y[i] = NULL;
    if (!x)
        return;
    outside = wf_nn_enter(m);
    for (int i = 0; i < count; i += TOGETHER) {
        int n = count - i < TOGETHER ? count - i : TOGETHER;

        call_together(m->member + i, n, wf_nn_at(m, "in", x), y + i);
    }
    wf_nn_leave(m, outside, count, y);
}

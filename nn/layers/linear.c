/* nn/layers/linear.c - y = x W^T + b, or its gelu. Copy this file to add a module. */
#include "nn/layers/linear_internal.h"
#include "nn/numbers_internal.h"
#include "core/later.h"
#include "kernels/elementwise_ops.h"
#include "kernels/linear_sum.h"
#include "kernels/ops.h"
#include <math.h>
#include <stdlib.h>

enum { TOGETHER = 3 }; /* members of a group, in one op */

bool wf_nn_leaves_product(const wf_nn_linear *m)
{
    return !m->lora.a && !(m->cap > 0) && !wf_nn_acts(m, "sum");
}

/* Returns whether the bias joins the product. */
static bool joins(const wf_nn_linear *m)
{
    return m->bias && wf_nn_leaves_product(m);
}

wf_tensor *wf_nn_soft_cap(wf_tensor *x, float cap)
{
    return cap > 0 ? wf_scale(wf_tanh(wf_scale(x, 1 / cap)), cap) : x;
}

static wf_tensor *finish(wf_nn_linear *m, wf_tensor *y)
{
    y = wf_nn_at(m, "sum", y);
    if (m->gelu)
        return m->bias ? wf_bias_gelu(y, wf_nn_use(m, m->bias)) : wf_gelu(y);
    if (m->bias)
        y = wf_bias_add(y, wf_nn_use(m, m->bias));
    return wf_nn_soft_cap(y, m->cap);
}

/* Returns x after "in" as an adapter takes it: its gradient may be complete where that of the
   weight is not. */
static wf_tensor *for_adapter(void *module, wf_tensor *x, wf_tensor *in)
{
    wf_tensor *pair[] = {x, in};

    wf_nn_at_many(module, "lora_in", 2, pair);
    return pair[1];
}

static wf_tensor *dropped(const wf_nn_linear *m, wf_tensor *x)
{
    return m->lora.dropout > 0 ? wf_dropout(x, m->lora.dropout, m->lora.site) : x;
}

static wf_tensor *scaled(const wf_nn_linear *m, wf_tensor *u)
{
    return m->lora.scale != 1 ? wf_scale(u, m->lora.scale) : u;
}

wf_tensor *wf_nn_adapter_scaled(wf_nn_linear *m, wf_tensor *u)
{
    bool partial = u && wf_tensor_is_partial(u);

    if (!partial)
        u = scaled(m, u);
    u = wf_nn_at(m, "lora", u);
    return partial ? scaled(m, u) : u;
}

wf_tensor *wf_nn_adapter_of(wf_nn_linear *m, wf_tensor *x, wf_tensor *in)
{
    wf_tensor *u = wf_linear(dropped(m, for_adapter(m, x, in)), wf_nn_use(m, m->lora.a));

    return wf_nn_adapter_scaled(m, u);
}

/* Computes x W^T + u B^T, or where u is NULL x W^T: a product whose rows may be asked for block
   by block where a plan sums it over ranks. */
static wf_tensor *product(wf_nn_linear *m, wf_tensor *in, wf_tensor *weight, wf_tensor *u,
                          wf_tensor *b)
{
    const bool last = wf_results_later(m->base.ctx, wf_nn_acts(m, "sum"));
    wf_tensor *y = u ? wf_linear_sum(in, weight, u, b) : wf_linear(in, weight);

    wf_results_later(m->base.ctx, last);
    return y;
}

/* x W^T + scale (x A^T) B^T. */
static wf_tensor *adapted(wf_nn_linear *m, wf_tensor *x, wf_tensor *in, wf_tensor *weight)
{
    wf_tensor *u = wf_nn_adapter_of(m, x, in);

    return u ? product(m, in, weight, u, wf_nn_use(m, m->lora.b)) : NULL;
}

static wf_tensor *forward(wf_nn_module *self, wf_tensor *outside)
{
    wf_nn_linear *m = (wf_nn_linear *)self;
    wf_tensor *x = wf_nn_at(m, "in", outside), *weight, *bias, *y;

    weight = wf_nn_use(m, m->weight);
    if (m->lora.a)
        return finish(m, adapted(m, outside, x, weight));
    if (!joins(m))
        return finish(m, product(m, x, weight, NULL, NULL));
    bias = wf_nn_use(m, m->bias);
    if (m->gelu)
        return wf_linear_bias_gelu(x, weight, bias);
    wf_linear_bias(x, 1, &weight, &bias, &y);
    return y;
}

static const wf_nn_field fields[] = {
    {"weight", WF_NN_PARAMETER, offsetof(wf_nn_linear, weight), 0},
    {"bias", WF_NN_PARAMETER, offsetof(wf_nn_linear, bias), 0},
    {"lora_a", WF_NN_PARAMETER, offsetof(wf_nn_linear, lora.a), 0},
    {"lora_b", WF_NN_PARAMETER, offsetof(wf_nn_linear, lora.b), 0},
    {NULL, 0, 0, 0}};

static const wf_nn_type linear_type = {"linear", sizeof(wf_nn_linear), fields, forward,
                                       NULL,     "in lora_in lora sum"};

wf_nn_linear *wf_nn_linear_new(wf_context *ctx, const wf_nn_linear_options *o)
{
    const wf_nn_number *numbers = WF_NN_NUMBERS({"deviation", o->deviation}, {"cap", o->cap});
    wf_nn_linear *m = wf_nn_numbers_check(ctx, "a linear", numbers) == WF_OK
                          ? wf_nn_new(ctx, &linear_type)
                          : NULL;
    wf_dim shape[] = {o->out, o->in};

    if (!m)
        return NULL;
    m->weight = wf_nn_parameter_new(ctx, 2, shape, true);
    wf_nn_init_normal(m->weight, 0, o->deviation);
    m->gelu = o->gelu;
    m->cap = o->cap;
    if (m->weight)
        m->weight->matrix = true;
    if (o->bias)
        m->bias = wf_nn_parameter_new(ctx, 1, &o->out, false);
    return m;
}

wf_nn_linear *wf_nn_as_linear(wf_nn_module *m)
{
    return m && m->type == &linear_type ? (wf_nn_linear *)m : NULL;
}

wf_status wf_nn_linear_adapt(wf_nn_linear *m, int64_t rank, const wf_nn_adapter *like)
{
    wf_context *ctx;
    const wf_dim *out, *in;
    wf_dim r;
    float bound;

    if (!m || !m->weight)
        return WF_EINVAL; /* the reason is in the context */
    ctx = m->base.ctx;
    out = &m->weight->tensor->dim[0];
    in = &m->weight->tensor->dim[1];
    r = in->chunks == WF_CHUNKS_8 ? wf_dim_chunked(rank) : wf_dim_width(rank);
    bound = (float)(1 / sqrt((double)in->size));
    if (m->weight->plan || !wf_tensor_is_fake(m->weight->tensor))
        return wf_fail(ctx, WF_EINVAL,
                       "%s is planned or real already, so an adapter of it would have no plan: "
                       "adapt a model before wf_par_plan",
                       m->base.path);
    if (rank < 1)
        return wf_fail(ctx, WF_EINVAL, "an adapter of rank %lld: it must be at least 1",
                       (long long)rank);
    if (m->lora.a)
        return wf_fail(ctx, WF_EINVAL, "%s has an adapter already", m->base.path);
    m->lora = *like;
    m->lora.a = wf_nn_parameter_new(ctx, 2, (wf_dim[]){r, *in}, true);
    m->lora.b = wf_nn_parameter_new(ctx, 2, (wf_dim[]){*out, r}, true);
    if (!m->lora.a || !m->lora.b)
        return wf_context_status(ctx);
    m->lora.a->adapter = m->lora.b->adapter = true;
    m->lora.a->matrix = m->lora.b->matrix = true;
    wf_nn_init_uniform(m->lora.a, -bound, bound);
    return wf_context_status(ctx);
}

static const wf_nn_field group_fields[] = {{"member", WF_NN_MEMBERS,
                                            offsetof(wf_nn_linear_group, member),
                                            offsetof(wf_nn_linear_group, count)},
                                           {NULL, 0, 0, 0}};

static const wf_nn_type group_type = {
    "linear_group", sizeof(wf_nn_linear_group), group_fields, NULL, NULL, "in lora_in lora"};

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

/* Returns true where the biases of these members join their products in one op. */
static bool all_join(wf_nn_module *const *member, int count)
{
    bool all = count != 2;

    for (int i = 0; i < count; i++) {
        const wf_nn_linear *m = (const wf_nn_linear *)member[i];

        all = all && joins(m) && !m->gelu;
    }
    return all;
}

/* u = scale x A^T of members that have adapters: one op where they take the same x. */
static void first_factors(wf_nn_linear *const *m, int count, wf_tensor *x, wf_tensor **u)
{
    wf_tensor *a[TOGETHER];
    bool alike = true;

    for (int i = 0; i < count; i++) {
        a[i] = wf_nn_use(m[i], m[i]->lora.a);
        alike = alike && m[i]->lora.dropout <= 0;
    }
    if (alike)
        wf_linear_group(x, count, a, u);
    for (int i = 0; i < count; i++)
        u[i] = scaled(m[i], alike ? u[i] : wf_linear(dropped(m[i], x), a[i]));
}

void wf_nn_adapters_of(wf_nn_linear_group *group, wf_nn_module *const *member, int count,
                       wf_tensor *x, wf_tensor *in, wf_tensor **u)
{
    wf_nn_linear *m[TOGETHER];
    wf_tensor *of[TOGETHER];
    int n = 0, at[TOGETHER];

    for (int i = 0; i < count; i++) {
        u[i] = NULL;
        if (((wf_nn_linear *)member[i])->lora.a) {
            at[n] = i;
            m[n++] = (wf_nn_linear *)member[i];
        }
    }
    if (!n)
        return;
    first_factors(m, n, for_adapter(group, x, in), of);
    wf_nn_at_many(group, "lora", n, of);
    for (int i = 0; i < n; i++)
        u[at[i]] = of[i];
}

/* Add to the products of these members those of the adapters that they have. */
static void adapt_together(wf_nn_linear_group *group, wf_nn_module *const *member, int count,
                           wf_tensor *x, wf_tensor *in, wf_tensor **y)
{
    wf_tensor *u[TOGETHER];

    wf_nn_adapters_of(group, member, count, x, in, u);
    for (int i = 0; i < count; i++) {
        wf_nn_linear *m = (wf_nn_linear *)member[i];

        if (m->lora.a)
            y[i] = wf_add(y[i], wf_linear(u[i], wf_nn_use(m, m->lora.b)));
    }
}

/* Calls up to three members in one op. */
static void call_together(wf_nn_linear_group *group, wf_nn_module *const *member, int count,
                          wf_tensor *outside, wf_tensor **y)
{
    wf_tensor *x = wf_nn_at(group, "in", outside);
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
    adapt_together(group, member, count, outside, x, y);
    for (int i = 0; i < count; i++)
        y[i] = finish((wf_nn_linear *)member[i], y[i]);
}

void wf_nn_call_group(wf_nn_linear_group *m, wf_tensor *x, wf_tensor **y)
{
    const char *outside;
    int count = m ? (int)m->count : 0;

    for (int i = 0; i < count; i++)
        y[i] = NULL;
    if (!x || !m)
        return;
    outside = wf_nn_enter(m);
    for (int i = 0; i < count; i += TOGETHER) {
        int n = count - i < TOGETHER ? count - i : TOGETHER;

        call_together(m, m->member + i, n, x, y + i);
    }
    wf_nn_leave(m, outside, count, y);
}

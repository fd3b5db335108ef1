/* nn/layers/moe.c - a mixture of experts: router, experts, a shared one. */
#include "nn/layers/moe.h"
#include "kernels/elementwise_ops.h"
#include "kernels/ops.h"
#include "kernels/reshape.h"
#include "nn/added_loss.h"
#include "nn/cache.h"
#include "nn/documents.h"
#include "nn/numbers_internal.h"

/* Returns x after "in" as the router takes it: its gradient is complete on each rank, that of
   experts a part of a sum. */
static wf_tensor *for_router(wf_nn_moe *m, wf_tensor *x, wf_tensor *in)
{
    wf_tensor *pair[] = {x, in};

    wf_nn_at_many(m, "router", 2, pair);
    return pair[1];
}

/* Returns what the shared expert makes of tokens, each times its gate. */
static wf_tensor *shared_of(wf_nn_moe *m, wf_tensor *x, wf_tensor *in)
{
    wf_tensor *gate = NULL, *y;

    if (m->shared_gate) {
        gate = wf_linear(for_router(m, x, in), wf_nn_use(m, m->shared_gate));
        gate = wf_nn_at(m, "gate", wf_sigmoid(gate));
    }
    y = wf_nn_call(m->shared, x);
    return gate ? wf_mul(y, wf_broadcast_like(gate, y)) : y;
}

/* Adds the router's losses of balance to those of the step. Their gradient is wf_route's. */
static void add_losses(wf_nn_moe *m, wf_tensor *logits, wf_tensor *index, wf_tensor *counts)
{
    const wf_route_options *o = &m->route;
    const float weight = o->sequence_weight + o->global_weight; /* one of them */
    wf_tensor *balance, *z;

    if ((weight <= 0 && o->z_weight <= 0) || !wf_nn_adds_losses(m))
        return;
    wf_route_losses(logits, index, counts, o, &balance, &z);
    if (weight > 0)
        wf_nn_add_loss(m, "balance", balance, weight);
    if (o->z_weight > 0)
        wf_nn_add_loss(m, "router_z", z, o->z_weight);
}

/* Returns the choices that experts take; of generation, after those of a text's earlier
   tokens. */
static wf_tensor *within_capacity(wf_nn_moe *m, wf_tensor *index)
{
    wf_nn_cache *cache = wf_nn_cache_now(m->base.ctx);
    wf_route_limit limit = {.most = m->capacity};

    if (!m->capacity || !index)
        return index;
    limit.experts = m->router->tensor->dim[0].size;
    if (cache)
        limit.before = wf_nn_cache_choices(cache, &m->base, index, limit.experts);
    else
        limit.first = wf_nn_documents_now(m->base.ctx).first;
    return cache && !limit.before ? NULL : wf_route_capacity(index, &limit);
}

wf_experts_bound wf_nn_moe_bound(const wf_nn_moe *m)
{
    wf_context *ctx = m->base.ctx;
    const bool apart = !wf_nn_cache_now(ctx) && wf_nn_documents_now(ctx).first;

    return (wf_experts_bound){.buffer = m->buffer, .taken = apart ? 0 : m->capacity};
}

/* Returns what experts, which may have adapters, make of tokens. */
static wf_tensor *of_experts(wf_nn_moe *m, wf_tensor *x, wf_tensor *weights, wf_tensor *index)
{
    wf_tensor *gate = wf_nn_use(m, m->gate), *up = wf_nn_use(m, m->up);
    wf_tensor *down = wf_nn_use(m, m->down);
    const wf_experts_bound bound = wf_nn_moe_bound(m);
    wf_experts_adapters adapters;

    if (!m->lora_gate_up_a)
        return wf_experts(gate, up, down, x, weights, index, &bound);
    adapters = (wf_experts_adapters){.gate_up_a = wf_nn_use(m, m->lora_gate_up_a),
                                     .gate_b = wf_nn_use(m, m->lora_gate_b),
                                     .up_b = wf_nn_use(m, m->lora_up_b),
                                     .down_a = wf_nn_use(m, m->lora_down_a),
                                     .down_b = wf_nn_use(m, m->lora_down_b),
                                     .scale = m->lora_scale};
    return wf_experts_adapted(gate, up, down, x, weights, index, &adapters, &bound);
}

/* Tokens on their way to experts, and what these made of them, on its way back. */
typedef struct routed {
    wf_nn_moe *moe;
    wf_tensor *in, *weights, *index, *before, *made;
    const char *path; /* the module's */
} routed;

/* Returns the sum of what experts make of tokens, or, while it is combined, a handle of it. */
static wf_tensor *of_routed(const routed *r)
{
    wf_tensor *in = wf_nn_at(r->moe, "arrived", r->in), *made[4];

    made[0] = in;
    made[1] = r->weights;
    made[2] = r->index;
    made[3] = r->before;
    wf_nn_at_many(r->moe, "experts", 4, made);
    if (made[1]) /* no plan's hook has computed them */
        made[0] = of_experts(r->moe, in, r->weights, r->index);
    made[1] = r->index;
    wf_nn_at_many(r->moe, "sum", 2, made);
    return made[0];
}

/* Does so inside of the shared expert's run, whose scope it outlives. */
static void compute_routed(void *arg)
{
    routed *r = arg;
    wf_context *ctx = r->moe->base.ctx;
    const char *outside = wf_context_enter(ctx, r->path);

    r->made = wf_tensor_retain(of_routed(r));
    wf_context_enter(ctx, outside);
}

/* Returns what all experts make of tokens, where those of other ranks come and go while the
   shared one computes: they come while its features are made, and results return while its
   output is. Uses of x are recorded in the order of a run that waits, so that gradients are
   added in the same one. */
static wf_tensor *of_all_beside(routed *r, wf_tensor *x, wf_tensor *in)
{
    wf_nn_moe *m = r->moe;
    const bool halves = !m->shared->tile && !m->shared->base.recompute;
    wf_tensor *shared, *made;

    r->path = wf_context_path(m->base.ctx);
    m->shared->between = halves ? compute_routed : NULL;
    m->shared->between_arg = r;
    shared = shared_of(m, x, in);
    m->shared->between = NULL;
    if (!halves)
        compute_routed(r);
    made = r->made ? wf_nn_at(m, "summed", r->made) : NULL;
    made = wf_add(made, shared);
    wf_tensor_release(r->made);
    return made;
}

/* Makes tokens those times the weights of their experts, one each, and the weights ones. The
   gradient of these tokens is a part of a sum, that of `seen`, which the router takes, is
   complete. */
static void weigh(wf_nn_moe *m, wf_tensor *seen, wf_tensor **sent)
{
    enum { BEFORE, TOKENS, WEIGHTS };
    wf_tensor *w = sent[WEIGHTS], *ones;

    sent[TOKENS] = seen && w ? wf_mul(seen, wf_broadcast_like(w, seen)) : NULL;
    sent[BEFORE] = sent[TOKENS] = wf_nn_at(m, "weights", sent[TOKENS]);
    ones = w ? wf_tensor_new(w->ctx, wf_context_device(w->ctx)->dtype, w->ndim, w->dim,
                             w->layout, WF_MEMORY_ACTIVATION)
             : NULL;
    sent[WEIGHTS] = ones && wf_init_fill(ones, 1) == WF_OK && ones->dtype != w->dtype
                        ? wf_cast(ones, w->dtype)
                        : ones;
}

static wf_tensor *forward(wf_nn_module *self, wf_tensor *x)
{
    wf_nn_moe *m = (wf_nn_moe *)self;
    wf_tensor *in = wf_nn_at(m, "in", x), *seen = for_router(m, x, in), *logits, *weights;
    wf_nn_parameter *balanced = m->counts ? m->counts : m->bias;
    wf_tensor *index, *state, *sent[4], *made, *here;
    routed r;

    logits = wf_linear_fp32(seen, wf_nn_use(m, m->router));
    state = balanced ? wf_nn_use(m, balanced) : NULL;
    wf_route(logits, state, &m->route, &weights, &index);
    add_losses(m, logits, index, state);
    index = within_capacity(m, index);
    sent[0] = x;
    sent[1] = in;
    sent[2] = m->weigh_input ? weights : wf_nn_at(m, "weights", weights);
    sent[3] = index;
    if (m->weigh_input)
        weigh(m, seen, sent);
    here = sent[1];
    wf_nn_at_many(m, "dispatch", 4, sent);
    r = (routed){m, .before = sent[0], .in = sent[1], .weights = sent[2], .index = sent[3]};
    if (m->shared && sent[1] != here && wf_nn_acts(m, "arrived"))
        return of_all_beside(&r, x, in);
    made = of_routed(&r);
    return m->shared ? wf_add(made, shared_of(m, x, in)) : made;
}

static const wf_nn_field fields[] = {
    {"router", WF_NN_PARAMETER, offsetof(wf_nn_moe, router), 0},
    {"bias", WF_NN_PARAMETER, offsetof(wf_nn_moe, bias), 0},
    {"counts", WF_NN_PARAMETER, offsetof(wf_nn_moe, counts), 0},
    {"gate", WF_NN_PARAMETER, offsetof(wf_nn_moe, gate), 0},
    {"up", WF_NN_PARAMETER, offsetof(wf_nn_moe, up), 0},
    {"down", WF_NN_PARAMETER, offsetof(wf_nn_moe, down), 0},
    {"lora_gate_up_a", WF_NN_PARAMETER, offsetof(wf_nn_moe, lora_gate_up_a), 0},
    {"lora_gate_b", WF_NN_PARAMETER, offsetof(wf_nn_moe, lora_gate_b), 0},
    {"lora_up_b", WF_NN_PARAMETER, offsetof(wf_nn_moe, lora_up_b), 0},
    {"lora_down_a", WF_NN_PARAMETER, offsetof(wf_nn_moe, lora_down_a), 0},
    {"lora_down_b", WF_NN_PARAMETER, offsetof(wf_nn_moe, lora_down_b), 0},
    {"shared", WF_NN_CHILD, offsetof(wf_nn_moe, shared), 0},
    {"shared_gate", WF_NN_PARAMETER, offsetof(wf_nn_moe, shared_gate), 0},
    {NULL, 0, 0, 0}};

static const wf_nn_type moe_type = {
    "moe",  sizeof(wf_nn_moe),
    fields, forward,
    NULL,   "in router weights dispatch arrived experts sum summed gate"};

static wf_status check(wf_context *ctx, const wf_nn_moe_options *o)
{
    if (o->capacity < 0)
        return wf_fail(
            ctx, WF_EINVAL,
            "a mixture whose experts take %lld tokens of a sequence: give 1 or more, "
            "or 0 for all",
            (long long)o->capacity);
    if (o->width < 1 || o->hidden < 1 || o->experts < 1 || o->shared < 0)
        return wf_fail(ctx, WF_EINVAL,
                       "a mixture of width %lld with %lld experts of %lld features and %lld "
                       "shared ones: each must be at least 1, the last 0",
                       (long long)o->width, (long long)o->experts, (long long)o->hidden,
                       (long long)o->shared);
    if (o->route.k < 1 || o->route.k > o->experts || o->route.k > WF_ROUTE_MOST)
        return wf_fail(
            ctx, WF_EINVAL,
            "a mixture in which a token chooses %lld of %lld experts: it chooses 1 to "
            "all of them, and at most %d",
            (long long)o->route.k, (long long)o->experts, WF_ROUTE_MOST);
    if (o->weigh_input && o->route.k != 1)
        return wf_fail(
            ctx, WF_EINVAL,
            "a mixture whose weights multiply what experts take, and a token chooses "
            "%lld: it would be another one for each; choose 1",
            (long long)o->route.k);
    if (o->route.sigmoid && o->route.after)
        return wf_fail(ctx, WF_EINVAL,
                       "a mixture whose weights are a softmax over the chosen experts' logits "
                       "has no sigmoids; set one of route.sigmoid and route.after");
    if (o->route.global_weight > 0 && (o->bias_step > 0 || o->route.sequence_weight > 0))
        return wf_fail(ctx, WF_EINVAL,
                       "a mixture that a loss of the global batch balances has neither biases "
                       "that do nor a loss of each sequence; set one of route.global_weight, "
                       "bias_step and route.sequence_weight");
    return wf_nn_numbers_check(
        ctx, "a mixture",
        WF_NN_NUMBERS({"bias_step", o->bias_step}, {"route.factor", o->route.factor},
                      {"route.sequence_weight", o->route.sequence_weight},
                      {"route.global_weight", o->route.global_weight},
                      {"route.z_weight", o->route.z_weight}, {"deviation", o->deviation},
                      {"out_deviation", o->out_deviation}));
}

/* Returns a parameter [experts, a, b], a matrix for each, that starts from normal numbers. */
static wf_nn_parameter *matrices(wf_context *ctx, const wf_nn_moe_options *o, wf_dim a,
                                 wf_dim b, float deviation)
{
    const wf_dim dims[] = {wf_dim_experts(o->experts), a, b};
    wf_nn_parameter *p = wf_nn_parameter_new(ctx, 3, dims, true);

    wf_nn_init_normal(p, 0, deviation);
    if (p)
        p->matrix = true;
    return p;
}

/* Returns a number for each expert, of whose counts a step makes the next one. */
static wf_nn_parameter *counted(wf_context *ctx, const wf_dim *experts, float sign_step)
{
    wf_nn_parameter *p = wf_nn_parameter_new(ctx, 1, experts, false);

    if (p) {
        p->counted = true;
        p->sign_step = sign_step;
    }
    return p;
}

wf_nn_moe *wf_nn_moe_new(wf_context *ctx, const wf_nn_moe_options *o)
{
    float deviation = o->deviation > 0 ? o->deviation : 0.02f;
    float out = o->out_deviation > 0 ? o->out_deviation : deviation;
    const wf_dim router[] = {wf_dim_width(o->experts), wf_dim_width(o->width)};
    const wf_dim gate[] = {wf_dim_width(1), wf_dim_width(o->width)};
    const wf_dim width = wf_dim_width(o->width), hidden = wf_dim_chunked(o->hidden);
    wf_nn_moe *m = check(ctx, o) == WF_OK ? wf_nn_new(ctx, &moe_type) : NULL;

    if (!m)
        return NULL;
    m->route = o->route;
    m->weigh_input = o->weigh_input;
    m->capacity = o->capacity;
    m->router = wf_nn_parameter_new(ctx, 2, router, true);
    wf_nn_init_normal(m->router, 0, deviation);
    if (o->bias_step > 0)
        m->bias = counted(ctx, router, o->bias_step);
    if (o->route.global_weight > 0)
        m->counts = counted(ctx, router, 0);
    m->gate = matrices(ctx, o, hidden, width, deviation);
    m->up = matrices(ctx, o, hidden, width, deviation);
    m->down = matrices(ctx, o, width, hidden, out);
    if (o->shared && o->shared_gate) {
        m->shared_gate = wf_nn_parameter_new(ctx, 2, gate, true);
        wf_nn_init_normal(m->shared_gate, 0, deviation);
    }
    if (o->shared)
        m->shared = wf_nn_swiglu_mlp_new(ctx, &(wf_nn_mlp_options){.width = o->width,
                                                                   .hidden = o->shared,
                                                                   .deviation = deviation,
                                                                   .out_deviation = out});
    return m;
}

typedef struct buffering {
    float buffer;
    int64_t found;
} buffering;

static void buffer(void *arg, wf_nn_module *m)
{
    buffering *b = arg;

    if (m->type == &moe_type) {
        ((wf_nn_moe *)m)->buffer = b->buffer;
        b->found++;
    }
}

wf_status wf_nn_buffer_experts(wf_nn_module *root, double factor)
{
    buffering b = {(float)factor, 0};

    if (!root)
        return WF_EINVAL; /* the reason is in the context */
    if (!(factor >= 0))
        return wf_fail(
            root->ctx, WF_EINVAL,
            "room for %g times the rows that experts have where loads are equal: give "
            "a number above 0, or 0 for the rows of any choice",
            factor);
    wf_nn_visit(root, buffer, NULL, &b);
    return factor == 0 || b.found ? WF_OK
                                  : wf_fail(root->ctx, WF_EINVAL,
                                            "room for %g times the rows of experts: the model "
                                            "has no mixture",
                                            factor);
}

wf_nn_moe *wf_nn_as_moe(wf_nn_module *m)
{
    return m && m->type == &moe_type ? (wf_nn_moe *)m : NULL;
}

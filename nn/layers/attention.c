/* nn/layers/attention.c - queries, keys and values, attention, and the projection of its
   output. */
#include "nn/layers/attention.h"
#include "kernels/attention_cached.h"
#include "kernels/ops.h"
#include "nn/cache.h"
#include "nn/documents.h"
#include "nn/layers/attention_internal.h"
#include "nn/layers/linear_internal.h"
#include "nn/numbers_internal.h"
#include <math.h>

wf_attention_options wf_nn_attention_options_now(const wf_nn_attention *m)
{
    return (wf_attention_options){.causal = m->causal,
                                  .dropout = m->dropout,
                                  .site = m->site,
                                  .first = wf_nn_documents_now(m->base.ctx).first,
                                  .window = m->chunks ? 0 : m->window,
                                  .chunk = m->chunks ? m->window : 0,
                                  .cap = m->score_cap};
}

/* Attends, but where a plan's hook has; y has room for sinks. */
static wf_tensor *attend(wf_nn_attention *m, wf_attention_options *how, wf_tensor **y)
{
    y[3] = how->sinks;
    wf_nn_at_many(m, "attend", y[3] ? 4 : 3, y);
    how->sinks = y[3];
    return y[1] ? wf_attention(y[0], y[1], y[2], how) : y[0];
}

/* Returns the sinks of these queries' heads; NULL: it has none. */
static wf_tensor *sinks_of(wf_nn_attention *m, wf_tensor *q)
{
    wf_tensor *x[] = {q, m->sinks ? wf_nn_use(m, m->sinks) : NULL};

    if (x[0] && x[1])
        wf_nn_at_many(m, "sinks", 2, x);
    return x[1];
}

/* Returns a head's queries or keys divided by their root mean square: a norm whose gains are
   ones. */
static wf_tensor *l2_normed(const wf_nn_attention *m, wf_tensor *x)
{
    wf_context *ctx = m->base.ctx;
    wf_dim features = wf_dim_width(m->head_dim);
    wf_tensor *ones = wf_tensor_new(ctx, wf_context_device(ctx)->dtype, 1, &features, NULL,
                                    WF_MEMORY_ACTIVATION);

    if (!x || !ones || wf_init_fill(ones, 1) != WF_OK)
        return NULL;
    return wf_rmsnorm(x, ones, m->l2_norm);
}

/* Rotates queries and keys, or multiplies queries by a temperature, where it is asked for. */
static void place(const wf_rope_options *rope, wf_tensor *positions, wf_tensor **y)
{
    enum { Q, K };

    if (rope->scaling.kind == WF_ROPE_TEMPERATURE)
        y[Q] =
            positions ? wf_rope_at(y[Q], positions, rope, false) : wf_rope(y[Q], rope, false);
    else if (rope->base > 0)
        wf_rope_pair(y[Q], y[K], positions, rope, false, y);
}

/* Makes queries, keys and values as heads, queries and keys where their tokens are. Nothing may
   happen to the products before that if one op is to make them. */
static void make_heads(wf_nn_attention *m, wf_tensor *x, const wf_rope_options *rope,
                       wf_tensor *positions, wf_tensor **y)
{
    enum { Q, K, V, POSITIONS };
    const bool rotates = rope->base > 0 && rope->scaling.kind != WF_ROPE_TEMPERATURE;

    if (rotates && !m->q_norm && !wf_nn_acts(m, "heads") &&
        wf_nn_call_rotated(m->qkv, x, positions, rope, y)) {
        y[V] = wf_split_heads(y[V], m->head_dim);
        return;
    }
    wf_nn_call_group(m->qkv, x, y);
    for (int i = Q; i <= K && m->q_norm && m->wide; i++)
        y[i] = wf_nn_call(i == Q ? m->q_norm : m->k_norm, y[i]);
    y[POSITIONS] = positions;
    wf_nn_at_many(m, "heads", positions ? 4 : 3, y);
    for (int i = Q; i <= V; i++)
        y[i] = wf_split_heads(y[i], m->head_dim);
    for (int i = Q; i <= K && m->q_norm && !m->wide; i++)
        y[i] = wf_nn_call(i == Q ? m->q_norm : m->k_norm, y[i]);
    place(rope, positions ? y[POSITIONS] : NULL, y);
}

static wf_tensor *forward(wf_nn_module *self, wf_tensor *x)
{
    enum { Q, K, V };
    wf_nn_attention *m = (wf_nn_attention *)self;
    wf_nn_cache *cache = wf_nn_cache_now(self->ctx);
    wf_tensor *positions =
        cache ? wf_nn_cache_positions(cache) : wf_nn_documents_now(self->ctx).positions;
    wf_rope_options rope = m->rope;
    wf_attention_options how;
    wf_tensor *y[4];

    if (cache && rope.scaling.kind == WF_ROPE_DYNAMIC)
        rope.scaling.length = (double)wf_nn_cache_length(cache);
    if (cache && !m->causal) {
        wf_fail(self->ctx, WF_EUNSUPPORTED,
                "%s is not causal: its tokens see later ones, which a cache has not yet",
                self->path);
        return NULL;
    }
    make_heads(m, x, &rope, positions, y);
    for (int i = Q; i <= K && m->l2_norm > 0; i++)
        y[i] = l2_normed(m, y[i]);
    if (m->query_scale != 1)
        y[Q] = wf_scale(y[Q], m->query_scale);
    wf_nn_at_many(m, "qkv", 3, y);
    how = wf_nn_attention_options_now(m);
    how.sinks = sinks_of(m, y[Q]);
    x = cache ? wf_nn_cache_attention(cache, self, y[Q], y[K], y[V], &how) : attend(m, &how, y);
    return wf_nn_call(m->out, wf_nn_at(m, "tokens", wf_merge_heads(x)));
}

static const wf_nn_field fields[] = {
    {"qkv", WF_NN_CHILD, offsetof(wf_nn_attention, qkv), 0},
    {"q_norm", WF_NN_CHILD, offsetof(wf_nn_attention, q_norm), 0},
    {"k_norm", WF_NN_CHILD, offsetof(wf_nn_attention, k_norm), 0},
    {"out", WF_NN_CHILD, offsetof(wf_nn_attention, out), 0},
    {"sinks", WF_NN_PARAMETER, offsetof(wf_nn_attention, sinks), 0},
    {NULL, 0, 0, 0}};

static const wf_nn_type attention_type = {"attention", sizeof(wf_nn_attention),
                                          fields,      forward,
                                          NULL,        "heads qkv sinks attend tokens"};

wf_status wf_nn_attention_complete(wf_context *ctx, wf_nn_attention_sizes *s, float dropout)
{
    bool whole = s->head_dim || s->heads < 1 || s->width % s->heads == 0;

    if (s->kv_heads == 0)
        s->kv_heads = s->heads;
    if (s->head_dim == 0 && s->heads > 0)
        s->head_dim = s->width / s->heads;
    if (s->width < 1 || s->heads < 1 || s->kv_heads < 1 || s->head_dim < 0)
        wf_fail(ctx, WF_EINVAL,
                "attention of width %lld with %lld heads, %lld key-value heads and head size "
                "%lld: each must be at least 1",
                (long long)s->width, (long long)s->heads, (long long)s->kv_heads,
                (long long)s->head_dim);
    else if (!whole)
        wf_fail(ctx, WF_EINVAL,
                "width %lld is not a multiple of %lld heads: change one of them",
                (long long)s->width, (long long)s->heads);
    else if (s->heads % s->kv_heads)
        wf_fail(ctx, WF_EINVAL,
                "%lld heads cannot share %lld key-value heads: the second must divide the "
                "first",
                (long long)s->heads, (long long)s->kv_heads);
    else if (!(dropout >= 0 && dropout < 1))
        wf_fail(ctx, WF_EINVAL, "dropout %g must be at least 0 and below 1", (double)dropout);
    return wf_context_status(ctx);
}

/* Replaces zeros in the options by their defaults; false where they make no attention. */
static bool complete(wf_context *ctx, wf_nn_attention_options *o)
{
    wf_nn_attention_sizes s = {o->width, o->heads, o->kv_heads, o->head_dim};

    if (wf_nn_attention_complete(ctx, &s, o->dropout) != WF_OK ||
        wf_nn_numbers_check(
            ctx, "attention",
            WF_NN_NUMBERS(
                {"rope_base", o->rope_base}, {"qk_norm", o->qk_norm}, {"scale", o->scale},
                {"score_cap", o->score_cap}, {"qk_l2_norm", o->qk_l2_norm},
                {"temperature", o->temperature}, {"temperature_every", o->temperature_every},
                {"deviation", o->deviation}, {"out_deviation", o->out_deviation})) != WF_OK)
        return false;
    o->kv_heads = s.kv_heads;
    o->head_dim = s.head_dim;
    if (o->rope_base > 0 && !o->rope_features && o->head_dim % 2)
        wf_fail(ctx, WF_EINVAL, "RoPE rotates pairs: head size %lld must be even",
                (long long)o->head_dim);
    else if (o->rope_base > 0 &&
             (o->rope_features < 0 || o->rope_features % 2 || o->rope_features > o->head_dim))
        wf_fail(ctx, WF_EINVAL,
                "RoPE rotates pairs: %lld of the %lld features of a head are to rotate, which "
                "must be an even number of these",
                (long long)o->rope_features, (long long)o->head_dim);
    else if (o->window < 0 || (o->window && !o->causal))
        wf_fail(
            ctx, WF_EINVAL,
            "a window of %lld tokens%s: it must be at least 1, of causal attention, or 0 for "
            "none",
            (long long)o->window, o->causal ? "" : " without causal");
    else if (o->temperature > 0 && (o->rope_base > 0 || !(o->temperature_every > 0)))
        wf_fail(ctx, WF_EINVAL,
                "a temperature of %g, which grows every %g tokens: it is of attention without "
                "RoPE, and grows every 1 token or more",
                o->temperature, o->temperature_every);
    else if (o->qk_l2_norm > 0 && !(o->rope_base > 0))
        wf_fail(ctx, WF_EINVAL,
                "qk_l2_norm comes after RoPE, and this attention has none (rope_base 0): leave "
                "it out");
    return wf_context_status(ctx) == WF_OK;
}

wf_nn_attention *wf_nn_attention_new(wf_context *ctx, const wf_nn_attention_options *options)
{
    static const char *const name[] = {"q", "k", "v"};
    wf_nn_attention_options o = *options;
    float deviation = o.deviation > 0 ? o.deviation : 0.02f;
    wf_nn_attention *m = complete(ctx, &o) ? wf_nn_new(ctx, &attention_type) : NULL;
    wf_dim width = wf_dim_width(o.width), q = wf_dim_heads(o.heads, o.head_dim);
    wf_dim kv = wf_dim_heads(o.kv_heads, o.head_dim);
    wf_nn_linear_options out = {.in = q,
                                .out = width,
                                .bias = o.out_bias,
                                .deviation = o.out_deviation > 0 ? o.out_deviation : deviation};
    wf_nn_linear_options qkv[3];

    if (!m)
        return NULL;
    for (int i = 0; i < 3; i++)
        qkv[i] = (wf_nn_linear_options){
            .in = width, .out = i ? kv : q, .bias = o.qkv_bias, .deviation = deviation};
    m->qkv = wf_nn_linear_group_new(ctx, 3, name, qkv);
    if (o.qk_norm > 0) {
        wf_dim one = wf_dim_width(o.head_dim);

        m->q_norm = (o.qk_norm_offset ? wf_nn_rmsnorm_offset_new : wf_nn_rmsnorm_new)(
            ctx, o.qk_norm_wide ? q : one, o.qk_norm);
        m->k_norm = (o.qk_norm_offset ? wf_nn_rmsnorm_offset_new : wf_nn_rmsnorm_new)(
            ctx, o.qk_norm_wide ? kv : one, o.qk_norm);
        m->wide = o.qk_norm_wide;
    }
    m->out = wf_nn_linear_new(ctx, &out);
    if (o.sinks)
        m->sinks = wf_nn_parameter_new(ctx, 1, (wf_dim[]){wf_dim_heads(o.heads, 1)}, false);
    m->head_dim = o.head_dim;
    m->rope_factors = o.rope_factors;
    m->rope = (wf_rope_options){.base = o.rope_base,
                                .scaling = o.rope_scaling,
                                .features = (int32_t)o.rope_features,
                                .factors = &m->rope_factors,
                                .neighbours = o.rope_neighbours};
    if (o.temperature > 0)
        m->rope = (wf_rope_options){.base = 1,
                                    .scaling = {.kind = WF_ROPE_TEMPERATURE,
                                                .factor = o.temperature,
                                                .original_positions = o.temperature_every}};
    m->query_scale = o.scale > 0 ? (float)(o.scale * sqrt((double)o.head_dim)) : 1;
    m->score_cap = o.score_cap;
    m->causal = o.causal;
    m->window = o.window;
    m->chunks = o.window_chunks && o.window;
    m->l2_norm = o.qk_l2_norm;
    m->dropout = o.dropout;
    m->site = o.site;
    return m;
}

/* nn/layers/cross_attention.c - queries of one sequence of tokens, keys and values of another,
   and the projection of what they give. */
#include "nn/layers/cross_attention.h"
#include "kernels/ops.h"
#include "nn/layers/attention_internal.h"
#include "nn/numbers_internal.h"

static const wf_nn_field fields[] = {
    {"q", WF_NN_CHILD, offsetof(wf_nn_cross_attention, q), 0},
    {"kv", WF_NN_CHILD, offsetof(wf_nn_cross_attention, kv), 0},
    {"out", WF_NN_CHILD, offsetof(wf_nn_cross_attention, out), 0},
    {NULL, 0, 0, 0}};

static const wf_nn_type cross_attention_type = {
    "cross_attention", sizeof(wf_nn_cross_attention), fields, NULL, NULL, "qkv"};

wf_tensor *wf_nn_call_cross(wf_nn_cross_attention *m, wf_tensor *x, wf_tensor *memory,
                            wf_tensor *mask)
{
    wf_attention_options how;
    wf_tensor *qkv[3], *y;
    const char *outside;

    if (!m || !x || !memory)
        return NULL;
    how = (wf_attention_options){.dropout = m->dropout, .site = m->site, .mask = mask};
    outside = wf_nn_enter(m);
    qkv[0] = wf_nn_call(m->q, x);
    wf_nn_call_group(m->kv, memory, qkv + 1);
    for (int i = 0; i < 3; i++)
        qkv[i] = wf_split_heads(qkv[i], m->head_dim);
    wf_nn_at_many(m, "qkv", 3, qkv);
    y = wf_nn_call(m->out, wf_merge_heads(wf_attention(qkv[0], qkv[1], qkv[2], &how)));
    wf_nn_leave(m, outside, 1, &y);
    return y;
}

wf_nn_cross_attention *wf_nn_cross_attention_new(wf_context *ctx,
                                                 const wf_nn_cross_attention_options *o)
{
    static const char *const name[] = {"k", "v"};
    wf_nn_attention_sizes s = {o->width, o->heads, o->kv_heads, o->head_dim};
    float deviation = o->deviation > 0 ? o->deviation : 0.02f;
    wf_nn_linear_options q, kv[2], out;
    wf_nn_cross_attention *m;

    if (o->memory_width < 0) {
        wf_fail(ctx, WF_EINVAL, "a memory of width %lld: it must be at least 1, or 0 for %lld",
                (long long)o->memory_width, (long long)o->width);
        return NULL;
    }
    if (wf_nn_attention_complete(ctx, &s, o->dropout) != WF_OK ||
        wf_nn_numbers_check(ctx, "cross attention",
                            WF_NN_NUMBERS({"deviation", o->deviation},
                                          {"out_deviation", o->out_deviation})) != WF_OK)
        return NULL;
    m = wf_nn_new(ctx, &cross_attention_type);
    if (!m)
        return NULL;
    q = (wf_nn_linear_options){.in = wf_dim_width(s.width),
                               .out = wf_dim_heads(s.heads, s.head_dim),
                               .bias = o->qkv_bias,
                               .deviation = deviation};
    kv[0] = q;
    kv[0].in = wf_dim_width(o->memory_width ? o->memory_width : s.width);
    kv[0].out = wf_dim_heads(s.kv_heads, s.head_dim);
    kv[1] = kv[0];
    out = (wf_nn_linear_options){.in = q.out,
                                 .out = q.in,
                                 .bias = o->out_bias,
                                 .deviation =
                                     o->out_deviation > 0 ? o->out_deviation : deviation};
    m->q = wf_nn_linear_new(ctx, &q);
    m->kv = wf_nn_linear_group_new(ctx, 2, name, kv);
    m->out = wf_nn_linear_new(ctx, &out);
    m->head_dim = s.head_dim;
    m->dropout = o->dropout;
    m->site = o->site;
    return m;
}

/*
 * tests/kernels/test_ops_sinks.c - attention with sinks: cases for op_harness.h, beside
 * windows, chunks, first tokens, caps and dropout, of some of the tokens, and to a cache; and
 * what is refused.
 */
#include "kernels/attention_cached.h"
#include "kernels/attention_part.h"
#include "kernels/devices.h"
#include "tests/kernels/op_harness.h"
#include <string.h>

static void apply_sinks(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_attention(in[0], in[1], in[2],
                          &(wf_attention_options){.causal = true, .sinks = in[3]});
    out[1] = wf_attention(in[0], in[1], in[2], &(wf_attention_options){.sinks = in[3]});
}

static void sinks(op_case *c, const op_shape *s)
{
    *c = (op_case){.n_in = 4, .n_out = 2, .apply = apply_sinks};
    c->in[0] = op_heads(s, s->heads);
    c->in[1] = c->in[2] = op_heads(s, s->groups);
    c->in[3] = op_vector(wf_dim_chunked(s->heads));
}

static void apply_window(wf_tensor *const *in, wf_tensor **out)
{
    wf_attention_options o = {
        .causal = true, .dropout = 0.3F, .site = 2, .window = 3, .sinks = in[3]};

    out[0] = wf_attention(in[0], in[1], in[2], &o);
    o.first = in[4];
    o.window = 5, o.cap = 0.4F;
    out[1] = wf_attention(in[0], in[1], in[2], &o);
}

static void in_a_window(op_case *c, const op_shape *s)
{
    sinks(c, s);
    c->n_in = 5;
    c->in[4] = op_token_ids(s);
    c->in[4].below = s->tokens;
    c->apply = apply_window;
}

/* Chunks without sinks, and with sinks such as count from first tokens. */
static void apply_chunks(wf_tensor *const *in, wf_tensor **out)
{
    wf_attention_options o = {.causal = true, .dropout = 0.3F, .site = 2, .chunk = 3};

    out[0] = wf_attention(in[0], in[1], in[2], &o);
    o.sinks = in[3];
    o.first = in[4];
    o.chunk = 5, o.cap = 0.4F;
    out[1] = wf_attention(in[0], in[1], in[2], &o);
}

static void in_chunks(op_case *c, const op_shape *s)
{
    in_a_window(c, s);
    c->apply = apply_chunks;
}

/* All tokens are a part, too. */
static void apply_part(wf_tensor *const *in, wf_tensor **out)
{
    const wf_attention_options o = {.causal = true, .window = 9, .sinks = in[3]};
    const wf_attention_time now = wf_attention_time_now(in[0]->ctx);
    wf_tensor *lse;

    out[0] = wf_attention_part(in[0], in[1], in[2], &o, &now, &lse);
    out[1] = wf_attention_sinks_grad(out[0], in[0], lse, in[3]);
}

static void of_some_tokens(op_case *c, const op_shape *s)
{
    sinks(c, s);
    c->apply = apply_part;
    for (int i = 0; i < 4; i++) {
        c->in[i] = op_unwanted(c->in[i]);
        c->constant[i] = true;
    }
}

static void apply_cached(wf_tensor *const *in, wf_tensor **out)
{
    wf_attention_options o = {.sinks = in[5]};

    out[0] = wf_attention_cached(in[0], in[1], in[2], in[3], in[4], &o);
    o.window = 9, o.cap = 0.4F;
    out[1] = wf_attention_cached(in[0], in[1], in[2], in[3], in[4], &o);
}

static void to_a_cache(op_case *c, const op_shape *s)
{
    *c = (op_case){.n_in = 6, .n_out = 2, .constant = {true}, .apply = apply_cached};
    c->in[0] = op_unwanted(op_heads(s, s->heads));
    c->in[1] = c->in[2] =
        (op_operand){.ndim = 4,
                     .dim = {wf_dim_width(s->batch + 1), wf_dim_width(s->tokens + 70),
                             wf_dim_chunked(s->groups), wf_dim_width(s->head_dim)}};
    c->in[3] = (op_operand){.ndim = 1, .dim = {wf_dim_batch(s->batch)}, .below = 71};
    c->in[4] = (op_operand){.ndim = 1, .dim = {wf_dim_batch(s->batch)}, .below = s->batch + 1};
    c->in[5] = op_unwanted(op_vector(wf_dim_chunked(s->heads)));
}

static wf_tensor *tensor_of(wf_context *ctx, int ndim, const wf_dim *dims)
{
    wf_tensor *t = wf_tensor_new(ctx, WF_F32, ndim, dims, NULL, WF_MEMORY_ACTIVATION);

    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    return t;
}

static void expect_refused(wf_tensor *q, wf_tensor *k, const wf_attention_options *o,
                           const char *text)
{
    CU_ASSERT_PTR_NULL(wf_attention(q, k, k, o));
    CU_ASSERT_PTR_NOT_NULL(strstr(wf_context_error(q->ctx)->text, text));
    wf_context_clear(q->ctx);
}

static void refusals(void)
{
    const wf_dim b = wf_dim_batch(2), s = wf_dim_chunked(5), t = wf_dim_chunked(7);
    const wf_dim h = wf_dim_chunked(4), d = wf_dim_width(6);
    wf_error error = {WF_OK, ""};
    wf_context *ctx = wf_context_open(wf_cpu_device(1, &error), NULL, &error);
    wf_tensor *q, *k, *sinks_of_heads;

    CU_ASSERT_PTR_NOT_NULL_FATAL(ctx);
    q = tensor_of(ctx, 4, (wf_dim[]){b, s, h, d});
    k = tensor_of(ctx, 4, (wf_dim[]){b, t, h, d});
    sinks_of_heads = tensor_of(ctx, 1, &h);
    expect_refused(q, k, &(wf_attention_options){.sinks = sinks_of_heads},
                   "`sinks` beside keys of another sequence");
    expect_refused(q, q,
                   &(wf_attention_options){.mask = tensor_of(ctx, 2, (wf_dim[]){b, s}),
                                           .sinks = sinks_of_heads},
                   "`sinks` beside a mask");
    expect_refused(q, q,
                   &(wf_attention_options){.bias = tensor_of(ctx, 3, (wf_dim[]){h, s, s}),
                                           .sinks = sinks_of_heads},
                   "`sinks` beside a bias");
    expect_refused(q, q, &(wf_attention_options){.sinks = tensor_of(ctx, 2, (wf_dim[]){b, h})},
                   "operand 3 has 2 dims");
    expect_refused(q, q, &(wf_attention_options){.sinks = tensor_of(ctx, 1, &s)},
                   "dim 0 of operand 3 has size 5");
    wf_context_close(ctx);
}

static const op_entry entries[] = {
    {"sinks", sinks},
    {"sinks, in a window, from a first token on", in_a_window},
    {"chunks, and sinks with them from a first token on", in_chunks},
    {"sinks, attention of some tokens", of_some_tokens},
    {"sinks, attention to a cache", to_a_cache},
    {NULL, NULL},
};

int main(void)
{
    static const wf_test more[] = {{"refusals", refusals}, {NULL, NULL}};

    return op_main(OP_SUITE_SINKS, entries, more);
}

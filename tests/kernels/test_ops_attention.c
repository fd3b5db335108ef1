/*
 * tests/kernels/test_ops_attention.c - attention of all kinds: cases for op_harness.h, keys
 * that are hidden, and what is refused.
 */
#include "core/numerics/bf16.h"
#include "core/numerics/random.h"
#include "kernels/attention_cached.h"
#include "kernels/elementwise_ops.h"
#include "tests/kernels/op_harness.h"
#include <math.h>
#include <string.h>

static op_operand cache_of(const op_shape *s)
{
    return (op_operand){.ndim = 4,
                        .dim = {wf_dim_width(s->batch + 1), wf_dim_width(s->tokens + 70),
                                wf_dim_chunked(s->groups), wf_dim_width(s->head_dim)}};
}

/* i32 [batch]: positions in a cache. */
static op_operand position(const op_shape *s, int64_t below)
{
    return (op_operand){.ndim = 1, .dim = {wf_dim_batch(s->batch)}, .below = below};
}

static void apply_attention_cached(wf_tensor *const *in, wf_tensor **out)
{
    static const wf_attention_options o = {.window = 9, .cap = 0.4F};
    for (int i = 0; i < 2; i++)
        out[i] = wf_attention_cached(in[0], in[1], in[2], in[3], in[4], i ? &o : NULL);
}

static void attention_cached(op_case *c, const op_shape *s)
{
    *c = (op_case){.n_in = 5, .n_out = 2, .constant = {true}, .apply = apply_attention_cached};
    c->in[0] = op_unwanted(op_heads(s, s->heads));
    c->in[1] = c->in[2] = cache_of(s);
    c->in[3] = position(s, 71), c->in[4] = position(s, s->batch + 1);
}

static void apply_attention(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = op_causal(in[0], in[1], in[2], 0, 0);
}

static void attention(op_case *c, const op_shape *s)
{
    *c = (op_case){.n_in = 3, .n_out = 1, .apply = apply_attention};
    c->in[0] = op_heads(s, s->heads);
    c->in[1] = c->in[2] = op_heads(s, s->groups);
}

static void apply_attention_dropout(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = op_causal(in[0], in[1], in[2], 0.3F, 2);
}

static void attention_dropout(op_case *c, const op_shape *s)
{
    attention(c, s);
    c->apply = apply_attention_dropout;
}

static void apply_attention_bidirectional(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_attention(in[0], in[1], in[2], NULL);
    out[1] =
        wf_attention(in[0], in[1], in[2], &(wf_attention_options){.dropout = 0.3F, .site = 2});
}

static void attention_bidirectional(op_case *c, const op_shape *s)
{
    attention(c, s);
    c->n_out = 2;
    c->apply = apply_attention_bidirectional;
}

static void apply_attention_from(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_attention(in[0], in[1], in[2],
                          &(wf_attention_options){.causal = true, .first = in[3]});
    out[1] = wf_attention(
        in[0], in[1], in[2],
        &(wf_attention_options){.causal = true, .dropout = 0.3F, .site = 2, .first = in[3]});
}

/* A window alone, and one beside first tokens with a cap that few scores escape. */
static void apply_attention_window(wf_tensor *const *in, wf_tensor **out)
{
    wf_attention_options o = {.causal = true, .dropout = 0.3F, .site = 2, .window = 3};

    out[0] = wf_attention(in[0], in[1], in[2], &o);
    o.first = in[3];
    o.window = 5, o.cap = 0.4F;
    out[1] = wf_attention(in[0], in[1], in[2], &o);
}

/* Numbers above a token's own count as its own. */
static void attention_from(op_case *c, const op_shape *s)
{
    attention(c, s);
    c->n_in = 4;
    c->n_out = 2;
    c->in[3] = op_token_ids(s);
    c->in[3].below = s->tokens;
    c->apply = apply_attention_from;
}

static void attention_window(op_case *c, const op_shape *s)
{
    attention_from(c, s);
    c->apply = apply_attention_window;
}

/* Keys and values of another length. */
static op_operand keys_of(const op_shape *s)
{
    op_operand o = op_heads(s, s->groups);

    o.dim[1] = wf_dim_chunked(s->large ? 90 : s->tokens / 2 + 1);
    return o;
}

/* Few queries, so that a bias has few differences; many where none are taken. */
static op_operand queries_of(const op_shape *s)
{
    op_operand o = op_heads(s, s->heads);

    o.dim[1].size = s->large ? 70 : s->tokens < 4 ? s->tokens : 4;
    return o;
}

/* [batch, heads, tokens, keys], or without the batch. */
static op_operand bias_of(const op_shape *s, wf_dim keys, int ndim)
{
    wf_dim dims[] = {wf_dim_batch(s->batch), wf_dim_chunked(s->heads), queries_of(s).dim[1],
                     keys};
    op_operand o = {.ndim = ndim, .wanted = true};

    memcpy(o.dim, dims + 4 - ndim, (size_t)ndim * sizeof *dims);
    return o;
}

/* Masks of every other key: some sequences of the small shapes have none left. */
static wf_tensor *every_other(wf_tensor *x)
{
    return wf_greater_than(x, 0);
}

static void apply_attention_cross(wf_tensor *const *in, wf_tensor **out)
{
    wf_attention_options o = {.mask = every_other(in[3]), .dropout = 0.3F, .site = 2};

    out[0] = wf_attention(in[0], in[1], in[2], NULL);
    o.bias = in[4];
    out[1] = wf_attention(in[0], in[1], in[2], &o);
}

static void attention_cross(op_case *c, const op_shape *s)
{
    *c = op_case_of(5, 2, apply_attention_cross);
    c->in[0] = queries_of(s);
    c->in[1] = c->in[2] = keys_of(s);
    c->in[3] = (op_operand){.ndim = 2, .dim = {wf_dim_batch(s->batch), c->in[1].dim[1]}};
    c->in[4] = bias_of(s, c->in[1].dim[1], 4);
}

static void apply_attention_bias(wf_tensor *const *in, wf_tensor **out)
{
    wf_attention_options o = {.causal = true, .bias = in[3], .window = 3};

    out[0] = wf_attention(in[0], in[1], in[2], &o);
    o = (wf_attention_options){.causal = true, .mask = every_other(in[4])};
    out[1] = wf_attention(in[0], in[1], in[2], &o);
}

static void attention_bias(op_case *c, const op_shape *s)
{
    *c = op_case_of(5, 2, apply_attention_bias);
    c->in[0] = queries_of(s);
    c->in[1] = c->in[2] = op_heads(s, s->groups);
    c->in[1].dim[1] = c->in[2].dim[1] = c->in[0].dim[1];
    c->in[3] = bias_of(s, c->in[0].dim[1], 3);
    c->in[4] = (op_operand){.ndim = 2, .dim = {wf_dim_batch(s->batch), c->in[0].dim[1]}};
}

/* A tensor of normal numbers. */
static wf_tensor *operand(wf_context *ctx, int ndim, const wf_dim *dims, int stream)
{
    wf_tensor *t = wf_tensor_new(ctx, WF_F32, ndim, dims, NULL, WF_MEMORY_ACTIVATION);

    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    wf_random_fill_normal(t->data, wf_tensor_count(t), 5, (uint64_t)stream, 0);
    return t;
}

static bool same(const wf_tensor *a, const wf_tensor *b)
{
    return memcmp(a->data, b->data, (size_t)wf_tensor_count(a) * sizeof(float)) == 0;
}

static bool zeros(const wf_tensor *t)
{
    static const float zero;
    bool all = true;

    for (int64_t i = 0; i < wf_tensor_count(t); i++)
        all = all && memcmp((const float *)t->data + i, &zero, sizeof zero) == 0;
    return all;
}

typedef struct problem {
    wf_context *ctx;
    wf_tensor *q, *k, *v, *mask, *bias;
} problem;

enum { TOKENS = 70, KEYS = 150, SEEN = 90, HEADS = 4, GROUPS = 2, HEAD = 10 };

/* One sequence, whose mask leaves the first `seen` keys. */
static problem problem_open(int seen)
{
    const wf_dim b = wf_dim_batch(1), d = wf_dim_width(HEAD);
    const wf_dim s = wf_dim_chunked(TOKENS), t = wf_dim_chunked(KEYS);
    const wf_dim h = wf_dim_chunked(HEADS), g = wf_dim_chunked(GROUPS);
    problem p = {.ctx = op_context_open(1)};

    wf_scope_open(p.ctx);
    p.q = operand(p.ctx, 4, (wf_dim[]){b, s, h, d}, 1);
    p.k = operand(p.ctx, 4, (wf_dim[]){b, t, g, d}, 2);
    p.v = operand(p.ctx, 4, (wf_dim[]){b, t, g, d}, 3);
    p.mask = operand(p.ctx, 2, (wf_dim[]){b, t}, 4);
    p.bias = operand(p.ctx, 3, (wf_dim[]){h, s, t}, 5);
    for (int j = 0; j < KEYS; j++) {
        ((float *)p.mask->data)[j] = j < seen ? 1 : 0;
        for (int row = 0; row < HEADS * TOKENS; row++)
            ((float *)p.bias->data)[row * KEYS + j] = j < seen ? 0 : -INFINITY;
    }
    return p;
}

static void problem_close(problem *p)
{
    CU_ASSERT_EQUAL(wf_context_status(p->ctx), WF_OK);
    wf_scope_close(p->ctx);
    wf_context_close(p->ctx);
}

/* Keys that a mask or a bias hides might as well not be there; their gradients are zeros. */
static void hidden_keys(void)
{
    problem p = problem_open(SEEN);
    wf_tape *tape = wf_tape_open(p.ctx);
    const wf_attention_options by_mask = {.mask = p.mask}, by_bias = {.bias = p.bias};
    wf_tensor *k = wf_leaf(p.k), *v = wf_leaf(p.v), *bias = wf_leaf(p.bias);
    wf_tensor *few =
        wf_attention(p.q, wf_slice(p.k, 1, 0, SEEN), wf_slice(p.v, 1, 0, SEEN), NULL);
    wf_tensor *masked = wf_attention(p.q, k, v, &by_mask);

    CU_ASSERT_FATAL(few && masked);
    CU_ASSERT(same(few, masked));
    CU_ASSERT(same(few, wf_attention(p.q, p.k, p.v, &by_bias)));
    wf_backward(masked, p.q, false);
    CU_ASSERT(zeros(wf_slice(k->grad, 1, SEEN, KEYS - SEEN)));
    CU_ASSERT(zeros(wf_slice(v->grad, 1, SEEN, KEYS - SEEN)));
    CU_ASSERT(!zeros(wf_slice(k->grad, 1, 0, SEEN)));
    wf_backward(wf_attention(p.q, p.k, p.v, &(wf_attention_options){.bias = bias}), p.q, false);
    CU_ASSERT(zeros(wf_slice(bias->grad, 2, SEEN, KEYS - SEEN)));
    CU_ASSERT(!zeros(wf_slice(bias->grad, 2, 0, SEEN)));
    wf_tape_close(tape);
    problem_close(&p);
}

/* Rows are zeros where no key is left, and so are gradients. */
static void no_keys(void)
{
    problem p = problem_open(0);
    wf_tape *tape = wf_tape_open(p.ctx);
    wf_tensor *q = wf_leaf(p.q), *k = wf_leaf(p.k), *v = wf_leaf(p.v), *bias = wf_leaf(p.bias);
    wf_tensor *y;

    y = wf_attention(q, k, v, &(wf_attention_options){.bias = bias, .mask = p.mask});
    CU_ASSERT_FATAL(y != NULL);
    CU_ASSERT(zeros(y));
    wf_backward(y, p.q, false);
    CU_ASSERT(zeros(q->grad) && zeros(k->grad) && zeros(v->grad) && zeros(bias->grad));
    y = wf_attention(q, wf_slice(p.k, 1, 0, 0), wf_slice(p.v, 1, 0, 0), NULL);
    CU_ASSERT_FATAL(y != NULL);
    CU_ASSERT(zeros(y));
    wf_tape_close(tape);
    problem_close(&p);
}

/* A copy stored as bf16, and one of the same numbers in floats. */
static void as_bf16(wf_tensor *x, wf_tensor **half, wf_tensor **full)
{
    *half = wf_tensor_new(x->ctx, WF_BF16, x->ndim, x->dim, NULL, WF_MEMORY_ACTIVATION);
    *full = wf_tensor_new(x->ctx, WF_F32, x->ndim, x->dim, NULL, WF_MEMORY_ACTIVATION);
    CU_ASSERT_FATAL(*half && *full);
    for (int64_t i = 0; i < wf_tensor_count(x); i++) {
        uint16_t bits = wf_bf16_of(((const float *)x->data)[i]);

        ((uint16_t *)(*half)->data)[i] = bits;
        ((float *)(*full)->data)[i] = wf_bf16_value(bits);
    }
}

/* Returns the norm of a difference over that of `want`. */
static double apart(const wf_tensor *x, const wf_tensor *want)
{
    double difference = 0, all = 0;

    for (int64_t i = 0; i < wf_tensor_count(x); i++) {
        double a = x->dtype == WF_BF16 ? (double)wf_bf16_value(((const uint16_t *)x->data)[i])
                                       : (double)((const float *)x->data)[i];
        double b = (double)((const float *)want->data)[i];

        difference += (a - b) * (a - b);
        all += b * b;
    }
    return sqrt(difference / all);
}

/* Products of bf16 numbers under a bias, and under a mask and a cap, beside those of floats. */
static void bf16_numbers(void)
{
    enum { Q, K, V, BIAS, OPERANDS };
    problem p = problem_open(SEEN);
    wf_tape *tape = wf_tape_open(p.ctx);
    wf_tensor *from[OPERANDS] = {p.q, p.k, p.v, p.bias}, *in[2][OPERANDS], *y[2], *seed[2];

    wf_random_fill_normal(p.bias->data, wf_tensor_count(p.bias), 5, 9, 0);
    as_bf16(p.q, &seed[1], &seed[0]);
    for (int i = Q; i < OPERANDS; i++)
        as_bf16(from[i], &in[1][i], &in[0][i]);
    for (int half = 0; half < 2; half++) {
        wf_context_storage(p.ctx, half ? WF_BF16 : WF_F32);
        for (int i = Q; i < OPERANDS; i++)
            in[half][i] = wf_leaf(in[half][i]);
        y[half] =
            wf_attention(in[half][Q], in[half][K], in[half][V],
                         &(wf_attention_options){.bias = in[half][BIAS], .dropout = 0.2F});
        y[half] =
            wf_add(y[half], wf_attention(in[half][Q], in[half][K], in[half][V],
                                         &(wf_attention_options){.cap = 0.4F, .mask = p.mask}));
        wf_backward(y[half], seed[half], false);
    }
    CU_ASSERT_EQUAL_FATAL(wf_context_status(p.ctx), WF_OK);
    CU_ASSERT(y[1]->dtype == WF_BF16 && apart(y[1], y[0]) < 0.01);
    for (int i = Q; i < OPERANDS; i++)
        CU_ASSERT(apart(in[1][i]->grad, in[0][i]->grad) < 0.02);
    wf_tape_close(tape);
    problem_close(&p);
}

static void expect_refused(problem *p, const wf_attention_options *o, const char *text)
{
    CU_ASSERT_PTR_NULL(wf_attention(p->q, p->k, p->v, o));
    CU_ASSERT_PTR_NOT_NULL(strstr(wf_context_error(p->ctx)->text, text));
    wf_context_clear(p->ctx);
}

static void refusals(void)
{
    problem p = problem_open(KEYS);
    wf_tensor *first = wf_tensor_new(p.ctx, WF_I32, 2, (wf_dim[]){p.q->dim[0], p.q->dim[1]},
                                     NULL, WF_MEMORY_ACTIVATION);

    expect_refused(&p, &(wf_attention_options){.causal = true},
                   "70 tokens are causal over 150 others");
    expect_refused(&p, &(wf_attention_options){.mask = p.bias}, "operand 3 has 3 dims");
    expect_refused(&p, &(wf_attention_options){.bias = p.mask}, "a bias of 2 dims");
    expect_refused(&p, &(wf_attention_options){.bias = p.bias, .cap = 1}, "1 beside a bias");
    expect_refused(&p, &(wf_attention_options){.bias = wf_slice(p.bias, 1, 0, 3)},
                   "dim 1 of operand 3 has size 3");
    p.k = p.v = operand(p.ctx, 4, p.q->dim, 6);
    expect_refused(&p, &(wf_attention_options){.causal = true, .first = first, .mask = p.mask},
                   "`first` beside a mask");
    problem_close(&p);
}

static const op_entry entries[] = {{"attention", attention},
                                   {"attention with dropout", attention_dropout},
                                   {"attention to all tokens", attention_bidirectional},
                                   {"attention from a first token on", attention_from},
                                   {"attention in a window, under a cap", attention_window},
                                   {"attention to other keys", attention_cross},
                                   {"attention with a bias", attention_bias},
                                   {"attention_cached", attention_cached},
                                   {NULL, NULL}};

int main(void)
{
    static const wf_test more[] = {{"keys that are hidden", hidden_keys},
                                   {"no keys are left", no_keys},
                                   {"bf16 numbers under a bias", bf16_numbers},
                                   {"refusals", refusals},
                                   {NULL, NULL}};

    return op_main(OP_SUITE_ATTENTION, entries, more);
}

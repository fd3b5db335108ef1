/*
 * tests/kernels/test_route_capacity.c - experts that take a number of tokens of a sequence at
 * most: which they take, in numbers that can be read; and what experts make of the rest, beside
 * the reference and finite differences.
 */
#include "kernels/ops.h"
#include "kernels/route_capacity_internal.h"
#include "tests/kernels/op_harness.h"
#include <math.h>
#include <string.h>

enum { EXPERTS = 5 };

/* ---- kernels beside the reference ---- */

static void apply_experts(wf_tensor *const *in, wf_tensor **out)
{
    wf_tensor *weights, *index;

    wf_route(in[4], NULL, &(wf_route_options){.k = 3, .normalise = true}, &weights, &index);
    index = wf_route_capacity(index, &(wf_route_limit){.experts = EXPERTS, .most = 2});
    out[0] =
        wf_experts(in[0], in[1], in[2], in[3], weights, index, &(wf_experts_bound){.taken = 2});
}

static op_operand matrices(wf_dim a, wf_dim b)
{
    return (op_operand){.ndim = 3,
                        .dim = {wf_dim_experts(EXPERTS), a, b},
                        .wanted = true,
                        .low = -0.5,
                        .high = 0.5};
}

static void experts(op_case *c, const op_shape *s)
{
    wf_dim width = wf_dim_width(s->width), features = wf_dim_width(s->groups + 2);

    *c = op_case_of(5, 1, apply_experts);
    c->in[0] = c->in[1] = matrices(features, width);
    c->in[2] = matrices(width, features);
    c->in[3] = op_activations(s, width);
    c->in[4] = op_activations(s, wf_dim_width(EXPERTS));
}

static const op_entry cases[] = {{"experts with a capacity", experts}, {NULL, NULL}};

/* ---- numbers that can be read ---- */

enum { TOKENS = 6, K = 2 };

static const float chosen[] = {0, 1, 0, 2, 0, 1, 1, 3, 0, 3, 0, 1, /* a sequence, and another */
                               0, 3, 1, 3, 2, 3, 0, 1, 1, 2, 0, 2};

static wf_tensor *index_of(wf_context *ctx)
{
    const wf_dim dims[] = {wf_dim_batch(2), wf_dim_chunked(TOKENS), wf_dim_width(K)};
    wf_tensor *t = wf_tensor_new(ctx, WF_F32, 3, dims, NULL, WF_MEMORY_ACTIVATION);

    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    memcpy(t->data, chosen, sizeof chosen);
    return t;
}

static wf_tensor *whole_numbers(wf_context *ctx, int64_t columns, const int32_t *from)
{
    const wf_dim dims[] = {wf_dim_batch(2),
                           columns == TOKENS ? wf_dim_chunked(TOKENS) : wf_dim_width(columns)};
    wf_tensor *t = wf_tensor_new(ctx, WF_I32, 2, dims, NULL, WF_MEMORY_ACTIVATION);

    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    memcpy(t->data, from, (size_t)(2 * columns) * sizeof *from);
    return t;
}

/* Checks which choices are taken: 4 experts are none. */
static void takes(wf_context *ctx, const wf_route_limit *limit, const char *taken)
{
    wf_tensor *t = wf_route_capacity(index_of(ctx), limit);

    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    for (int i = 0; i < 2 * TOKENS * K; i++)
        CU_ASSERT_EQUAL(((const float *)t->data)[i], taken[i] == 'x' ? 4 : chosen[i]);
}

/* Earlier tokens come first, in each sequence, in each document, and after those that were
   there before. */
static void who_is_taken(void)
{
    static const int32_t first[] = {0, 0, 2, 2, 2, 5, 0, 0, 0, 0, 4, 4};
    static const int32_t before[] = {2, 0, 0, 1, 0, 0, 0, 0};
    wf_context *ctx = op_context_open(1);

    wf_scope_open(ctx);
    takes(ctx, &(wf_route_limit){.experts = 4, .most = 9}, "........................");
    takes(ctx, &(wf_route_limit){.experts = 4, .most = 2}, "....x.x.x.xx.....x..x.xx");
    takes(ctx, &(wf_route_limit){.experts = 4, .most = 1}, "..x.xxx.xxxx...x.xxxxxxx");
    takes(
        ctx,
        &(wf_route_limit){.experts = 4, .most = 1, .first = whole_numbers(ctx, TOKENS, first)},
        "..x...x.xx.....x.xxx...x");
    takes(ctx,
          &(wf_route_limit){.experts = 4, .most = 2, .before = whole_numbers(ctx, 4, before)},
          "x.x.x.x.xxxx.....x..x.xx");
    wf_scope_close(ctx);
    wf_context_close(ctx);
}

/* A token whose experts have all they take is nothing; its weights have no gradient. */
static void nothing_is_left(void)
{
    wf_context *ctx = op_context_open(1);
    const wf_dim none[] = {wf_dim_experts(1), wf_dim_width(2), wf_dim_width(2)};
    const wf_dim rows[] = {wf_dim_batch(1), wf_dim_chunked(3), wf_dim_width(2)};
    const wf_dim one[] = {wf_dim_batch(1), wf_dim_chunked(3), wf_dim_width(1)};
    wf_tensor *m, *x, *weights, *index, *y;

    wf_scope_open(ctx);
    m = wf_tensor_new(ctx, WF_F32, 3, none, NULL, WF_MEMORY_ACTIVATION);
    x = wf_tensor_new(ctx, WF_F32, 3, rows, NULL, WF_MEMORY_ACTIVATION);
    weights = wf_tensor_new(ctx, WF_F32, 3, one, NULL, WF_MEMORY_ACTIVATION);
    index = wf_tensor_new(ctx, WF_F32, 3, one, NULL, WF_MEMORY_ACTIVATION);
    for (int i = 0; i < 6; i++)
        ((float *)x->data)[i] = ((float *)m->data)[i % 4] = 1;
    for (int i = 0; i < 3; i++) {
        ((float *)weights->data)[i] = -1;
        ((float *)index->data)[i] = 0;
    }
    index = wf_route_capacity(index, &(wf_route_limit){.experts = 1, .most = 1});
    y = wf_experts(m, m, m, x, weights, index, &(wf_experts_bound){.taken = 1});
    CU_ASSERT_PTR_NOT_NULL_FATAL(y);
    CU_ASSERT(((const float *)y->data)[0] < 0);
    for (int i = 2; i < 6; i++)
        CU_ASSERT(((const float *)y->data)[i] == 0 && !signbit(((const float *)y->data)[i]));
    wf_scope_close(ctx);
    wf_context_close(ctx);
}

static void refusals(void)
{
    wf_context *ctx = op_context_open(1);

    wf_scope_open(ctx);
    CU_ASSERT_PTR_NULL(
        wf_route_capacity(index_of(ctx), &(wf_route_limit){.experts = 3, .most = 1}));
    CU_ASSERT_PTR_NOT_NULL(strstr(wf_context_error(ctx)->text, "index 3, of 3 experts"));
    wf_scope_close(ctx);
    wf_context_close(ctx);
    ctx = op_context_open(1);
    wf_scope_open(ctx);
    CU_ASSERT_PTR_NULL(wf_route_capacity(index_of(ctx), &(wf_route_limit){.experts = 4}));
    CU_ASSERT_PTR_NOT_NULL(strstr(wf_context_error(ctx)->text, "0 tokens of a sequence"));
    wf_scope_close(ctx);
    wf_context_close(ctx);
}

int main(void)
{
    static const wf_test tests[] = {{"who is taken", who_is_taken},
                                    {"nothing is left", nothing_is_left},
                                    {"refusals", refusals},
                                    {NULL, NULL}};

    return op_main(OP_SUITE_COMPUTED, cases, tests);
}

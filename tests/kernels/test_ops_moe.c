/*
 * tests/kernels/test_ops_moe.c - mixtures of experts: cases for op_harness.h, what a router
 * gives for numbers that can be read, ties, experts without tokens and with all of them, zeros
 * without a sign, and what is refused.
 */
#include "core/host_data.h"
#include "kernels/route_balance_internal.h"
#include "tests/kernels/moe_cases.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Rows of weights are cut by the chunks of k, as a linear layer's. */
static void apply_logits(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_linear_fp32(in[0], in[1]);
}

static void logits(op_case *c, const op_shape *s)
{
    *c = op_case_of(2, 1, apply_logits);
    c->in[0] = op_activations(s, op_width(s));
    c->in[1] = op_matrix(wf_dim_width(MOE_EXPERTS), op_width(s));
}

static void route_by(wf_tensor *const *in, const wf_route_options *o, wf_tensor **out)
{
    wf_route(in[0], o->sigmoid ? in[1] : NULL, o, &out[0], &out[1]);
}

static void apply_softmax(wf_tensor *const *in, wf_tensor **out)
{
    route_by(in, &(wf_route_options){.k = 3, .normalise = true}, out);
    route_by(in, &(wf_route_options){.k = 2, .factor = 2.5F}, out + 2);
}

static void apply_others(wf_tensor *const *in, wf_tensor **out)
{
    route_by(in, &(wf_route_options){.k = 4, .after = true}, out);
    route_by(in,
             &(wf_route_options){.k = 3, .sigmoid = true, .normalise = true, .factor = 1.5F},
             out + 2);
}

static void route(op_case *c, const op_shape *s,
                  void (*apply)(wf_tensor *const *, wf_tensor **))
{
    *c = op_case_of(2, 4, apply);
    c->in[0] = op_activations(s, wf_dim_width(MOE_EXPERTS));
    c->in[1] = op_unwanted(op_vector(wf_dim_width(MOE_EXPERTS)));
    c->constant[1] = c->constant[3] = true;
}

static void softmax(op_case *c, const op_shape *s)
{
    route(c, s, apply_softmax);
}

/* Loads, losses and gradients of losses, which have no gradient. */
static void apply_balance(wf_tensor *const *in, wf_tensor **out)
{
    const wf_balance balance = {.weight = 0.5, .z = 0.25, .sequences = 3, .sigmoid = true};
    const wf_route_options options = {
        .k = 2, .sigmoid = true, .sequence_weight = 0.5F, .z_weight = 0.25F};
    wf_tensor *weights, *index;

    wf_route(in[0], NULL, &(wf_route_options){.k = 2}, &weights, &index);
    wf_route_losses(in[0], index, NULL, &options, &out[2], &out[3]);
    out[0] = wf_apply(&wf_op_route_load, NULL, 0, 2, in[0], index);
    out[1] = wf_apply(&wf_op_route_balance, &balance, sizeof balance, 2, in[0], index);
}

static void balance(op_case *c, const op_shape *s)
{
    *c = op_case_of(1, 4, apply_balance);
    c->in[0] = op_unwanted(op_activations(s, wf_dim_width(MOE_EXPERTS)));
    for (int o = 0; o < 4; o++)
        c->constant[o] = true;
}

static void others(op_case *c, const op_shape *s)
{
    route(c, s, apply_others);
}

/* Tokens choose by logits of their own. */
static void apply_experts(wf_tensor *const *in, wf_tensor **out)
{
    wf_tensor *weights, *index;

    wf_route(in[4], NULL, &(wf_route_options){.k = 3, .normalise = true}, &weights, &index);
    out[0] = wf_experts(in[0], in[1], in[2], in[3], weights, index, NULL);
}

static void experts(op_case *c, const op_shape *s)
{
    moe_case(c, s, apply_experts);
}

static void frozen(op_case *c, const op_shape *s)
{
    experts(c, s);
    for (int i = 0; i < 3; i++)
        c->in[i] = op_unwanted(c->in[i]);
}

static void apply_adapted(wf_tensor *const *in, wf_tensor **out)
{
    const wf_experts_adapters adapters = moe_case_adapters(in);
    wf_tensor *weights, *index;

    wf_route(in[4], NULL, &(wf_route_options){.k = 3, .normalise = true}, &weights, &index);
    out[0] = wf_experts_adapted(in[0], in[1], in[2], in[3], weights, index, &adapters, NULL);
}

static void adapted(op_case *c, const op_shape *s)
{
    frozen(c, s);
    c->apply = apply_adapted;
    moe_case_factors(c);
}

static const op_entry cases[] = {
    {"logits", logits}, {"softmax", softmax}, {"others", others},   {"experts", experts},
    {"frozen", frozen}, {"balance", balance}, {"adapted", adapted}, {NULL, NULL}};

/* ---- numbers that can be read ---- */

static wf_tensor *tensor_of(wf_context *ctx, int ndim, const wf_dim *dims, const float *from)
{
    wf_tensor *t = wf_tensor_new(ctx, WF_F32, ndim, dims, NULL, WF_MEMORY_ACTIVATION);

    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    memcpy(t->data, from, (size_t)wf_tensor_count(t) * sizeof *from);
    return t;
}

static wf_tensor *rows_of(wf_context *ctx, int64_t rows, int64_t n, const float *from)
{
    return tensor_of(ctx, 2, (const wf_dim[]){wf_dim_batch(rows), wf_dim_width(n)}, from);
}

static void is(const wf_tensor *t, int n, const float *want)
{
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    CU_ASSERT_EQUAL_FATAL(wf_tensor_local_count(t), n);
    for (int i = 0; i < n; i++)
        CU_ASSERT_DOUBLE_EQUAL((double)((const float *)t->data)[i], (double)want[i], 1e-6);
}

#define IS(t, ...)                                                                             \
    is(t, (int)(sizeof((const float[]){__VA_ARGS__}) / sizeof(float)),                         \
       (const float[]){__VA_ARGS__})

/* Ties are the lower expert's, chosen ones ascend, and a bias chooses without being in a
   weight. */
static void readable(void)
{
    wf_context *ctx = op_context_open(1);
    wf_tensor *x, *bias, *weights, *index;

    wf_scope_open(ctx);
    x = rows_of(ctx, 3, 4, (const float[]){1, 3, 3, 3, 0, 0, 0, 0, 5, -1, 5, 5});
    wf_route(x, NULL, &(wf_route_options){.k = 2, .normalise = true}, &weights, &index);
    IS(index, 1, 2, 0, 1, 0, 2);
    IS(weights, 0.5F, 0.5F, 0.5F, 0.5F, 0.5F, 0.5F);
    wf_route(x, NULL, &(wf_route_options){.k = 3, .after = true}, &weights, &index);
    IS(index, 1, 2, 3, 0, 1, 2, 0, 2, 3);
    x = rows_of(ctx, 1, 4, (const float[]){3, 3, 5, 0}); /* the later one of two equals goes */
    wf_route(x, NULL, &(wf_route_options){.k = 2, .after = true}, &weights, &index);
    IS(index, 0, 2);
    x = rows_of(ctx, 1, 3, (const float[]){0, 0, 0});
    bias = tensor_of(ctx, 1, (const wf_dim[]){wf_dim_width(3)}, (const float[]){0, 9, 8});
    wf_route(x, bias, &(wf_route_options){.k = 2, .sigmoid = true}, &weights, &index);
    IS(index, 1, 2);
    IS(weights, 0.5F, 0.5F);
    wf_route(x, NULL, &(wf_route_options){.k = 2, .sigmoid = true, .factor = 3}, &weights,
             &index);
    IS(index, 0, 1);
    IS(weights, 1.5F, 1.5F);
    x = rows_of(ctx, 1, 4, (const float[]){0, 3, 9, 2}); /* each expert with its own weight */
    wf_route(x, NULL, &(wf_route_options){.k = 3, .sigmoid = true}, &weights, &index);
    IS(index, 1, 2, 3);
    IS(weights, 0.95257413F, 0.99987661F, 0.88079708F);
    wf_route(x, NULL, &(wf_route_options){.k = 2, .after = true}, &weights, &index);
    IS(index, 1, 2);
    IS(weights, 0.00247262F, 0.99752738F);
    CU_ASSERT_EQUAL(wf_context_status(ctx), WF_OK);
    wf_scope_close(ctx);
    wf_context_close(ctx);
}

/* Operands of one feature: an expert gives silu(gate x) up x down. */
typedef struct small {
    wf_tensor *gate, *up, *down, *x, *weights, *index;
} small;

static wf_tensor *of_experts(wf_context *ctx, int64_t n, const float *from)
{
    return tensor_of(
        ctx, 3, (const wf_dim[]){wf_dim_experts(n), wf_dim_width(1), wf_dim_width(1)}, from);
}

static small small_of(wf_context *ctx, const float *gate, const float *down, int64_t tokens,
                      int64_t k, const float *weights, const float *index)
{
    const wf_dim batch = wf_dim_batch(1), rows = wf_dim_chunked(tokens);
    float ones[8];

    for (int i = 0; i < 8; i++)
        ones[i] = 1;
    return (small){
        .gate = of_experts(ctx, 3, gate),
        .up = of_experts(ctx, 3, ones),
        .down = of_experts(ctx, 3, down),
        .x = tensor_of(ctx, 3, (const wf_dim[]){batch, rows, wf_dim_width(1)}, ones),
        .weights = tensor_of(ctx, 3, (const wf_dim[]){batch, rows, wf_dim_width(k)}, weights),
        .index = tensor_of(ctx, 3, (const wf_dim[]){batch, rows, wf_dim_width(k)}, index)};
}

static wf_tensor *apply(const small *s)
{
    return wf_experts(s->gate, s->up, s->down, s->x, s->weights, s->index, NULL);
}

/* All tokens to one expert, and others have none: their gradients are +0. */
static void one_expert(void)
{
    const float same[] = {2, 2, 2}, w[] = {1, 1, 1, 1}, to[] = {1, 1, 1, 1};
    wf_context *ctx = op_context_open(2);
    wf_tape *tape = wf_tape_open(ctx);
    wf_tensor *gate, *y, *seed;
    small s;

    wf_scope_open(ctx);
    s = small_of(ctx, same, same, 4, 1, w, to);
    gate = s.gate = wf_leaf(s.gate);
    y = apply(&s);
    CU_ASSERT_PTR_NOT_NULL_FATAL(y);
    CU_ASSERT_DOUBLE_EQUAL((double)((const float *)y->data)[3], 4 / (1 + exp(-2)), 1e-5);
    seed = tensor_of(ctx, 3, y->dim, w);
    CU_ASSERT_EQUAL_FATAL(wf_backward(y, seed, false), WF_OK);
    CU_ASSERT_PTR_NOT_NULL_FATAL(gate->grad);
    for (int e = 0; e < 3; e++) {
        float g = ((const float *)gate->grad->data)[e];

        CU_ASSERT(e == 1 ? g > 1 : g == 0 && !signbit(g));
    }
    wf_scope_close(ctx);
    wf_tape_close(tape);
    wf_context_close(ctx);
}

/* More rows than 16 bits count, and more than bf16 tells apart: the tokens after these have
   their own results, and their terms in the gradient of a matrix. */
static void many_rows(void)
{
    enum { FIRST = 1 << 16, MORE = 3, ROWS = FIRST + MORE };
    const float same[] = {1, 1, 1};
    const wf_dim dims[] = {wf_dim_batch(1), wf_dim_chunked(ROWS), wf_dim_width(1)};
    wf_context *ctx = op_context_open(2);
    wf_tape *tape = wf_tape_open(ctx);
    wf_tensor *x, *ones, *to, *up, *y;
    float *row[3];

    wf_scope_open(ctx);
    for (int i = 0; i < 3; i++)
        row[i] = calloc(ROWS, sizeof **row);
    for (int64_t t = 0; t < ROWS; t++) {
        row[0][t] = t < FIRST ? 0 : 2;
        row[1][t] = row[2][t] = 1;
    }
    x = tensor_of(ctx, 3, dims, row[0]);
    ones = tensor_of(ctx, 3, dims, row[1]);
    to = tensor_of(ctx, 3, dims, row[2]);
    up = wf_leaf(of_experts(ctx, 3, same));
    y = wf_experts(of_experts(ctx, 3, same), up, of_experts(ctx, 3, same), x, ones, to, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(y);
    for (int64_t t = FIRST - 1; t < ROWS; t++)
        CU_ASSERT_DOUBLE_EQUAL((double)((const float *)y->data)[t],
                               t < FIRST ? 0 : 4 / (1 + exp(-2)), 1e-5);
    CU_ASSERT_EQUAL_FATAL(wf_backward(y, ones, false), WF_OK);
    CU_ASSERT_PTR_NOT_NULL_FATAL(up->grad);
    CU_ASSERT_DOUBLE_EQUAL((double)((const float *)up->grad->data)[1], MORE * 4 / (1 + exp(-2)),
                           1e-4);
    for (int i = 0; i < 3; i++)
        free(row[i]);
    wf_scope_close(ctx);
    wf_tape_close(tape);
    wf_context_close(ctx);
}

/* A product of a weight and a small number underflows to -0: a sum that is zero has no sign, as
   where another rank adds its +0 to it. */
static void no_negative_zero(void)
{
    const float same[] = {1, 1, 1}, down[] = {-1e-38F, -1e-38F, -1e-38F},
                w[] = {1e-30F, 1e-30F}, to[] = {0, 2};
    wf_context *ctx = op_context_open(1);
    const float *y;
    wf_tensor *t;
    small s;

    wf_scope_open(ctx);
    s = small_of(ctx, same, down, 1, 2, w, to);
    t = apply(&s);
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    y = t->data;
    CU_ASSERT(y[0] == 0 && !signbit(y[0]));
    wf_scope_close(ctx);
    wf_context_close(ctx);
}

static void refused(wf_context *ctx, const wf_tensor *y, wf_status code, const char *words)
{
    CU_ASSERT_PTR_NULL(y);
    CU_ASSERT_EQUAL(wf_context_status(ctx), code);
    if (!strstr(wf_context_error(ctx)->text, words)) {
        printf("    '%s' is not in '%s'\n", words, wf_context_error(ctx)->text);
        CU_FAIL("see above");
    }
    wf_context_clear(ctx);
}

static void refusals(void)
{
    const float same[] = {1, 1, 1}, w[] = {1, 1};
    static const float wrong[][2] = {{1, 1}, {2, 0}, {0, 4}, {0, 0.5F}, {-1, 0}, {NAN, 1}};
    wf_context *ctx = op_context_open(1);
    wf_tensor *x, *weights, *index;

    wf_scope_open(ctx);
    x = rows_of(ctx, 2, 3, (const float[]){1, 2, 3, 4, NAN, 6});
    wf_route(x, NULL, &(wf_route_options){.k = 1}, &weights, &index);
    refused(ctx, weights, WF_EINVAL, "the score of expert 1 for row 0 of sequence 1 is NaN");
    wf_route(x, NULL, &(wf_route_options){.k = 4}, &weights, &index);
    refused(ctx, weights, WF_ESHAPE, "route: 4 of 3 experts");
    wf_route(x, NULL, &(wf_route_options){.k = 0}, &weights, &index);
    refused(ctx, weights, WF_ESHAPE, "route: 0 of 3 experts");
    wf_route(x, NULL, &(wf_route_options){.k = 1, .sigmoid = true, .after = true}, &weights,
             &index);
    refused(ctx, weights, WF_EINVAL, "set one of sigmoid and after");
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        small s = small_of(ctx, same, same, 1, 2, w, wrong[i]);

        refused(ctx, apply(&s), WF_EINVAL, "whole numbers that ascend");
        if (i > 0)
            continue;
        s.gate->dim[0] = s.up->dim[0] = s.down->dim[0] = wf_dim_chunked(s.gate->dim[0].size);
        refused(ctx, apply(&s), WF_ESHAPE, "make it wf_dim_experts");
    }
    wf_scope_close(ctx);
    wf_context_close(ctx);
}

int main(void)
{
    static const wf_test more[] = {{"numbers that can be read", readable},
                                   {"one expert has all tokens", one_expert},
                                   {"more rows than 16 bits count", many_rows},
                                   {"a sum of nothing has no sign", no_negative_zero},
                                   {"refusals", refusals},
                                   {NULL, NULL}};

    return op_main(OP_SUITE_MOE, cases, more);
}

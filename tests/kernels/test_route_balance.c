/*
 * tests/kernels/test_route_balance.c - what balances experts: gradients of losses beside finite
 * differences, and counts of choices in numbers that can be read.
 */
#include "core/numerics/tree.h"
#include "core/tape.h"
#include "kernels/ops.h"
#include "kernels/route_balance_internal.h"
#include "tests/kernels/op_harness.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static wf_tensor *tensor_of(wf_context *ctx, int ndim, const wf_dim *dims, const float *from)
{
    wf_tensor *t = wf_tensor_new(ctx, WF_F32, ndim, dims, NULL, WF_MEMORY_ACTIVATION);

    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    memcpy(t->data, from, (size_t)wf_tensor_count(t) * sizeof *from);
    return t;
}

static void is(const wf_tensor *t, const float want[8])
{
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    CU_ASSERT_EQUAL_FATAL(wf_tensor_local_count(t), 8);
    for (int i = 0; i < 8; i++)
        CU_ASSERT_EQUAL(((const float *)t->data)[i], want[i]);
}

#define IS(t, ...) is(t, (const float[8]){__VA_ARGS__})

/* The loss of balance of sequences of 4 tokens that chose 2 of 3 experts, or by the counts of
   a step before, and the z-loss. */
static double losses(const wf_balance *o, const double *x, const float *index,
                     const float *counts)
{
    const double total = counts ? (double)(counts[0] + counts[1] + counts[2]) : 0;
    double loss = 0;

    for (int b = 0; b < 2; b++) {
        double count[3] = {0}, share[3] = {0};

        for (int t = 4 * b; t < 4 * b + 4; t++) {
            double score[3], sum = 0, exps = 0;

            for (int e = 0; e < 3; e++) {
                score[e] = o->sigmoid ? 1 / (1 + exp(-x[3 * t + e])) : exp(x[3 * t + e]);
                sum += score[e];
                exps += exp(x[3 * t + e]);
            }
            for (int e = 0; e < 3; e++)
                share[e] += score[e] / sum / 4;
            count[(int)index[2 * t]]++;
            count[(int)index[2 * t + 1]]++;
            loss += o->z * log(exps) * log(exps) / 4 / o->sequences;
        }
        for (int e = 0; e < 3; e++)
            loss += o->weight * share[e] / o->sequences *
                    (!counts     ? count[e] * 3 / (2 * 4)
                     : total > 0 ? (double)counts[e] * 3 / total
                                 : 1);
    }
    return loss;
}

/* Values of both losses of 2 sequences, whose weighted mean is the loss by hand. */
static void check_values(const wf_balance *o, wf_tensor *logits, wf_tensor *index,
                         wf_tensor *counts, double loss)
{
    const wf_route_options options = {.k = 2,
                                      .sigmoid = o->sigmoid,
                                      .sequence_weight = counts ? 0 : (float)o->weight,
                                      .global_weight = counts ? (float)o->weight : 0,
                                      .z_weight = (float)o->z};
    wf_tensor *sequence, *z;
    const float *of[2];

    wf_route_losses(logits, index, counts, &options, &sequence, &z);
    CU_ASSERT_PTR_NOT_NULL_FATAL(sequence);
    CU_ASSERT_EQUAL_FATAL(wf_tensor_local_count(sequence), 2);
    of[0] = sequence->data, of[1] = z->data;
    CU_ASSERT_EQUAL(of[0][0] > 0, o->weight > 0);
    CU_ASSERT_EQUAL(of[1][0] > 0, o->z > 0);
    loss -= o->weight * (double)(of[0][0] + of[0][1]) / o->sequences;
    loss -= o->z * (double)(of[1][0] + of[1][1]) / o->sequences;
    CU_ASSERT_DOUBLE_EQUAL(loss, 0, 1e-6);
}

/* Gradients are those of the losses by finite differences, choices and counts as they are;
   before the first step that of counts is 0. */
static void gradients(void)
{
    static const float counted[][3] = {{7, 2, 3}, {0, 0, 0}};
    const wf_dim experts = wf_dim_width(3);
    static const float x[24] = {1, 3, 2, 0, 1, 2, 2,  1, 3,  1, 0, 5,
                                0, 1, 2, 3, 1, 0, -1, 1, -2, 2, 0, 1};
    const wf_dim dims[] = {wf_dim_batch(2), wf_dim_chunked(4), wf_dim_width(3)};
    wf_context *ctx = op_context_open(1);

    wf_scope_open(ctx);
    for (int kind = 0; kind < 18; kind++) {
        const float *by = kind >= 6 ? counted[kind >= 12] : NULL;
        const wf_balance o = {.weight = kind % 3 == 1 ? 0 : 0.7,
                              .z = kind % 3 == 2 ? 0 : 0.3,
                              .sequences = 5,
                              .sigmoid = kind % 6 >= 3};
        wf_tensor *t = tensor_of(ctx, 3, dims, x), *weights, *index, *got;
        wf_tensor *counts = by ? tensor_of(ctx, 1, &experts, by) : NULL;
        double at[24];

        wf_route(t, NULL, &(wf_route_options){.k = 2, .sigmoid = o.sigmoid}, &weights, &index);
        got = wf_apply(&wf_op_route_balance, &o, sizeof o, by ? 3 : 2, t, index, counts);
        CU_ASSERT_PTR_NOT_NULL_FATAL(got);
        for (int i = 0; i < 24 && kind >= 12 && o.z <= 0; i++)
            CU_ASSERT_EQUAL(((const float *)got->data)[i], 0);
        for (int i = 0; i < 24; i++)
            at[i] = (double)x[i];
        check_values(&o, t, index, counts, losses(&o, at, index->data, by));
        for (int i = 0; i < 24; i++) {
            double up, down;

            at[i] += 1e-5;
            up = losses(&o, at, index->data, by);
            at[i] -= 2e-5;
            down = losses(&o, at, index->data, by);
            at[i] += 1e-5;
            CU_ASSERT_DOUBLE_EQUAL((double)((const float *)got->data)[i], (up - down) / 2e-5,
                                   1e-6);
        }
    }
    wf_scope_close(ctx);
    wf_context_close(ctx);
}

/* A sequence's loss is of its row alone: two rows have the gradients that each has by itself,
   and not those of one row of all tokens, whatever documents are packed in them. */
static void rows_alone(void)
{
    static const float x[24] = {1, 3, 2, 0, 1, 2, 2,  1, 3,  1, 0, 5,
                                0, 1, 2, 3, 1, 0, -1, 1, -2, 2, 0, 1};
    static const int64_t rows[] = {2, 1, 1, 1}, tokens[] = {4, 4, 4, 8};
    const wf_balance o = {.weight = 0.7, .sequences = 2};
    wf_context *ctx = op_context_open(1);
    const float *got[4];

    wf_scope_open(ctx);
    for (int i = 0; i < 4; i++) {
        const wf_dim dims[] = {wf_dim_batch(rows[i]), wf_dim_chunked(tokens[i]),
                               wf_dim_width(3)};
        wf_tensor *t = tensor_of(ctx, 3, dims, i == 2 ? x + 12 : x), *weights, *index;

        wf_route(t, NULL, &(wf_route_options){.k = 2}, &weights, &index);
        t = wf_apply(&wf_op_route_balance, &o, sizeof o, 2, t, index);
        CU_ASSERT_PTR_NOT_NULL_FATAL(t);
        got[i] = t->data;
    }
    CU_ASSERT_EQUAL(memcmp(got[0], got[1], 12 * sizeof(float)), 0);
    CU_ASSERT_EQUAL(memcmp(got[0] + 12, got[2], 12 * sizeof(float)), 0);
    CU_ASSERT_NOT_EQUAL(memcmp(got[0], got[3], 12 * sizeof(float)), 0);
    wf_scope_close(ctx);
    wf_context_close(ctx);
}

/* A bias takes counts for its gradient: 3 and 6 choices of 4 experts are 3/4 and 6/4 on
   average, so these are times 4 and 2. */
static void loads(void)
{
    wf_context *ctx = op_context_open(1);
    wf_tape *tape = wf_tape_open(ctx);
    const wf_dim dims[] = {wf_dim_batch(2), wf_dim_chunked(3), wf_dim_width(4)};
    const float x[] = {9, 1, 2, 3, 9, 1, 2, 3, 9, 5, 2, 3, 0, 1, 2, 9, 9, 1, 5, 2, 3, 0, 1, 2};
    wf_tensor *t, *bias, *weights, *index;

    wf_scope_open(ctx);
    t = tensor_of(ctx, 3, dims, x);
    bias = wf_leaf(
        tensor_of(ctx, 1, (const wf_dim[]){wf_dim_width(4)}, (const float[]){0, 0, 0, 0}));
    for (int k = 1; k <= 2; k++) {
        wf_route(t, bias, &(wf_route_options){.k = k}, &weights, &index);
        if (k == 1)
            IS(wf_apply(&wf_op_route_load, NULL, 0, 2, t, index), 9, -3, -3, -3, 5, -3, -3, 1);
        else
            IS(wf_apply(&wf_op_route_load, NULL, 0, 2, t, index), 3, -1, -3, 1, 1, -3, 1, 1);
    }
    CU_ASSERT_EQUAL_FATAL(wf_backward(weights, wf_scale(weights, 1), false), WF_OK);
    CU_ASSERT_PTR_NOT_NULL_FATAL(bias->grad);
    IS(bias->grad, 3, -1, -3, 1, 1, -3, 1, 1);
    wf_scope_close(ctx);
    wf_tape_close(tape);
    wf_context_close(ctx);
}

/* Counts of a step that floats could not hold are refused, before anything is counted. */
static void too_many(void)
{
    const wf_dim dims[] = {wf_dim_batch(2), wf_dim_chunked(3), wf_dim_width(4)};
    const float x[24] = {0};
    /* 3 and 6 choices of 4 experts: each counts 4 and 2, so 12 and 6 a sequence */
    const int64_t most[] = {(1 << 24) / 12, (1 << 24) / 6};

    for (int k = 1; k <= 2; k++)
        for (int64_t more = 0; more < 2; more++) {
            wf_context *ctx = op_context_open(1);
            wf_tensor *t, *weights, *index, *load;

            wf_scope_open(ctx);
            t = tensor_of(ctx, 3, dims, x);
            wf_route(t, NULL, &(wf_route_options){.k = k}, &weights, &index);
            wf_context_batch(ctx, most[k - 1] + more);
            load = wf_apply(&wf_op_route_load, NULL, 0, 2, t, index);
            CU_ASSERT((load != NULL) == !more);
            CU_ASSERT_EQUAL(wf_context_status(ctx), more ? WF_EUNSUPPORTED : WF_OK);
            CU_ASSERT_EQUAL(
                strstr(wf_context_error(ctx)->text, "whole numbers up to 16777216") != NULL,
                more != 0);
            wf_scope_close(ctx);
            wf_context_close(ctx);
        }
}

/* Counts beyond what 16 bits and bf16 hold are whole. */
static void many_choices(void)
{
    enum { TOKENS = (1 << 16) + 3 };
    const wf_dim dims[] = {wf_dim_batch(1), wf_dim_chunked(TOKENS), wf_dim_width(2)};
    const wf_load_attr plain = {.plain = 1};
    wf_context *ctx = op_context_open(1);
    float *x = calloc(2 * (size_t)TOKENS, sizeof *x);
    wf_tensor *t, *weights, *index, *load;

    wf_scope_open(ctx);
    x[1] = 1; /* the first token's choice is the other one */
    t = tensor_of(ctx, 3, dims, x);
    wf_route(t, NULL, &(wf_route_options){.k = 1}, &weights, &index);
    load = wf_apply(&wf_op_route_load, &plain, sizeof plain, 2, t, index);
    CU_ASSERT_PTR_NOT_NULL_FATAL(load);
    CU_ASSERT_EQUAL(((const float *)load->data)[0], TOKENS - 1);
    CU_ASSERT_EQUAL(((const float *)load->data)[1], 1);
    free(x);
    wf_scope_close(ctx);
    wf_context_close(ctx);
}

/* The first of the ranks that share a sequence's 3 tokens takes the mean, and no other; ranks
   without a token do not. */
static void one_takes_the_mean(void)
{
    for (int64_t ranks = 1; ranks <= 8; ranks++) {
        int takers = 0;

        for (int64_t r = 0; r < ranks; r++) {
            int64_t start = wf_cut(3, 1, ranks, r), local = wf_cut(3, 1, ranks, r + 1) - start;
            wf_tensor logits = {.ndim = 3, .local = {2, local, 4}};
            wf_tensor index = {.ndim = 3,
                               .dim = {wf_dim_batch(2), wf_dim_chunked(3), wf_dim_width(2)},
                               .start = {0, start},
                               .local = {2, local, 2}};
            const wf_call call = {.n_in = 2, .in = {&logits, &index}};
            const wf_load_sizes s = wf_load_sizes_of(&call);

            CU_ASSERT_EQUAL(s.first, local > 0 && start == 0);
            takers += s.first;
        }
        CU_ASSERT_EQUAL(takers, 1);
    }
}

/* An index of no expert is refused. */
static void no_expert(void)
{
    const wf_dim dims[] = {wf_dim_batch(2), wf_dim_chunked(3), wf_dim_width(4)};
    const wf_dim chosen[] = {wf_dim_batch(2), wf_dim_chunked(3), wf_dim_width(1)};
    const float x[24] = {0}, wrong[][6] = {{0, 1, 2, 3, 4, 0}, {0, -1}, {0.5f}};

    for (int i = 0; i < 3; i++) {
        wf_context *ctx = op_context_open(1);

        wf_scope_open(ctx);
        CU_ASSERT_PTR_NULL(wf_apply(&wf_op_route_load, NULL, 0, 2, tensor_of(ctx, 3, dims, x),
                                    tensor_of(ctx, 3, chosen, wrong[i])));
        CU_ASSERT_PTR_NOT_NULL(
            strstr(wf_context_error(ctx)->text, "of 4 experts: give it those of wf_route"));
        wf_scope_close(ctx);
        wf_context_close(ctx);
    }
}

/* ---- kernels beside the reference ---- */

enum { EXPERTS = 5 };

/* Loads, losses and gradients of losses by counts, as numbers that need not be whole. */
static void apply_counts(wf_tensor *const *in, wf_tensor **out)
{
    const wf_balance balance = {.weight = 0.5, .z = 0.25, .sequences = 3};
    const wf_route_options options = {.k = 2, .z_weight = 0.25F, .global_weight = 0.5F};
    const wf_load_attr plain = {.plain = 1};
    wf_tensor *weights, *index;

    wf_route(in[0], in[1], &options, &weights, &index);
    wf_route_losses(in[0], index, in[1], &options, &out[2], &out[3]);
    out[0] = wf_apply(&wf_op_route_load, &plain, sizeof plain, 2, in[0], index);
    out[1] = wf_apply(&wf_op_route_balance, &balance, sizeof balance, 3, in[0], index, in[1]);
}

static void by_counts(op_case *c, const op_shape *s)
{
    *c = op_case_of(2, 4, apply_counts);
    c->in[0] = op_unwanted(op_activations(s, wf_dim_width(EXPERTS)));
    c->in[1] = op_unwanted(op_vector(wf_dim_width(EXPERTS)));
    c->in[1].low = 1;
    c->in[1].high = 9;
    for (int o = 0; o < 4; o++)
        c->constant[o] = true;
}

static const op_entry cases[] = {{"route_balance by counts", by_counts}, {NULL, NULL}};

int main(void)
{
    static const wf_test tests[] = {{"values and gradients of losses", gradients},
                                    {"rows alone", rows_alone},
                                    {"loads of experts", loads},
                                    {"one rank takes the mean", one_takes_the_mean},
                                    {"more than floats count", too_many},
                                    {"more than 16 bits count", many_choices},
                                    {"indices of no expert", no_expert},
                                    {NULL, NULL}};

    return op_main(OP_SUITE_COMPUTED, cases, tests);
}

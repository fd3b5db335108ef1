/*
 * tests/kernels/test_linear_joined.c - gradients of weights of several passes as one product
 * have the bits of each by itself, summed in the tree; and passes that are not alike are left
 * to wf_backward_weights.
 *
 * ctest: builds plain address thread
 */
#include "core/numerics/random.h"
#include "core/tape.h"
#include "kernels/devices.h"
#include "kernels/ops.h"
#include "tests/harness.h"
#include <string.h>

enum { MOST = WF_MOST_JOINED };

static wf_context *ctx;
static uint64_t stream;

static void open_context(int threads)
{
    const wf_context_options options = {.seed = 7};
    wf_error error = {WF_OK, ""};

    ctx = wf_context_open(wf_cpu_device(threads, &error), &options, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(ctx);
    stream = 0;
}

static void close_context(void)
{
    CU_ASSERT_EQUAL(wf_context_status(ctx), WF_OK);
    wf_context_close(ctx);
}

static wf_tensor *random_tensor(int ndim, const wf_dim *dims)
{
    wf_tensor *t = wf_tensor_new(ctx, WF_F32, ndim, dims, NULL, WF_MEMORY_ACTIVATION);

    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    wf_random_fill_normal(t->data, wf_tensor_count(t), 5, stream++, 0);
    return t;
}

static wf_tensor *batch_of(int64_t sequences, int64_t tokens, wf_dim last)
{
    const wf_dim dims[] = {wf_dim_batch(sequences), wf_dim_chunked(tokens), last};

    return random_tensor(3, dims);
}

static bool same_bits(const wf_tensor *a, const wf_tensor *b)
{
    return a && b && memcmp(a->data, b->data, (size_t)wf_tensor_count(a) * sizeof(float)) == 0;
}

/* The node of the tree over passes. */
static wf_tensor *apart(int passes, wf_tensor *const *dy, wf_tensor *const *x)
{
    wf_tensor *a, *b;

    if (passes == 1)
        return wf_tensor_retain(wf_linear_dw(dy[0], x[0]));
    a = apart(passes / 2, dy, x);
    b = apart(passes / 2, dy + passes / 2, x + passes / 2);
    wf_partial_add(&a, b);
    wf_tensor_release(b);
    return a;
}

static void one_product(void)
{
    static const int64_t rows[][2] = {{1, 1}, {1, 17}, {2, 5}, {3, 11}, {5, 64}, {8, 3}};
    wf_tensor *dy[MOST], *x[MOST];

    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
        for (int passes = 1; passes <= MOST; passes *= 2) {
            wf_tensor *sum;

            open_context(2);
            for (int i = 0; i < passes; i++) {
                dy[i] = batch_of(rows[r][0], rows[r][1], wf_dim_width(37));
                x[i] = batch_of(rows[r][0], rows[r][1], wf_dim_width(70));
            }
            sum = apart(passes, dy, x);
            CU_ASSERT_TRUE(same_bits(sum, wf_linear_dw_joined(passes, dy, x)));
            wf_tensor_release(sum);
            close_context();
        }
}

/* Two products, of which the second weight is read by another op too where `twice` says so. */
typedef struct net {
    wf_tensor *w[2], *leaf[2];
    wf_tape *tape;
} net;

static void run(net *n, int64_t sequences, uint64_t pass, bool twice)
{
    wf_tensor *x, *y;

    stream = 100 * (pass + 1);
    n->tape = wf_tape_open(ctx);
    x = wf_source(batch_of(sequences, 7, wf_dim_width(24)));
    for (int l = 0; l < 2; l++)
        n->leaf[l] = wf_leaf(n->w[l]);
    y = wf_linear(wf_gelu(wf_linear(x, n->leaf[0])), n->leaf[1]);
    if (twice)
        y = wf_linear(y, n->leaf[1]);
    CU_ASSERT_EQUAL(wf_backward(y, batch_of(sequences, 7, wf_dim_width(24)), true), WF_OK);
    wf_tape_switch(ctx, NULL);
}

static void weights_of(net *n)
{
    const wf_dim square[] = {wf_dim_width(24), wf_dim_width(24)};

    for (int i = 0; i < MOST; i++)
        for (int l = 0; l < 2; l++)
            n[i].w[l] = i ? n[0].w[l] : random_tensor(2, square);
}

/* The sum over passes of what each gives by itself. */
static wf_tensor *sum_of(int passes, net *n, int l)
{
    wf_tensor *a, *b;

    if (passes == 1)
        return wf_tensor_retain(n->leaf[l]->grad);
    a = sum_of(passes / 2, n, l);
    b = sum_of(passes / 2, n + passes / 2, l);
    wf_partial_add(&a, b);
    wf_tensor_release(b);
    return a;
}

static void walks(int passes, bool twice, int64_t last_sequences)
{
    wf_tape *tape[MOST];
    net alone[MOST], joined[MOST];

    open_context(1);
    weights_of(alone);
    for (int i = 0; i < passes; i++) {
        int64_t sequences = i == passes - 1 ? last_sequences : 3;

        joined[i] = alone[i];
        run(&alone[i], sequences, (uint64_t)i, twice);
        CU_ASSERT_EQUAL(wf_backward_weights(alone[i].tape), WF_OK);
        run(&joined[i], sequences, (uint64_t)i, twice);
        tape[i] = joined[i].tape;
    }
    CU_ASSERT_EQUAL(wf_backward_weights_joined(passes, tape), WF_OK);
    for (int l = 0; l < 2; l++) {
        bool together = last_sequences == 3 && !(twice && l == 1);

        CU_ASSERT_EQUAL(joined[0].leaf[l]->joined, together ? passes : 0);
        CU_ASSERT_EQUAL(joined[0].leaf[l]->grad != NULL, together);
    }
    for (int i = 0; i < passes; i++)
        CU_ASSERT_EQUAL(wf_backward_weights(tape[i]), WF_OK);
    for (int l = 0; l < 2; l++) {
        if (joined[0].leaf[l]->joined) {
            wf_tensor *sum = sum_of(passes, alone, l);

            CU_ASSERT_TRUE(same_bits(sum, joined[0].leaf[l]->grad));
            CU_ASSERT_PTR_NULL(joined[1].leaf[l]->grad);
            wf_tensor_release(sum);
        } else {
            for (int i = 0; i < passes; i++)
                CU_ASSERT_TRUE(same_bits(alone[i].leaf[l]->grad, joined[i].leaf[l]->grad));
        }
    }
    for (int i = 0; i < passes; i++) {
        wf_tape_close(alone[i].tape);
        wf_tape_close(joined[i].tape);
    }
    close_context();
}

static void of_tapes(void)
{
    for (int passes = 2; passes <= MOST; passes *= 2) {
        walks(passes, false, 3);
        walks(passes, true, 3);  /* a leaf that two calls read waits for both */
        walks(passes, false, 2); /* another shape */
    }
}

/* Tapes that have recorded something else are not touched. */
static void not_alike(void)
{
    net n[MOST];
    wf_tape *tape[2];

    open_context(1);
    weights_of(n);
    run(&n[0], 3, 0, false);
    run(&n[1], 3, 1, true);
    for (int i = 0; i < 2; i++)
        tape[i] = n[i].tape;
    CU_ASSERT_EQUAL(wf_backward_weights_joined(2, tape), WF_OK);
    for (int i = 0; i < 2; i++) {
        CU_ASSERT_PTR_NULL(n[i].leaf[0]->grad);
        CU_ASSERT_EQUAL(wf_backward_weights(tape[i]), WF_OK);
        CU_ASSERT_PTR_NOT_NULL(n[i].leaf[0]->grad);
        wf_tape_close(tape[i]);
    }
    close_context();
}

/* A weight that is no leaf, of an operand that is one: each pass makes its gradient, which is
   no product of joined rows. */
static void operand_of_a_leaf(void)
{
    const wf_dim square[] = {wf_dim_width(24), wf_dim_width(24)};
    wf_tensor *leaf[2][2], *w;
    wf_tape *tape[2];

    open_context(1);
    w = random_tensor(2, square);
    for (int joined = 0; joined < 2; joined++) {
        for (int i = 0; i < 2; i++) {
            wf_tensor *x = batch_of(3, 7, wf_dim_width(24));

            tape[i] = wf_tape_open(ctx);
            leaf[joined][i] = wf_leaf(x);
            CU_ASSERT_EQUAL(wf_backward(wf_linear(leaf[joined][i], w), x, true), WF_OK);
            wf_tape_switch(ctx, NULL);
        }
        stream = 1;
        if (joined)
            CU_ASSERT_EQUAL(wf_backward_weights_joined(2, tape), WF_OK);
        for (int i = 0; i < 2; i++) {
            CU_ASSERT_EQUAL(wf_backward_weights(tape[i]), WF_OK);
            CU_ASSERT_EQUAL(leaf[joined][i]->joined, 0);
            wf_tape_close(tape[i]);
        }
    }
    for (int i = 0; i < 2; i++)
        CU_ASSERT_TRUE(same_bits(leaf[0][i]->grad, leaf[1][i]->grad));
    close_context();
}

static void refused(void)
{
    wf_tensor *dy[3], *x[3];

    open_context(1);
    for (int i = 0; i < 3; i++)
        dy[i] = x[i] = batch_of(1, 2, wf_dim_width(3));
    CU_ASSERT_PTR_NULL(wf_linear_dw_joined(3, dy, x));
    CU_ASSERT_PTR_NOT_NULL(strstr(wf_context_error(ctx)->text, "1, 2 or 4 passes"));
    wf_context_clear(ctx);
    close_context();
}

int main(void)
{
    static const wf_test tests[] = {
        {"one product", one_product}, {"of tapes", of_tapes},
        {"not alike", not_alike},     {"operand of a leaf", operand_of_a_leaf},
        {"refused", refused},         {NULL, NULL}};

    return wf_test_main("weights of several passes", tests);
}

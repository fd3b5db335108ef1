/*
 * tests/core/test_backward.c - what backward may not share, forget or walk: gradients that
 * their leaves own, tensors that were changed after a tape had saved them, what lies after the
 * root.
 */
#include "core/host_data.h"
#include "kernels/parameters.h"
#include "tests/core/core_harness.h"

static const double ones[4] = {1, 1, 1, 1};

static wf_tensor *leaf(wf_context *ctx, int64_t rows, int64_t columns, const double *value)
{
    return wf_leaf(make(ctx, rows, columns, value));
}

/* y = a + b + c: three leaves and the seed, and one number for all of them. */
static void leaves_own_their_gradients(void)
{
    for (int defer = 0; defer < 2; defer++) {
        wf_context *ctx = open_reference(0);
        wf_tape *tape = wf_tape_open(ctx);
        wf_tensor *of[4], *seed = make(ctx, 0, 4, ones);

        for (int i = 0; i < 4; i++)
            of[i] = leaf(ctx, 0, 4, ones);
        CU_ASSERT_EQUAL(
            wf_backward(wf_add(wf_add(of[0], of[1]), wf_add(of[2], of[3])), seed, defer),
            WF_OK);
        if (defer)
            CU_ASSERT_EQUAL(wf_backward_weights(tape), WF_OK);
        wf_tape_close(tape);
        for (int i = 0; i < 4; i++) {
            CU_ASSERT_TRUE_FATAL(equals(of[i]->grad, 4, ones));
            wf_init_scale(of[i]->grad, (float)(i + 2));
        }
        for (int i = 0; i < 4; i++)
            CU_ASSERT_TRUE(
                equals(of[i]->grad, 4, (const double[]){i + 2, i + 2, i + 2, i + 2}));
        CU_ASSERT_TRUE(equals(seed, 4, ones));
        CU_ASSERT_EQUAL(wf_context_status(ctx), WF_OK);
        wf_context_close(ctx);
    }
}

/* A view of the seed is the seed's memory too; a gradient that nobody shares is not copied. */
static void views_of_gradients(void)
{
    const wf_dim dims[] = {wf_dim_batch(1), wf_dim_heads(2, 2)};
    wf_context *ctx = open_reference(0);
    wf_tape *tape = wf_tape_open(ctx);
    wf_tensor *a = wf_leaf(wf_tensor_new(ctx, WF_F64, 2, dims, NULL, WF_MEMORY_ACTIVATION));
    wf_tensor *y = wf_split_heads(a, 2), *seed = wf_tensor_like(y, WF_MEMORY_ACTIVATION), *b;
    size_t before;

    wf_init_fill(a, 1);
    wf_init_fill(seed, 1);
    CU_ASSERT_EQUAL(wf_backward(y, seed, false), WF_OK);
    CU_ASSERT_TRUE(a->grad && a->grad->data != seed->data && equals(a->grad, 4, ones));
    before = in_use(ctx);
    b = leaf(ctx, 0, 4, ones);
    y = wf_scale(b, 2);
    CU_ASSERT_EQUAL(wf_backward(y, make(ctx, 0, 4, ones), false), WF_OK);
    CU_ASSERT_EQUAL(in_use(ctx), before + 4 * 64); /* b, y, the seed and one gradient */
    wf_tape_close(tape);
    wf_context_close(ctx);
}

/* A hook that looks at leaves finds them settled, though the walk goes on with what they
   share. */
typedef struct scaling {
    wf_tensor *leaf;
    int calls;
} scaling;

static wf_status scale_gradient(void *arg)
{
    scaling *s = arg;

    s->calls++;
    return wf_init_scale(s->leaf->grad, 100);
}

static void hooks_find_them_settled(void)
{
    wf_context *ctx = open_reference(0);
    wf_tape *tape = wf_tape_open(ctx);
    wf_tensor *a = leaf(ctx, 0, 4, ones), *b = leaf(ctx, 0, 4, ones), *u = wf_scale(a, 3);
    scaling s = {.leaf = b};

    wf_tape_hook(ctx, WF_WALK_WEIGHTS, scale_gradient, &s);
    CU_ASSERT_EQUAL(wf_backward(wf_add(u, b), make(ctx, 0, 4, ones), false), WF_OK);
    CU_ASSERT_TRUE(s.calls == 1 && equals(a->grad, 4, (const double[]){3, 3, 3, 3}));
    CU_ASSERT_TRUE(equals(b->grad, 4, (const double[]){100, 100, 100, 100}));
    wf_tape_close(tape);
    wf_context_close(ctx);
}

/* Ways to change x, which a tape has saved. */
static void by_scale(wf_tensor *x)
{
    wf_init_scale(x, 2);
}

static void by_alias(wf_tensor *x)
{
    wf_init_fill(wf_tensor_rows(wf_tensor_alias(x), 1, 1), 0);
}

static void by_host(wf_tensor *x)
{
    wf_host_data view;

    wf_data_write(x, true, &view);
    wf_data_close(&view);
}

static void by_sum(wf_tensor *x)
{
    wf_partial_add_to(x, x);
}

static void by_optimizer(wf_tensor *x)
{
    const wf_update update = {.lr = 1, .beta1 = 0.5F, .grad_scale = 1};
    wf_tensor *p = wf_tensor_like(x, WF_MEMORY_PARAMETER);

    wf_init_fill(p, 1);
    wf_sgd(p, p, x, &update); /* as the momentum, which is written as well */
}

static void by_output(wf_tensor *x)
{
    wf_tape *tape = wf_tape_switch(x->ctx, NULL);
    wf_dim dims[] = {x->dim[0], x->dim[1], wf_dim_chunked(2)};
    wf_tensor *logits = wf_tensor_new(x->ctx, WF_F64, 3, dims, NULL, WF_MEMORY_ACTIVATION);
    wf_tensor *max, *sum, *picked,
        *targets = wf_tensor_new(x->ctx, WF_I32, 2, dims, NULL, WF_MEMORY_ACTIVATION);

    wf_init_fill(logits, 1);
    memset(targets->data, 0, 4 * sizeof(int32_t));
    max = wf_logit_max(logits);
    wf_logit_sum(logits, max, targets, 0, &sum, &picked);
    wf_cross_entropy_into(sum, picked, max, x);
    wf_tape_switch(x->ctx, tape);
}

static const struct {
    void (*change)(wf_tensor *x);
    const char *by;
} changes[] = {{by_scale, "(by init_scale)"},   {by_alias, "(by init_fill)"},
               {by_host, "(by wf_data_write)"}, {by_sum, "(by wf_partial_add_to)"},
               {by_optimizer, "(by sgd)"},      {by_output, "(by cross_entropy)"}};

enum { CHANGES = sizeof changes / sizeof changes[0] };

/* y = x w: the gradient of w reads x. */
static void changed_before_backward(void)
{
    for (int i = 0; i < CHANGES; i++) {
        wf_context *ctx = open_reference(0);
        wf_tape *tape = wf_tape_open(ctx);
        wf_tensor *x = make(ctx, 2, 2, ones), *w = leaf(ctx, 2, 2, ones), *y = wf_mul(x, w);

        CU_ASSERT_FALSE(x->requires_grad);
        changes[i].change(x);
        CU_ASSERT_EQUAL_FATAL(wf_context_status(ctx), WF_OK);
        CU_ASSERT_EQUAL(wf_backward(y, make(ctx, 2, 2, ones), false), WF_EINVAL);
        CU_ASSERT_PTR_NOT_NULL(strstr(wf_context_error(ctx)->text, changes[i].by));
        CU_ASSERT_TRUE(
            refused(ctx, WF_EINVAL, "mul: operand 0, f64 [2,2], was changed in place"));
        CU_ASSERT_PTR_NULL(w->grad);
        wf_tape_close(tape);
        wf_context_close(ctx);
    }
}

/* An application's op that saves what it made: y = x^2, dx = 2 sqrt(y) dy. */
static wf_status square_run(const wf_call *call, void *workspace)
{
    const double *x = call->in[0]->data;

    (void)workspace;
    for (int64_t i = 0; i < wf_tensor_local_count(call->in[0]); i++)
        ((double *)call->out[0]->data)[i] = x[i] * x[i];
    return WF_OK;
}

static void square_backward(wf_gradient *g)
{
    g->din[0] = wf_mul(wf_scale(g->out[0], 2),
                       g->dout[0]); /* the roots are squares, their gradients ones */
}

static const wf_op square_op = {.name = "square",
                                .signature = "...->...",
                                .save = WF_SAVE_OUT(0),
                                .reference = {.run = square_run},
                                .backward = square_backward};

/* Tensors that a gradient does not read may change before it, and all others after it. */
static void changes_that_do_not_matter(void)
{
    wf_context *ctx = open_reference(0);
    wf_tape *tape = wf_tape_open(ctx);
    wf_tensor *a = leaf(ctx, 2, 2, ones), *c = make(ctx, 2, 2, ones), *sum, *y;
    wf_tensor *seed = make(ctx, 0, 2, ones);

    y = wf_mul(a, c);
    wf_init_scale(a, 3); /* da = c dy */
    sum = wf_batch_sum(y);
    wf_init_scale(y, 5); /* only its shape is needed */
    wf_init_scale(sum, 5);
    CU_ASSERT_EQUAL(wf_backward(sum, seed, false), WF_OK);
    CU_ASSERT_TRUE(equals(a->grad, 4, ones));
    wf_init_scale(c, 2);
    y = wf_mul(a, c); /* from now on with what is there now */
    CU_ASSERT_EQUAL(wf_backward(wf_batch_sum(y), seed, false), WF_OK);
    CU_ASSERT_TRUE(equals(a->grad, 4, (const double[]){3, 3, 3, 3}));
    wf_tape_close(tape);
    wf_context_close(ctx);
}

static void changed_results_and_seeds(void)
{
    wf_context *ctx = open_reference(0);
    wf_tape *tape = wf_tape_open(ctx);
    wf_tensor *a = leaf(ctx, 2, 2, ones), *seed = make(ctx, 2, 2, ones), *y;

    y = wf_apply(&square_op, NULL, 0, 1, a);
    CU_ASSERT_EQUAL(wf_backward(y, seed, false), WF_OK);
    CU_ASSERT_TRUE(equals(a->grad, 4, (const double[]){2, 2, 2, 2}));
    y = wf_apply(&square_op, NULL, 0, 1, a);
    wf_init_scale(y, 2);
    CU_ASSERT_EQUAL(wf_backward(y, seed, false), WF_EINVAL);
    CU_ASSERT_TRUE(
        refused(ctx, WF_EINVAL, "square: output 0, f64 [2,2], was changed in place"));
    y = wf_mul(a, make(ctx, 2, 2, ones)); /* weights come later, and read the seed */
    CU_ASSERT_EQUAL(wf_backward(y, seed, true), WF_OK);
    wf_init_scale(seed, 2);
    CU_ASSERT_EQUAL(wf_backward_weights(tape), WF_EINVAL);
    CU_ASSERT_TRUE(refused(ctx, WF_EINVAL, "mul: the gradient of output 0, f64 [2,2], was"));
    wf_tape_close(tape);
    wf_context_close(ctx);
}

/* Calls recorded after the root have their own walk later; a hook there is called. */
static void after_the_root(void)
{
    wf_context *ctx = open_reference(0);
    wf_tape *tape = wf_tape_open(ctx);
    wf_tensor *a = leaf(ctx, 0, 4, ones), *b = leaf(ctx, 0, 4, ones);
    wf_tensor *first = wf_scale(a, 2), *second = wf_scale(b, 3);
    scaling s = {.leaf = a};

    wf_tape_hook(ctx, WF_WALK_WEIGHTS, scale_gradient, &s);
    wf_init_fill(a->grad = wf_tensor_retain(make(ctx, 0, 4, ones)), 0);
    CU_ASSERT_EQUAL(wf_backward(first, make(ctx, 0, 4, ones), false), WF_OK);
    CU_ASSERT_TRUE(equals(a->grad, 4, (const double[]){2, 2, 2, 2}));
    CU_ASSERT_TRUE(s.calls == 1 && !b->grad);
    CU_ASSERT_EQUAL(wf_backward(second, make(ctx, 0, 4, ones), false), WF_OK);
    CU_ASSERT_TRUE(equals(b->grad, 4, (const double[]){3, 3, 3, 3}));
    CU_ASSERT_EQUAL(s.calls, 1);
    wf_tape_close(tape);
    wf_context_close(ctx);
}

/* y = a b, an op that makes both gradients whatever it is asked for, and counts. */
static int asked;

static wf_status product_run(const wf_call *call, void *workspace)
{
    const double *a = call->in[0]->data, *b = call->in[1]->data;

    (void)workspace;
    for (int64_t i = 0; i < wf_tensor_local_count(call->in[0]); i++)
        ((double *)call->out[0]->data)[i] = a[i] * b[i];
    return WF_OK;
}

static void product_backward(wf_gradient *g)
{
    asked++;
    g->din[0] = wf_mul(g->dout[0], g->in[1]);
    g->din[1] = wf_mul(g->dout[0], g->in[0]);
}

static const wf_op product_op = {.name = "product",
                                 .signature = "...,...->...",
                                 .save = WF_SAVE_IN(0) | WF_SAVE_IN(1),
                                 .reference = {.run = product_run},
                                 .backward = product_backward};

/* A leaf keeps what it was given by the way, and its op is not asked again. */
static void early_gradients(void)
{
    static const double xv[] = {1, 2, 3, 4}, bv[] = {5, 6, 7, 8};

    for (int defer = 0; defer < 2; defer++) {
        wf_context *ctx = open_reference(0);
        wf_tape *tape = wf_tape_open(ctx);
        wf_tensor *x = leaf(ctx, 0, 4, xv), *b = leaf(ctx, 0, 4, bv), *y;

        asked = 0;
        y = wf_apply(&product_op, NULL, 0, 2, wf_scale(x, 2), b);
        CU_ASSERT_EQUAL(wf_backward(y, make(ctx, 0, 4, ones), defer), WF_OK);
        CU_ASSERT_TRUE(equals(b->grad, 4, (const double[]){2, 4, 6, 8}));
        CU_ASSERT_EQUAL(!x->grad, defer);
        CU_ASSERT_EQUAL(wf_backward_weights(tape), WF_OK);
        CU_ASSERT_EQUAL(asked, 1);
        CU_ASSERT_TRUE(equals(b->grad, 4, (const double[]){2, 4, 6, 8}));
        CU_ASSERT_TRUE(equals(x->grad, 4, (const double[]){10, 12, 14, 16}));
        wf_tape_close(tape);
        wf_context_close(ctx);
    }
}

/* A bias as the leaf of two places that see batches of two sizes: one row per sequence of
   each. */
static void rows_of_two_batches_meet(void)
{
    for (int leaves = 1; leaves <= 2; leaves++) {
        wf_context *ctx = open_reference(0);
        wf_tape *tape = wf_tape_open(ctx);
        wf_tensor *b = leaf(ctx, 0, 2, ones), *other = leaves == 2 ? wf_leaf(b) : b;
        wf_tensor *y = wf_batch_sum(wf_bias_add(make(ctx, 2, 2, ones), b));

        y = wf_add(y, wf_batch_sum(wf_bias_add(make(ctx, 1, 2, ones), other)));
        if (leaves == 2) {
            CU_ASSERT_EQUAL(wf_backward(y, make(ctx, 0, 2, ones), false), WF_OK);
            CU_ASSERT_TRUE(equals(b->grad, 4, ones) && equals(other->grad, 2, ones));
        } else {
            CU_ASSERT_EQUAL(wf_backward(y, make(ctx, 0, 2, ones), false), WF_ESHAPE);
            CU_ASSERT_TRUE(refused(ctx, WF_ESHAPE,
                                   "with rows of 1 and of 2 sequences, f64 [2,2]: give each "
                                   "use a wf_leaf of its own"));
        }
        wf_tape_close(tape);
        wf_context_close(ctx);
    }
}

/* A bias as the leaf of a place, where its gradient has a row per sequence, and of another
   op. */
static void rows_meet_a_sum(void)
{
    wf_context *ctx = open_reference(0);
    wf_tape *tape = wf_tape_open(ctx);
    wf_tensor *b = leaf(ctx, 0, 2, ones), *x = make(ctx, 2, 2, ones);
    wf_tensor *y = wf_bias_add(wf_bias_add(x, b), wf_scale(b, 2));

    CU_ASSERT_EQUAL(wf_backward(y, make(ctx, 2, 2, ones), false), WF_ESHAPE);
    CU_ASSERT_TRUE(refused(ctx, WF_ESHAPE, "give each use a wf_leaf of its own"));
    wf_tape_close(tape);
    wf_context_close(ctx);
}

int main(void)
{
    static const wf_test tests[] = {{"leaves own their gradients", leaves_own_their_gradients},
                                    {"views of gradients", views_of_gradients},
                                    {"hooks find them settled", hooks_find_them_settled},
                                    {"changed before backward", changed_before_backward},
                                    {"changes that do not matter", changes_that_do_not_matter},
                                    {"changed results and seeds", changed_results_and_seeds},
                                    {"behind the root", after_the_root},
                                    {"gradients made early", early_gradients},
                                    {"rows meet a sum", rows_meet_a_sum},
                                    {"rows of two batches meet", rows_of_two_batches_meet},
                                    {NULL, NULL}};

    return wf_test_main("backward", tests);
}

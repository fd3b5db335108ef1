/* tests/core/test_tape.c - gradients of small graphs against values worked out by hand. */
#include "tests/core/core_harness.h"

static const double ones[4] = {1, 1, 1, 1};

static wf_tensor *leaf(wf_context *ctx, int64_t rows, int64_t columns, const double *value)
{
    return wf_leaf(make(ctx, rows, columns, value));
}

/* z = 2 (a b + a) + a a: dz/da = 2 b + 2 + 2 a, dz/db = 2 a; a is used in four places. */
static void shared_tensors(void)
{
    static const double av[] = {1, -2, 3}, bv[] = {5, 7, -1}, seed[] = {1, 10, 100};
    wf_context *ctx = open_reference(0);
    wf_tape *tape = wf_tape_open(ctx);
    wf_tensor *a = leaf(ctx, 0, 3, av), *b = leaf(ctx, 0, 3, bv), *z;
    double da[3], db[3];

    z = wf_add(wf_scale(wf_add(wf_mul(a, b), a), 2), wf_mul(a, a));
    CU_ASSERT_EQUAL(wf_backward(z, make(ctx, 0, 3, seed), false), WF_OK);
    for (int i = 0; i < 3; i++) {
        da[i] = seed[i] * (2 * bv[i] + 2 + 2 * av[i]);
        db[i] = seed[i] * 2 * av[i];
    }
    CU_ASSERT_TRUE(equals(a->grad, 3, da) && equals(b->grad, 3, db));
    CU_ASSERT_PTR_NULL(z->grad);
    wf_tape_close(tape);
    wf_context_close(ctx);
}

/* An inner tensor that two ops use: u = a b, z = u c + u; du = c + 1. */
static void shared_inside(void)
{
    static const double av[] = {2, 3}, bv[] = {5, 7}, cv[] = {-4, 9};
    wf_context *ctx = open_reference(0);
    wf_tape *tape = wf_tape_open(ctx);
    wf_tensor *a = leaf(ctx, 0, 2, av), *b = make(ctx, 0, 2, bv), *c = leaf(ctx, 0, 2, cv);
    wf_tensor *u = wf_mul(a, b);

    CU_ASSERT_EQUAL(wf_backward(wf_add(wf_mul(u, c), u), make(ctx, 0, 2, ones), false), WF_OK);
    CU_ASSERT_TRUE(equals(a->grad, 2, (const double[]){5 * -3, 7 * 10}));
    CU_ASSERT_TRUE(equals(c->grad, 2, (const double[]){10, 21}));
    CU_ASSERT_PTR_NULL(b->grad); /* a constant */
    wf_tape_close(tape);
    wf_context_close(ctx);
}

/* Each place of use is a leaf, with a gradient of its own. */
static void uses_of_a_leaf(void)
{
    static const double pv[] = {3, 4};
    wf_context *ctx = open_reference(0);
    wf_tape *tape = wf_tape_open(ctx);
    wf_tensor *p = make(ctx, 0, 2, pv), *first = wf_leaf(p), *second = wf_leaf(p);
    wf_tensor *z = wf_add(wf_mul(first, first), wf_scale(second, 7));

    CU_ASSERT_EQUAL(wf_backward(z, make(ctx, 0, 2, ones), false), WF_OK);
    CU_ASSERT_TRUE(equals(first->grad, 2, (const double[]){6, 8}));
    CU_ASSERT_TRUE(equals(second->grad, 2, (const double[]){7, 7}));
    CU_ASSERT_PTR_NULL(p->grad);
    wf_tape_close(tape);
    wf_context_close(ctx);
}

/* The identity, which notes the gradient that passes. */
static double noted[8];
static int notes;

static wf_status note_run(const wf_call *call, void *workspace)
{
    (void)workspace;
    memcpy(call->out[0]->data, call->in[0]->data,
           (size_t)wf_tensor_local_count(call->in[0]) * sizeof(double));
    return WF_OK;
}

static void note_backward(wf_gradient *g)
{
    const double *dy = g->dout[0]->data;

    CU_ASSERT_TRUE(g->want[0] && g->n_in == 1 && g->n_out == 1);
    for (int64_t i = 0; i < wf_tensor_local_count(g->dout[0]); i++)
        noted[i] = dy[i];
    notes++;
    g->din[0] = g->dout[0];
}

static const wf_op note_op = {.name = "note",
                              .signature = "...->...",
                              .reference = {.run = note_run},
                              .backward = note_backward};

static wf_tensor *note(wf_tensor *x)
{
    return wf_apply(&note_op, NULL, 0, 1, x);
}

/* y = (x W1^T) W2^T: dx = dy W2 W1, dW2 = dy^T (x W1^T), dW1 = (dy W2)^T x. */
typedef struct layers {
    wf_tensor *w1, *w2, *x, *y;
    wf_tape *tape;
} layers;

static const double x_value[] = {1, 2, 3, 4}, w1_value[] = {1, -1, 2, 0};
static const double w2_value[] = {3, 1, -2, 5}, dy_value[] = {1, 2, -1, 1};
static const double dx_value[] = {21, 1, 3, 5}, dw1_value[] = {-16, -22, 23, 38};
static const double dw2_value[] = {0, -4, -3, 10};

static layers forward(wf_context *ctx)
{
    wf_dim k = wf_dim_width(2), n = wf_dim_chunked(2);
    layers l = {.tape = wf_tape_open(ctx)};

    l.x = leaf(ctx, 2, 2, x_value);
    l.w1 = wf_leaf(wf_tensor_new(ctx, WF_F64, 2, (wf_dim[]){n, k}, NULL, WF_MEMORY_PARAMETER));
    memcpy(l.w1->data, w1_value, sizeof w1_value);
    l.w2 = wf_leaf(wf_tensor_new(ctx, WF_F64, 2, (wf_dim[]){k, n}, NULL, WF_MEMORY_PARAMETER));
    memcpy(l.w2->data, w2_value, sizeof w2_value);
    l.y = wf_linear(wf_linear(note(note(l.x)), l.w1), l.w2);
    return l;
}

static void at_once_and_deferred(void)
{
    wf_context *ctx = open_reference(0);

    for (int defer = 0; defer < 2; defer++) {
        layers l = forward(ctx);

        notes = 0;
        CU_ASSERT_EQUAL(wf_backward(l.y, make(ctx, 2, 2, dy_value), defer), WF_OK);
        CU_ASSERT_EQUAL(memcmp(noted, dx_value, sizeof dx_value), 0);
        if (defer) { /* gradients of inputs are complete; leaves have none yet */
            CU_ASSERT_EQUAL(notes, 1);
            CU_ASSERT_TRUE(!l.x->grad && !l.w1->grad && !l.w2->grad);
            CU_ASSERT_EQUAL(wf_backward_weights(l.tape), WF_OK);
        }
        CU_ASSERT_EQUAL(notes, 2);
        CU_ASSERT_TRUE(equals(l.x->grad, 4, dx_value));
        CU_ASSERT_TRUE(equals(l.w1->grad, 4, dw1_value));
        CU_ASSERT_TRUE(equals(l.w2->grad, 4, dw2_value));
        CU_ASSERT_EQUAL(wf_backward_weights(l.tape), WF_OK); /* nothing is owed twice */
        CU_ASSERT_TRUE(equals(l.w1->grad, 4, dw1_value) && notes == 2);
        wf_tape_close(l.tape);
    }
    CU_ASSERT_EQUAL(wf_backward_weights(NULL), WF_EINVAL);
    wf_context_close(ctx);
}

/* Two micro-batches in flight, recorded by turns; their leaf is the same and adds up. */
static void two_tapes(void)
{
    static const double wv[] = {2, 3}, v1[] = {5, 7}, v2[] = {11, 13};
    wf_context *ctx = open_reference(0);
    wf_tape *first = wf_tape_open(ctx), *second;
    wf_tensor *w = leaf(ctx, 0, 2, wv), *y1 = wf_mul(w, make(ctx, 0, 2, v1)), *y2;
    wf_tensor *x = leaf(ctx, 0, 2, v2);

    second = wf_tape_open(ctx);
    y2 = wf_mul(wf_scale(w, 1), x);
    CU_ASSERT_PTR_EQUAL(wf_tape_switch(ctx, first), second);
    y1 = wf_mul(y1, w); /* w^2 v1 */
    wf_tape_switch(ctx, second);
    y2 = wf_scale(y2, 10);

    CU_ASSERT_NOT_EQUAL(wf_backward(y1, make(ctx, 0, 2, ones), false), WF_OK);
    CU_ASSERT_TRUE(refused(ctx, WF_EINVAL, "not made on the current tape"));
    CU_ASSERT_EQUAL(wf_backward(y2, make(ctx, 0, 2, ones), true), WF_OK);
    CU_ASSERT_PTR_NULL(w->grad);
    wf_tape_switch(ctx, first);
    CU_ASSERT_EQUAL(wf_backward(y1, make(ctx, 0, 2, ones), false), WF_OK);
    CU_ASSERT_TRUE(equals(w->grad, 2, (const double[]){2 * 2 * 5, 2 * 3 * 7}));
    CU_ASSERT_EQUAL(wf_backward_weights(second), WF_OK);
    CU_ASSERT_TRUE(equals(w->grad, 2, (const double[]){20 + 110, 42 + 130}));
    CU_ASSERT_TRUE(equals(x->grad, 2, (const double[]){20, 30}));
    CU_ASSERT_PTR_EQUAL(wf_tape_switch(ctx, NULL), first); /* the walks left it recording */
    CU_ASSERT_FALSE(wf_context_recording(ctx));
    wf_tape_close(first);
    wf_tape_close(second);
    wf_tape_close(NULL);
    wf_context_close(ctx);
}

static void across_tapes(void)
{
    wf_context *ctx = open_reference(0);
    wf_tape *first = wf_tape_open(ctx), *second;
    wf_tensor *a = leaf(ctx, 0, 4, ones), *u = wf_scale(a, 3), *again, *y;

    second = wf_tape_open(ctx);
    CU_ASSERT_PTR_NULL(wf_scale(u, 2));
    CU_ASSERT_TRUE(refused(ctx, WF_EINVAL, "scale: operand 0 was made on another tape"));
    again = wf_leaf(u);
    y = wf_mul(again, wf_detach(u));
    CU_ASSERT_EQUAL(wf_backward(y, make(ctx, 0, 4, ones), false), WF_OK);
    CU_ASSERT_TRUE(equals(again->grad, 4, (const double[]){3, 3, 3, 3}));
    CU_ASSERT_PTR_NULL(a->grad);
    wf_tape_switch(ctx, first); /* hand the gradient over by hand, as between stages */
    CU_ASSERT_EQUAL(wf_backward(u, again->grad, false), WF_OK);
    CU_ASSERT_TRUE(equals(a->grad, 4, (const double[]){9, 9, 9, 9}));
    wf_tape_close(first);
    wf_tape_close(second);
    wf_context_close(ctx);
}

static void detached(void)
{
    static const double av[] = {2, 3};
    wf_context *ctx = open_reference(0);
    wf_tape *tape = wf_tape_open(ctx);
    wf_tensor *a = leaf(ctx, 0, 2, av), *u = wf_scale(a, 5);
    wf_tensor *z = wf_mul(u, wf_detach(u));

    CU_ASSERT_FALSE(wf_mul(wf_detach(a), wf_detach(u))->requires_grad);
    CU_ASSERT_EQUAL(wf_backward(z, make(ctx, 0, 2, ones), false), WF_OK);
    CU_ASSERT_TRUE(equals(a->grad, 2, (const double[]){50, 75})); /* not twice that */
    CU_ASSERT_PTR_NULL(wf_detach(NULL));
    CU_ASSERT_PTR_NULL(wf_leaf(NULL));
    wf_tape_close(tape);
    wf_context_close(ctx);
}

/* y0 = 2 x and y1 = 3 x; a gradient that never came is NULL. */
static int missing;

static wf_status fork_run(const wf_call *call, void *workspace)
{
    const double *x = call->in[0]->data;

    (void)workspace;
    for (int o = 0; o < 2; o++)
        for (int64_t i = 0; i < wf_tensor_local_count(call->in[0]); i++)
            ((double *)call->out[o]->data)[i] = (2 + o) * x[i];
    return WF_OK;
}

static void fork_backward(wf_gradient *g)
{
    for (int o = 0; o < 2; o++) {
        if (!g->dout[o])
            missing |= 1 << o;
        else if (g->din[0])
            g->din[0] = wf_add(g->din[0], wf_scale(g->dout[o], (float)(2 + o)));
        else
            g->din[0] = wf_scale(g->dout[o], (float)(2 + o));
    }
}

static const wf_op fork_op = {.name = "fork",
                              .signature = "...->...,...",
                              .reference = {.run = fork_run},
                              .backward = fork_backward};

static void unused_outputs(void)
{
    static const double av[] = {1, 2};
    wf_context *ctx = open_reference(0);

    for (int used = 1; used < 4; used++) { /* bits: which outputs are used */
        double gradient = (used & 1 ? 2 : 0) + (used & 2 ? 3 : 0);
        wf_tape *tape = wf_tape_open(ctx);
        wf_tensor *a = leaf(ctx, 0, 2, av), *b = leaf(ctx, 0, 2, av), *z;
        wf_call call = {.op = &fork_op, .n_in = 1, .in = {a}, .n_out = 2};

        missing = 0;
        wf_dispatch(&call);
        wf_mul(b, call.out[0]); /* nobody uses the product */
        z = used == 3 ? wf_add(call.out[0], call.out[1]) : wf_scale(call.out[used - 1], 1);
        CU_ASSERT_EQUAL(wf_backward(z, make(ctx, 0, 2, ones), false), WF_OK);
        CU_ASSERT_EQUAL(missing, 3 & ~used);
        CU_ASSERT_TRUE(equals(a->grad, 2, (const double[]){gradient, gradient}));
        CU_ASSERT_PTR_NULL(b->grad);
        wf_tape_close(tape);
    }
    wf_context_close(ctx);
}

static void refusals(void)
{
    static const double av[] = {2, 3};
    wf_context *ctx = open_reference(0);
    wf_tensor *a = leaf(ctx, 0, 2, av), *seed = make(ctx, 0, 2, ones);
    wf_tensor *none = wf_scale(a, 2), *trunk, *y, *z;
    wf_tape *tape;

    CU_ASSERT_FALSE(none->requires_grad);
    CU_ASSERT_EQUAL(wf_backward(none, seed, false), WF_EINVAL);
    CU_ASSERT_TRUE(refused(ctx, WF_EINVAL, "open a tape before the forward pass"));
    tape = wf_tape_open(ctx);
    CU_ASSERT_EQUAL(wf_backward(a, seed, false), WF_EINVAL);
    CU_ASSERT_TRUE(refused(ctx, WF_EINVAL, "use parameters through wf_leaf"));
    trunk = wf_scale(a, 2);
    y = wf_scale(trunk, 3);
    z = wf_mul(trunk, trunk);
    CU_ASSERT_EQUAL(wf_backward(y, NULL, false), WF_EINVAL);
    CU_ASSERT_TRUE(refused(ctx, WF_EINVAL, "the seed is NULL"));
    CU_ASSERT_EQUAL(wf_backward(NULL, seed, false), WF_EINVAL);
    CU_ASSERT_TRUE(refused(ctx, WF_EINVAL, "the tensor to start from is NULL"));
    CU_ASSERT_EQUAL(wf_backward(NULL, NULL, false), WF_EINVAL);
    CU_ASSERT_EQUAL(wf_backward(y, make(ctx, 0, 4, ones), false), WF_ESHAPE);
    CU_ASSERT_TRUE(
        refused(ctx, WF_ESHAPE, "the seed, f64 [4], is not like the tensor, f64 [2]"));
    CU_ASSERT_PTR_NULL(a->grad);

    CU_ASSERT_EQUAL(wf_backward(y, seed, false), WF_OK);
    CU_ASSERT_EQUAL(wf_backward(y, seed, false), WF_EINVAL);
    CU_ASSERT_TRUE(refused(ctx, WF_EINVAL, "scale: gradients went through it before"));
    CU_ASSERT_EQUAL(wf_backward(z, seed, false), WF_EINVAL); /* its trunk is gone */
    CU_ASSERT_TRUE(refused(ctx, WF_EINVAL, "go back once"));
    CU_ASSERT_TRUE(equals(a->grad, 2, (const double[]){6, 6}));

    wf_add(a, make(ctx, 0, 4, ones));
    CU_ASSERT_EQUAL(wf_backward(wf_scale(a, 1), seed, false), WF_ESHAPE); /* the first stays */
    CU_ASSERT_EQUAL(wf_backward_weights(tape), WF_ESHAPE);
    CU_ASSERT_TRUE(refused(ctx, WF_ESHAPE, "add: dim 0"));
    wf_tape_close(tape);
    wf_context_close(ctx);
}

/* After backward the tape holds no data, and after the scope nobody does. */
static void memory_is_released(void)
{
    wf_context *ctx = open_reference(0);
    wf_tape *tape;

    for (int defer = 0; defer < 2; defer++) {
        size_t before = in_use(ctx), kept;
        wf_tensor *parameter = wf_tensor_retain(make(ctx, 0, 4, ones)), *a, *u;

        tape = wf_tape_open(ctx);
        wf_scope_open(ctx);
        a = wf_tensor_retain(wf_leaf(parameter));
        u = a;
        for (int i = 0; i < 5; i++)
            u = wf_mul(u, u);
        u = wf_scope_return(ctx, u);
        kept = in_use(ctx);
        CU_ASSERT_TRUE(kept >= before + 6 * 64); /* saved by the products */
        wf_scope_open(ctx);
        CU_ASSERT_EQUAL(wf_backward(u, make(ctx, 0, 4, ones), defer), WF_OK);
        wf_scope_close(ctx);
        CU_ASSERT_TRUE(in_use(ctx) < kept);
        if (defer)
            CU_ASSERT_EQUAL(wf_backward_weights(tape), WF_OK);
        CU_ASSERT_TRUE(equals(a->grad, 4, (const double[]){32, 32, 32, 32}));
        CU_ASSERT_EQUAL(in_use(ctx), before + 3 * 64); /* parameter, u, grad */
        wf_tensor_release(a);
        wf_tensor_release(parameter);
        wf_tape_close(tape);
        CU_ASSERT_EQUAL(wf_context_status(ctx), WF_OK);
    }
    wf_context_close(ctx);
}

/* A walk that runs out of memory: an error, and nothing stays behind. */
static void out_of_memory(void)
{
    for (size_t limit = 8 * 64; limit < 20 * 64; limit += 64) {
        wf_context *ctx = open_reference(limit);
        wf_tape *tape = wf_tape_open(ctx);
        wf_tensor *a, *u;
        wf_status status;

        wf_scope_open(ctx);
        a = u = leaf(ctx, 0, 4, ones);
        for (int i = 0; i < 5; i++)
            u = wf_mul(u, u);
        CU_ASSERT_EQUAL_FATAL(wf_context_status(ctx), WF_OK);
        status = wf_backward(u, make(ctx, 0, 4, ones), limit % 128 == 0);
        CU_ASSERT_EQUAL(status, wf_context_status(ctx));
        CU_ASSERT_TRUE(limit >= 15 * 64 ? status == WF_OK
                                        : status == WF_OK || status == WF_ENOMEM);
        CU_ASSERT_TRUE(limit > 8 * 64 || status == WF_ENOMEM);
        CU_ASSERT_TRUE(status == WF_OK || !a->grad);
        wf_tape_close(tape);
        wf_scope_close(ctx);
        CU_ASSERT_EQUAL(in_use(ctx), 0);
        wf_context_close(ctx);
    }
}

int main(void)
{
    static const wf_test tests[] = {{"shared tensors", shared_tensors},
                                    {"shared inside", shared_inside},
                                    {"places of use", uses_of_a_leaf},
                                    {"at once and deferred", at_once_and_deferred},
                                    {"two tapes in flight", two_tapes},
                                    {"across tapes", across_tapes},
                                    {"detached", detached},
                                    {"unused outputs", unused_outputs},
                                    {"refusals", refusals},
                                    {"memory is released", memory_is_released},
                                    {"out of memory", out_of_memory},
                                    {NULL, NULL}};

    return wf_test_main("tape", tests);
}

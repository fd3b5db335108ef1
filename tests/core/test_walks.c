/*
 * tests/core/test_walks.c - the two walks back over a tape: sources get their gradients in the
 * first one, hooks are called in the one that they are for, and leaves wait unless that needs a
 * leaf's elements.
 */
#include "kernels/parameters.h"
#include "tests/core/core_harness.h"

static const double ones[2] = {1, 1}, av[2] = {3, -5}, bv[2] = {7, 11}, seed[2] = {1, 10};

/* z = (x a) b + x, in two stages of one tape each or as one; gradients of x (a source), a and
   b. */
typedef struct stages {
    wf_tensor *x, *a, *b, *border;
} stages;

static wf_tensor *first_stage(stages *s, wf_context *ctx)
{
    s->x = wf_source(make(ctx, 0, 2, av));
    s->a = wf_leaf(make(ctx, 0, 2, bv));
    return wf_add(wf_mul(s->x, s->a), s->x);
}

static wf_tensor *second_stage(stages *s, wf_context *ctx, wf_tensor *x)
{
    s->b = wf_leaf(make(ctx, 0, 2, av));
    return wf_add(wf_mul(wf_scale(x, 3), s->b), x);
}

static void check(const stages *s)
{
    for (int i = 0; i < 2; i++) {
        double x = av[i], a = bv[i], b = av[i], mid = x * a + x, dmid = seed[i] * (3 * b + 1);

        CU_ASSERT_EQUAL(((const double *)s->x->grad->data)[i], dmid * (a + 1));
        CU_ASSERT_EQUAL(((const double *)s->a->grad->data)[i], dmid * x);
        CU_ASSERT_EQUAL(((const double *)s->b->grad->data)[i], seed[i] * 3 * mid);
    }
}

static void sources_end_a_stage(void)
{
    for (int defer = 0; defer < 2; defer++) {
        wf_context *ctx = open_reference(0);
        wf_tape *first = wf_tape_open(ctx), *second;
        stages s;
        wf_tensor *y = first_stage(&s, ctx), *z;

        second = wf_tape_open(ctx);
        s.border = wf_source(y);
        z = second_stage(&s, ctx, s.border);
        CU_ASSERT_EQUAL(wf_backward(z, make(ctx, 0, 2, seed), defer), WF_OK);
        CU_ASSERT_PTR_NOT_NULL_FATAL(s.border->grad);
        CU_ASSERT_EQUAL(!s.b->grad, defer);
        wf_tape_switch(ctx, first);
        CU_ASSERT_EQUAL(wf_backward(y, s.border->grad, defer), WF_OK);
        CU_ASSERT_TRUE(s.x->grad && (s.a->grad == NULL) == defer);
        CU_ASSERT_EQUAL(wf_backward_weights(first), WF_OK); /* in any order */
        CU_ASSERT_EQUAL(wf_backward_weights(second), WF_OK);
        check(&s);
        wf_tape_close(second);
        wf_tape_close(first);
        CU_ASSERT_EQUAL(wf_context_status(ctx), WF_OK);
        wf_context_close(ctx);
    }
}

/* A stage of nothing hands its seed on, in memory of its own; a source that is not used gets
   nothing; and without a tape one is a tensor like others. */
static void small_stages(void)
{
    wf_context *ctx = open_reference(0);
    wf_tensor *x = make(ctx, 0, 2, av), *dy = make(ctx, 0, 2, seed), *none = wf_source(x);
    wf_tape *tape, *other;
    wf_tensor *source, *unused;

    CU_ASSERT_FALSE(none->requires_grad);
    tape = wf_tape_open(ctx);
    source = wf_source(x);
    unused = wf_source(x);
    CU_ASSERT_TRUE(source != x && !x->requires_grad && source->data == x->data);
    CU_ASSERT_EQUAL(wf_backward(source, dy, true), WF_OK);
    CU_ASSERT_TRUE(equals(source->grad, 2, seed) && source->grad->data != dy->data);
    CU_ASSERT_PTR_NULL(unused->grad);
    CU_ASSERT_EQUAL(wf_backward_weights(tape), WF_OK);
    other = wf_tape_open(ctx);
    CU_ASSERT_PTR_NULL(wf_scale(unused, 2));
    CU_ASSERT_TRUE(refused(ctx, WF_EINVAL, "operand 0 was made on another tape"));
    wf_tape_close(other);
    wf_tape_close(tape);
    CU_ASSERT_PTR_NULL(wf_source(NULL));
    wf_context_close(ctx);
}

/* A hook's view of a leaf and of a source, and when it was called. */
typedef struct position {
    const wf_tensor *leaf, *source;
    int number;
    bool leaf_has, source_has;
} position;

static int positions_passed;

static wf_status look(void *arg)
{
    position *p = arg;

    p->number = p->number ? -1 : ++positions_passed;
    p->leaf_has = p->leaf->grad != NULL;
    p->source_has = p->source->grad != NULL;
    return WF_OK;
}

/* Two hooks for each walk at the begin of what uses a leaf, and one for each behind the end. */
static void hooks_have_their_walk(void)
{
    for (int defer = 0; defer < 2; defer++) {
        wf_context *ctx = open_reference(0);
        wf_tape *tape = wf_tape_open(ctx);
        wf_tensor *b = wf_leaf(make(ctx, 0, 2, av)), *x, *z;
        position at[4];

        positions_passed = 0;
        for (int i = 0; i < 2; i++)
            wf_tape_hook(ctx, i ? WF_WALK_WEIGHTS : WF_WALK_INPUTS, look, &at[i]);
        x = wf_source(make(ctx, 0, 2, av));
        for (int i = 0; i < 4; i++)
            at[i] = (position){.leaf = b, .source = x};
        z = wf_mul(x, b);
        for (int i = 2; i < 4; i++)
            wf_tape_hook(ctx, i == 3 ? WF_WALK_WEIGHTS : WF_WALK_INPUTS, look, &at[i]);
        CU_ASSERT_EQUAL(wf_backward(z, make(ctx, 0, 2, ones), defer), WF_OK);
        CU_ASSERT_EQUAL(positions_passed, defer ? 2 : 4);
        CU_ASSERT_TRUE(at[0].source_has && at[0].leaf_has == !defer);
        CU_ASSERT_TRUE(!at[2].source_has && !at[2].leaf_has);
        CU_ASSERT_EQUAL(wf_backward_weights(tape), WF_OK);
        CU_ASSERT_EQUAL(wf_backward_weights(tape), WF_OK); /* once */
        CU_ASSERT_EQUAL(positions_passed, 4);
        CU_ASSERT_TRUE(at[1].source_has && at[1].leaf_has);
        CU_ASSERT_TRUE(at[3].source_has == defer && !at[3].leaf_has);
        CU_ASSERT_TRUE(defer ? at[2].number == 1 && at[0].number == 2 && at[3].number == 3
                             : at[3].number == 1 && at[2].number == 2 && at[1].number == 3);
        wf_tape_close(tape);
        wf_context_close(ctx);
    }
}

static wf_status fail(void *arg)
{
    return wf_fail(arg, WF_ELOST, "no");
}

static void hooks_of_weights_can_fail(void)
{
    wf_context *ctx = open_reference(0);
    wf_tape *tape = wf_tape_open(ctx);
    wf_tensor *a = wf_leaf(make(ctx, 0, 2, av)), *u = wf_scale(a, 3), *z;

    wf_tape_hook(ctx, WF_WALK_WEIGHTS, fail, ctx);
    z = wf_scale(u, 2);
    CU_ASSERT_EQUAL(wf_backward(z, make(ctx, 0, 2, ones), true), WF_OK);
    CU_ASSERT_EQUAL(wf_backward_weights(tape), WF_ELOST);
    CU_ASSERT_PTR_NULL(a->grad);
    wf_tape_close(tape);
    wf_context_close(ctx);
}

/* After the first walk a parameter's memory may be given back: what reads it does not wait. */
static void parameters_go_after_the_first_walk(void)
{
    const wf_dim dims[] = {wf_dim_batch(1), wf_dim_width(2)}, side = wf_dim_chunked(2);
    wf_context *ctx = open_reference(0);
    wf_tape *tape = wf_tape_open(ctx);
    wf_tensor *p =
        wf_tensor_new(ctx, WF_F64, 2, (wf_dim[]){side, dims[1]}, NULL, WF_MEMORY_PARAMETER);
    wf_tensor *x = wf_tensor_new(ctx, WF_F64, 2, dims, NULL, WF_MEMORY_ACTIVATION), *y[3];
    wf_tensor *gain = make(ctx, 0, 2, av), *read = wf_leaf(gain), *w[3], *dy;

    wf_init_fill(p, 2);
    wf_init_fill(x, 1);
    for (int i = 0; i < 3; i++)
        w[i] = wf_leaf(p);
    CU_ASSERT_EQUAL(wf_backward(wf_mul(read, read), make(ctx, 0, 2, ones), true), WF_OK);
    wf_linear_group(wf_source(x), 3, w, y);
    y[0] = wf_add(wf_add(y[0], y[1]), y[2]);
    dy = wf_tensor_like(y[0], WF_MEMORY_ACTIVATION);
    wf_init_fill(dy, 1);
    CU_ASSERT_EQUAL(wf_backward(y[0], dy, true), WF_OK);
    CU_ASSERT_TRUE(equals(read->grad, 2, (const double[]){6, -10}));
    wf_tensor_drop(p);
    wf_tensor_drop(gain);
    for (int i = 0; i < 3; i++)
        CU_ASSERT_PTR_NULL(w[i]->grad);
    CU_ASSERT_EQUAL(wf_backward_weights(tape), WF_OK);
    for (int i = 0; i < 3; i++)
        CU_ASSERT_TRUE(equals(w[i]->grad, 4, (const double[]){1, 1, 1, 1}));
    wf_tape_close(tape);
    CU_ASSERT_EQUAL(wf_context_status(ctx), WF_OK);
    wf_context_close(ctx);
}

int main(void)
{
    static const wf_test tests[] = {
        {"sources end a stage", sources_end_a_stage},
        {"small stages", small_stages},
        {"hooks have their walk", hooks_have_their_walk},
        {"hooks of weights can fail", hooks_of_weights_can_fail},
        {"parameters go after the first walk", parameters_go_after_the_first_walk},
        {NULL, NULL},
    };

    return wf_test_main("walks", tests);
}

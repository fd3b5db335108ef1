/*
 * tests/core/test_op_recompute.c - what an op recomputes in backward (wf_op.recompute): its
 * memory goes with the forward pass, and what reads it gets the bits that it had, whatever
 * became of it in between.
 */
#include "kernels/parameters.h"
#include "tests/core/core_harness.h"

enum { ROWS = 16, WIDTH = 16, COUNT = ROWS * WIDTH };

static const size_t bytes = COUNT * sizeof(double);

/* A context with x, w and dy, and what gelu of x is. */
typedef struct setup {
    wf_context *ctx;
    wf_tape *tape;
    wf_tensor *x, *w, *dy;
    double gelu[COUNT];
} setup;

static wf_tensor *fill(wf_context *ctx, double step)
{
    double value[COUNT];

    for (int i = 0; i < COUNT; i++)
        value[i] = step * (i - COUNT / 3);
    return make(ctx, ROWS, WIDTH, value);
}

static setup begin(void)
{
    setup s = {.ctx = open_reference(0)};

    s.x = wf_leaf(fill(s.ctx, 0.03));
    s.w = wf_leaf(fill(s.ctx, 0.5));
    s.dy = make(s.ctx, ROWS, WIDTH, s.gelu);
    wf_init_fill(s.dy, 1);
    memcpy(s.gelu, wf_gelu(s.x)->data, bytes);
    s.tape = wf_tape_open(s.ctx);
    return s;
}

static void end(setup *s)
{
    wf_tape_close(s->tape);
    CU_ASSERT_EQUAL(wf_context_status(s->ctx), WF_OK);
    wf_context_close(s->ctx);
}

/* w's gradient is what was multiplied with it, since dy is 1. */
static bool gave(const setup *s, const double *expected)
{
    return equals(s->w->grad, COUNT, expected);
}

static void its_memory_goes(void)
{
    for (int defer = 0; defer < 2; defer++) {
        setup s = begin();
        size_t before = in_use(s.ctx);
        wf_tensor *z;

        wf_scope_open(s.ctx);
        z = wf_scope_return(s.ctx, wf_mul(wf_gelu(s.x), s.w));
        CU_ASSERT_EQUAL(in_use(s.ctx), before + bytes); /* z alone */
        CU_ASSERT_EQUAL(wf_backward(z, s.dy, defer), WF_OK);
        if (defer)
            CU_ASSERT_EQUAL(wf_backward_weights(s.tape), WF_OK);
        CU_ASSERT_TRUE(gave(&s, s.gelu));
        end(&s);
    }
}

/* A value that waits for the weights' walk is kept from the first walk on, when its own inputs
   may be freed. */
static void it_waits_as_it_is(void)
{
    setup s = begin();
    wf_tensor *x = wf_leaf(wf_tensor_like(s.x, WF_MEMORY_ACTIVATION)), *z;

    memcpy(x->data, s.x->data, bytes);
    wf_scope_open(s.ctx);
    z = wf_scope_return(s.ctx, wf_mul(wf_gelu(x), s.w));
    CU_ASSERT_EQUAL(wf_backward(z, s.dy, true), WF_OK);
    wf_init_fill(x, 7);
    if (!s.w->grad)
        CU_ASSERT_EQUAL(wf_backward_weights(s.tape), WF_OK);
    CU_ASSERT_TRUE(gave(&s, s.gelu));
    end(&s);
}

static void one_upon_the_other(void)
{
    setup s = begin();
    double gain[WIDTH], expected[COUNT];
    wf_tensor *g, *z;
    size_t before;

    for (int i = 0; i < WIDTH; i++)
        gain[i] = 1 + i * 0.25;
    g = make(s.ctx, 0, WIDTH, gain);
    memcpy(expected, wf_gelu(wf_rmsnorm(s.x, g, 1e-5F))->data, bytes);
    before = in_use(s.ctx);
    wf_scope_open(s.ctx);
    z = wf_scope_return(s.ctx, wf_mul(wf_gelu(wf_rmsnorm(s.x, g, 1e-5F)), s.w));
    CU_ASSERT_TRUE(in_use(s.ctx) < before + 2 * bytes); /* z, and a number for each row */
    CU_ASSERT_EQUAL(wf_backward(z, s.dy, false), WF_OK);
    CU_ASSERT_TRUE(gave(&s, expected));
    end(&s);
}

/* Once it was changed in place it is not what its op makes any more. */
static void changed_before_it_is_read(void)
{
    setup s = begin();
    double threes[COUNT];
    wf_tensor *y = wf_gelu(s.x), *z;

    for (int i = 0; i < COUNT; i++)
        threes[i] = 3;
    wf_init_fill(y, 3);
    z = wf_mul(y, s.w);
    CU_ASSERT_EQUAL(wf_backward(z, s.dy, false), WF_OK);
    CU_ASSERT_TRUE(gave(&s, threes));
    end(&s);
}

/* Changed after it was read: nobody needs it any more. What it is made from is needed. */
static void changed_after_it_was_read(void)
{
    setup s = begin();
    wf_tensor *y = wf_gelu(s.x), *z = wf_mul(y, s.w);

    wf_init_scale(y, 2);
    CU_ASSERT_EQUAL(wf_backward(z, s.dy, false), WF_OK);
    CU_ASSERT_TRUE(gave(&s, s.gelu));
    end(&s);

    s = begin();
    z = wf_mul(wf_gelu(s.x), s.w);
    wf_init_scale(s.x, 2);
    CU_ASSERT_EQUAL(wf_backward(z, s.dy, false), WF_EINVAL);
    CU_ASSERT_TRUE(
        refused(s.ctx, WF_EINVAL, "gelu: operand 0, f64 [16,16], was changed in place"));
    CU_ASSERT_PTR_NULL(s.w->grad);
    end(&s);
}

/* [rows, WIDTH], or [WIDTH], of ones: gathered with all of a group. */
static wf_tensor *gathered(wf_context *ctx, int64_t rows, const void *group)
{
    wf_dim dims[] = {wf_dim_batch(rows), wf_dim_width(WIDTH)};
    wf_tensor *t = wf_tensor_absent(ctx, WF_F64, rows ? 2 : 1, rows ? dims : dims + 1, NULL);
    double ones[COUNT];
    wf_tensor *from = make(ctx, rows, WIDTH, ones);

    wf_tensor_comes_with(t, group);
    wf_init_fill(from, 1);
    CU_ASSERT_EQUAL(wf_tensor_take(t, from), WF_OK);
    return wf_leaf(t);
}

/* A gain that is gathered is read again where the reader's weight comes with it. Else the
   result is kept, so that the gain may be away by then. */
static void a_gain_that_comes_and_goes(void)
{
    static const int unit, other;

    for (int together = 0; together < 2; together++) {
        setup s = begin();
        wf_tensor *gain = gathered(s.ctx, 0, &unit), *z;
        wf_tensor *w = gathered(s.ctx, ROWS, together ? &unit : &other);
        wf_tensor *x = wf_detach(s.x);
        double expected[COUNT];
        size_t before;

        memcpy(expected, wf_rmsnorm(x, gain, 1e-5F)->data, bytes);
        before = in_use(s.ctx);
        wf_scope_open(s.ctx);
        z = wf_scope_return(s.ctx, wf_mul(wf_rmsnorm(x, gain, 1e-5F), w));
        CU_ASSERT_EQUAL(in_use(s.ctx) < before + 2 * bytes, together);
        CU_ASSERT_EQUAL(wf_backward(z, s.dy, true),
                        WF_OK); /* without the gain's own gradient */
        if (!together)
            wf_tensor_drop(gain);
        CU_ASSERT_EQUAL(wf_backward_weights(s.tape), WF_OK);
        CU_ASSERT_TRUE(equals(w->grad, COUNT, expected));
        end(&s);
    }
}

int main(void)
{
    static const wf_test tests[] = {{"its memory goes", its_memory_goes},
                                    {"it waits as it is", it_waits_as_it_is},
                                    {"one upon the other", one_upon_the_other},
                                    {"changed before it is read", changed_before_it_is_read},
                                    {"changed after it was read", changed_after_it_was_read},
                                    {"a gain that comes and goes", a_gain_that_comes_and_goes},
                                    {NULL, NULL}};

    return wf_test_main("op_recompute", tests);
}

/*
 * tests/core/test_absent.c - tensors whose memory comes and goes, and hooks on a tape: the two
 * things that let a parameter be gathered for forward, given back, and gathered for backward.
 */
#include "core/host_data.h"
#include "core/later.h"
#include "tests/core/core_harness.h"

static const double ones[4] = {1, 1, 1, 1};

static wf_tensor *absent(wf_context *ctx, int64_t columns)
{
    wf_dim dim = wf_dim_width(columns);

    return wf_tensor_absent(ctx, WF_F64, 1, &dim, NULL);
}

/* All that share the data see it come and go, whatever was released in between. */
static void aliases_come_and_go_together(void)
{
    static const double v[] = {1, 2, 3, 4}, w[] = {5, 6, 7, 8};
    wf_context *ctx = open_reference(0);
    wf_tensor *t = absent(ctx, 4), *before = wf_tensor_alias(t), *view, *from;
    wf_dim square[] = {wf_dim_width(2), wf_dim_width(2)};
    size_t empty = in_use(ctx);

    CU_ASSERT(wf_tensor_is_absent(t) && wf_tensor_is_absent(before) && !t->data);
    CU_ASSERT(!wf_tensor_is_fake(t));
    from = make(ctx, 0, 4, v);
    CU_ASSERT_EQUAL(wf_tensor_take(t, from), WF_OK);
    CU_ASSERT(wf_tensor_is_absent(from) && !wf_tensor_is_absent(before));
    CU_ASSERT(equals(t, 4, v) && equals(before, 4, v) && t->data == before->data);
    wf_scope_open(ctx); /* one that does not stay */
    view = wf_tensor_view(before, 2, square, NULL);
    CU_ASSERT(equals(view, 4, v));
    wf_scope_close(ctx);
    view = wf_tensor_view(t, 2, square, NULL);
    CU_ASSERT_EQUAL(in_use(ctx), empty + 64);
    wf_tensor_drop(view);
    CU_ASSERT(!t->data && !before->data && !view->data);
    CU_ASSERT_EQUAL(in_use(ctx), empty);
    wf_tensor_drop(t); /* twice is once */
    wf_tensor_drop(NULL);
    CU_ASSERT_EQUAL(wf_tensor_take(before, make(ctx, 0, 4, w)), WF_OK);
    CU_ASSERT(equals(t, 4, w) && equals(view, 4, w));
    CU_ASSERT_EQUAL(wf_context_status(ctx), WF_OK);
    wf_context_close(ctx);
}

static void wrong_takes(void)
{
    wf_context *ctx = open_reference(0);
    wf_tensor *t = absent(ctx, 4), *small = make(ctx, 0, 2, ones), *x = make(ctx, 0, 4, ones);

    CU_ASSERT_EQUAL(wf_tensor_take(t, small), WF_EINVAL);
    CU_ASSERT(refused(ctx, WF_EINVAL, "needs just as much"));
    CU_ASSERT_EQUAL(wf_tensor_take(x, make(ctx, 0, 4, ones)), WF_EINVAL);
    CU_ASSERT(refused(ctx, WF_EINVAL, "only where it has none of its own"));
    CU_ASSERT_EQUAL(wf_tensor_take(t, t), WF_EINVAL);
    CU_ASSERT(refused(ctx, WF_EINVAL, "only where it has none of its own"));
    CU_ASSERT_PTR_NULL(wf_add(x, t));
    CU_ASSERT(refused(ctx, WF_EINVAL, "add: the memory of operand 1 was given back"));
    CU_ASSERT(equals(wf_add(x, x), 4, (const double[]){2, 2, 2, 2}));
    wf_context_close(ctx);
}

/* y = p x; p goes after forward, and comes again, elsewhere, before backward needs it. */
static void a_tape_finds_its_data_again(void)
{
    static const double pv[] = {2, 3}, xv[] = {5, 7};
    wf_context *ctx = open_reference(0);
    wf_tape *tape = wf_tape_open(ctx);
    wf_tensor *p = absent(ctx, 2), *x = wf_leaf(make(ctx, 0, 2, xv)), *use, *y;

    wf_tensor_take(p, make(ctx, 0, 2, pv));
    use = wf_leaf(p);
    y = wf_mul(use, x);
    wf_tensor_drop(p);
    CU_ASSERT_EQUAL(wf_tensor_take(p, make(ctx, 0, 2, pv)), WF_OK);
    CU_ASSERT_EQUAL(wf_backward(y, make(ctx, 0, 2, ones), false), WF_OK);
    CU_ASSERT(equals(x->grad, 2, pv) && equals(use->grad, 2, xv));
    y = wf_mul(use, x);
    wf_tensor_drop(p);
    CU_ASSERT_EQUAL(wf_backward(y, make(ctx, 0, 2, ones), false), WF_EINVAL);
    CU_ASSERT(refused(ctx, WF_EINVAL, "mul: the memory of operand"));
    wf_tape_close(tape);
    wf_context_close(ctx);
}

/* A hook notes whether some leaf has its gradient by then. */
typedef struct witness {
    const wf_tensor *leaf;
    int calls, number;
    bool has_gradient;
    wf_status answer;
} witness;

static int passed_so_far;

static wf_status pass(void *arg)
{
    witness *w = arg;

    w->calls++;
    w->number = ++passed_so_far;
    w->has_gradient = w->leaf && w->leaf->grad;
    return w->answer;
}

/* z = ((a) | b a) | c: hooks between, behind the end, and where nothing flows. */
static void hooks_are_called_backwards(void)
{
    wf_context *ctx = open_reference(0);
    wf_tensor *a = wf_leaf(make(ctx, 0, 2, ones)), *b = wf_leaf(make(ctx, 0, 2, ones)), *u, *z;
    witness first = {.leaf = a}, second = {.leaf = b}, third = {.leaf = b}, last = {.leaf = b};
    wf_tape *tape;

    passed_so_far = 0;
    CU_ASSERT_EQUAL(wf_tape_hook(ctx, WF_WALK_INPUTS, pass, &first), WF_OK); /* no tape */
    tape = wf_tape_open(ctx);
    wf_tape_hook(ctx, WF_WALK_INPUTS, pass, &first);
    u = wf_scale(a, 3);
    wf_tape_hook(ctx, WF_WALK_INPUTS, pass, &second);
    z = wf_mul(u, b);
    wf_tape_hook(ctx, WF_WALK_INPUTS, pass, &third);
    wf_add(z, z); /* nothing comes from here */
    wf_tape_hook(ctx, WF_WALK_INPUTS, pass, &last);
    CU_ASSERT_EQUAL(wf_backward(z, make(ctx, 0, 2, ones), false), WF_OK);
    CU_ASSERT(last.number == 1 && third.number == 2 && second.number == 3 && first.number == 4);
    CU_ASSERT(!last.has_gradient && !third.has_gradient);
    CU_ASSERT(second.has_gradient && first.has_gradient);
    CU_ASSERT(first.calls == 1 && last.calls == 1);
    wf_tape_close(tape);
    wf_context_close(ctx);
}

/* Rows that come later; `whole` NULL: they do not. */
typedef struct coming {
    wf_later later;
    wf_context *ctx;
    wf_tensor *whole;
    int asked, ended;
} coming;

static wf_tensor *all_come(wf_later *later)
{
    coming *c = (coming *)later;

    c->asked++;
    if (!c->whole)
        wf_fail(c->ctx, WF_ELOST, "a rank with rows is gone");
    return c->whole;
}

static void no_more(wf_later *later)
{
    ((coming *)later)->ended++;
}

static wf_tensor *of_rows(coming *c, wf_context *ctx, wf_tensor *whole)
{
    wf_dim dims[] = {wf_dim_batch(2), wf_dim_width(2)};

    *c = (coming){.later = {.all = all_come, .end = no_more}, .ctx = ctx, .whole = whole};
    return wf_later_tensor(ctx, WF_F64, 2, dims, NULL, &c->later);
}

/* Who reads on the host, or writes there, waits for rows that come later; what does not come,
   or was given back, is an error and not a NULL without one. */
static void hosts_wait_for_rows(void)
{
    static const double v[] = {1, 2, 3, 4};
    wf_context *ctx = open_reference(0);
    coming c;
    wf_host_data view;
    wf_tensor *t = of_rows(&c, ctx, make(ctx, 2, 2, v));
    const double *read = wf_data_read(wf_tensor_alias(t), &view);
    double one = 0, *written;

    CU_ASSERT_PTR_NOT_NULL(read);
    CU_ASSERT_EQUAL(read ? read[3] : 0, 4);
    wf_data_close(&view);
    CU_ASSERT(c.asked == 1 && c.ended == 1);
    t = of_rows(&c, ctx, make(ctx, 2, 2, v));
    CU_ASSERT_EQUAL(wf_data_get(t, 2, 1, &one), WF_OK);
    CU_ASSERT_EQUAL(one, 3);
    t = of_rows(&c, ctx, make(ctx, 2, 2, v));
    written = wf_data_write(t, true, &view);
    CU_ASSERT_PTR_NOT_NULL_FATAL(written);
    written[0] = 9;
    wf_data_close(&view);
    CU_ASSERT(equals(t, 4, (const double[]){9, 2, 3, 4}) && c.asked == 1 && c.ended == 1);
    CU_ASSERT_EQUAL(wf_context_status(ctx), WF_OK);

    t = of_rows(&c, ctx, NULL);
    CU_ASSERT_PTR_NULL(wf_data_read(t, &view));
    wf_data_close(&view);
    CU_ASSERT(refused(ctx, WF_ELOST, "a rank with rows is gone"));
    CU_ASSERT_EQUAL(wf_data_get(t, 0, 1, &one), WF_ELOST);
    wf_context_clear(ctx);
    t = absent(ctx, 4);
    CU_ASSERT_PTR_NULL(wf_data_read(t, &view));
    CU_ASSERT(refused(ctx, WF_EINVAL, "its memory was given back"));
    CU_ASSERT_EQUAL(wf_data_get(t, 0, 1, &one), WF_EINVAL);
    wf_context_clear(ctx);
    wf_context_close(ctx);
}

/* An error that a mark returns ends the walk. */
static void hooks_can_fail(void)
{
    wf_context *ctx = open_reference(0);
    wf_tape *tape = wf_tape_open(ctx);
    wf_tensor *a = wf_leaf(make(ctx, 0, 2, ones)), *u = wf_scale(a, 3), *z;
    witness w = {.answer = WF_ELOST};

    wf_tape_hook(ctx, WF_WALK_INPUTS, pass, &w);
    z = wf_scale(u, 2);
    CU_ASSERT_EQUAL(wf_backward(z, make(ctx, 0, 2, ones), false), WF_ELOST);
    CU_ASSERT_PTR_NULL(a->grad);
    wf_tape_close(tape);
    wf_context_close(ctx);
}

int main(void)
{
    static const wf_test tests[] = {
        {"what shares data comes and goes together", aliases_come_and_go_together},
        {"wrong takes, and ops on what is absent", wrong_takes},
        {"a tape finds its data again", a_tape_finds_its_data_again},
        {"hooks are called backwards", hooks_are_called_backwards},
        {"hooks can fail", hooks_can_fail},
        {"hosts wait for rows that come later", hosts_wait_for_rows},
        {NULL, NULL},
    };

    return wf_test_main("absent", tests);
}

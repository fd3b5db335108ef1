/*
 * tests/nn/test_uses.c - uses of a parameter: each has a leaf and a gradient of its own, in the
 * order of forward, whatever is recomputed.
 */
#include "kernels/ops.h"
#include "nn/checkpointing.h"
#include "tests/nn/model_ranks.h"
#include "tests/nn/repeat_module.h"

enum { USES = 4, MANY = 9 };

/* d(g^n x)/dg = n g^(n-1) x, as n slots that hold g^(n-1) x each, however many there are. */
static void uses_are_slots(void)
{
    wf_context *ctx = lone_context(1);
    repeat *m = new_repeat(ctx, MANY);
    wf_tensor *y;
    wf_tape *tape;

    wf_nn_name_tree(&m->base);
    wf_scope_open(ctx);
    tape = wf_tape_open(ctx);
    y = wf_nn_call(m, three_of(ctx, 1));
    CU_ASSERT_EQUAL(wf_backward(y, three_of(ctx, 1), false), WF_OK);
    CU_ASSERT_EQUAL(wf_nn_leaves_of(m->gain, NULL)->uses, MANY);
    for (int i = 0; i < wf_nn_leaves_of(m->gain, NULL)->uses; i++)
        CU_ASSERT_EQUAL(first_of(wf_nn_leaves_of(m->gain, NULL)->use[i]->grad), 6561);
    wf_nn_forget_uses(m->gain);
    CU_ASSERT_EQUAL(wf_nn_leaves_of(m->gain, NULL)->uses, 0);
    m->gain->frozen = true;
    CU_ASSERT_EQUAL(first_of(wf_nn_call(m, three_of(ctx, 1))), 19683);
    CU_ASSERT_EQUAL(wf_nn_leaves_of(m->gain, NULL)->uses, 0);
    m->gain->frozen = false;
    CU_ASSERT_EQUAL(first_of(wf_nn_call(m, three_of(ctx, 1))), 19683);
    CU_ASSERT_EQUAL(wf_nn_leaves_of(m->gain, NULL)->uses,
                    MANY); /* leaves that the parameter still holds */
    wf_tape_close(tape);
    wf_scope_close(ctx);
    wf_nn_free(&m->base);
    close_lone(ctx, WF_OK);
}

/* x -> gain * x + 1, `times` times, then the children's: the gradient of every use is
   another. */
static wf_tensor *affine_forward(wf_nn_module *self, wf_tensor *x)
{
    repeat *m = (repeat *)self;
    wf_tensor *one = three_of(m->base.ctx, 1);

    for (int i = 0; i < m->times; i++)
        x = wf_add(wf_mul(x, wf_nn_use(m, m->gain)), one);
    for (int64_t i = 0; i < m->children; i++)
        x = wf_nn_call(m->list[i], x);
    return x;
}

static const wf_nn_type affine_type = {"affine",       sizeof(repeat), repeat_fields,
                                       affine_forward, NULL,           NULL};
static const wf_nn_type root_type = {"root",         sizeof(repeat), repeat_fields,
                                     affine_forward, NULL,           NULL};

static repeat *new_affine(wf_context *ctx, const wf_nn_type *type, wf_nn_parameter *gain,
                          int times, int children)
{
    repeat *m = wf_nn_new(ctx, type);

    CU_ASSERT_PTR_NOT_NULL_FATAL(m);
    m->times = times;
    m->gain = gain;
    m->list = calloc((size_t)children + 1, sizeof *m->list);
    CU_ASSERT_PTR_NOT_NULL_FATAL(m->list);
    return m;
}

/* root: one use, then `first` and `second`; `first`: one use, then `inner` with one. */
static repeat *four_uses(wf_context *ctx)
{
    repeat *m = new_repeat(ctx, 1), *root, *first;
    wf_nn_parameter *gain = wf_nn_tie(m->gain);

    wf_nn_free(&m->base);
    root = new_affine(ctx, &root_type, gain, 1, 2);
    first = new_affine(ctx, &affine_type, wf_nn_tie(gain), 1, 1);
    first->list[first->children++] =
        &new_affine(ctx, &affine_type, wf_nn_tie(gain), 1, 0)->base;
    root->list[root->children++] = &first->base;
    root->list[root->children++] = &new_affine(ctx, &affine_type, wf_nn_tie(gain), 1, 0)->base;
    wf_nn_name_tree(&root->base);
    return root;
}

/* The gradient of each use of gain; -1 where there is none. */
static void gradients_of_uses(wf_context *ctx, repeat *root, bool defer, float *grad)
{
    wf_tape *tape;
    wf_tensor *y;

    wf_scope_open(ctx);
    tape = wf_tape_open(ctx);
    y = wf_nn_call(root, three_of(ctx, 0.1f));
    CU_ASSERT_EQUAL(wf_nn_leaves_of(root->gain, NULL)->uses, USES);
    CU_ASSERT_EQUAL(wf_backward(y, three_of(ctx, 1), defer), WF_OK);
    for (int u = 0; u < USES && defer; u++)
        CU_ASSERT(!wf_nn_leaves_of(root->gain, NULL)->use[u] ||
                  !wf_nn_leaves_of(root->gain, NULL)->use[u]->grad);
    CU_ASSERT_EQUAL(wf_backward_weights(tape), WF_OK);
    CU_ASSERT_EQUAL(wf_nn_leaves_of(root->gain, NULL)->uses, USES);
    for (int u = 0; u < wf_nn_leaves_of(root->gain, NULL)->uses; u++)
        grad[u] = wf_nn_leaves_of(root->gain, NULL)->use[u]
                      ? first_of(wf_nn_leaves_of(root->gain, NULL)->use[u]->grad)
                      : -1;
    wf_nn_forget_uses(root->gain);
    wf_tape_close(tape);
    wf_scope_close(ctx);
}

/* Uses have their places by the order of forward, whatever is recomputed, inside of what is
   recomputed too, and whenever gradients of weights are made. */
static void uses_keep_their_order(void)
{
    static const char *const again[] = {NULL, "affine", "root"};
    wf_context *ctx = lone_context(1);
    repeat *root = four_uses(ctx);
    float plain[USES], grad[USES];

    gradients_of_uses(ctx, root, false, plain);
    for (int u = 1; u < USES; u++)
        CU_ASSERT_NOT_EQUAL(plain[u], plain[u - 1]);
    for (int i = 0; i < 3; i++)
        for (int defer = 0; defer < 2; defer++) {
            CU_ASSERT_EQUAL(wf_nn_recompute(&root->base, again[i]), WF_OK);
            gradients_of_uses(ctx, root, defer, grad);
            for (int u = 0; u < USES; u++)
                CU_ASSERT_EQUAL(grad[u], plain[u]);
        }
    wf_nn_free(&root->base);
    close_lone(ctx, WF_OK);
}

/* A module that uses its gain once in forward, and once more when it runs again. */
static wf_tensor *once_more_forward(wf_nn_module *self, wf_tensor *x)
{
    repeat *m = (repeat *)self;

    for (int i = 0; i < 1 + wf_nn_is_recomputing(m); i++)
        x = wf_mul(x, wf_nn_use(m, m->gain));
    return x;
}

/* A run without a tape counts no uses; and a module that does something else when backward runs
   it again is found out, since its uses would take the places of others. */
static void uses_are_counted_in_forward(void)
{
    static const wf_nn_type type = {"once_more",       sizeof(repeat), repeat_fields,
                                    once_more_forward, NULL,           NULL};
    wf_context *ctx = lone_context(1);
    repeat *root = four_uses(ctx);
    wf_tensor *y;
    wf_tape *tape;

    root->list[0]->type = &type; /* one use, and one behind it */
    CU_ASSERT_EQUAL(wf_nn_recompute(&root->base, "once_more"), WF_OK);
    wf_scope_open(ctx);
    CU_ASSERT_PTR_NOT_NULL(wf_nn_call(root, three_of(ctx, 1)));
    CU_ASSERT_EQUAL(wf_nn_leaves_of(root->gain, NULL)->uses, 0);
    tape = wf_tape_open(ctx);
    y = wf_nn_call(root, three_of(ctx, 1));
    CU_ASSERT_EQUAL(wf_nn_leaves_of(root->gain, NULL)->uses, 3);
    CU_ASSERT_EQUAL(wf_backward(y, three_of(ctx, 1), false), WF_EINVAL);
    CU_ASSERT_PTR_NOT_NULL(strstr(wf_context_error(ctx)->text,
                                  "module list.0 uses parameters 1 times in forward and 2"));
    wf_tape_close(tape);
    wf_scope_close(ctx);
    wf_nn_free(&root->base);
    close_lone(ctx, WF_EINVAL);
}

int main(void)
{
    static const wf_test tests[] = {
        {"uses are slots", uses_are_slots},
        {"uses keep their order", uses_keep_their_order},
        {"uses are counted in forward", uses_are_counted_in_forward},
        {NULL, NULL}};

    return wf_test_main("uses", tests);
}

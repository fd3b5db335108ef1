/* tests/nn/test_children.c - modules of named children: what follows from the names, and
 * refusals; modules with nothing to recompute for. */
#include "nn/children.h"
#include "nn/checkpointing.h"
#include "kernels/ops.h"
#include "tests/nn/model_ranks.h"

static wf_tensor *scaled_forward(wf_nn_module *self, wf_tensor *x)
{
    return wf_mul(x, wf_nn_weight(self, "gain"));
}

static wf_nn_module *scaled(wf_context *ctx, float gain)
{
    return wf_nn_module_new(ctx, "scaled", scaled_forward,
                            WF_PARAMETER("gain", gain_of(ctx, gain)));
}

static wf_tensor *twice_forward(wf_nn_module *self, wf_tensor *x)
{
    const float *factor = wf_nn_kept(self);

    x = wf_mul(wf_nn_run(self, "list", x), wf_nn_weight(self, "gain"));
    return wf_scale(wf_nn_run(self, "norm", x), *factor);
}

/* Fields follow from names: paths, parameters and runs are those of a module with a struct. */
static void named_children(void)
{
    static const float factor = 0.5f;
    wf_context *ctx = lone_context(1);
    wf_nn_module **list = calloc(2, sizeof *list), *m;
    wf_nn_parameter **all;
    int64_t count;

    wf_scope_open(ctx);
    CU_ASSERT_PTR_NOT_NULL_FATAL(list);
    list[0] = scaled(ctx, 3);
    list[1] = scaled(ctx, 9);
    m = wf_nn_module_new(ctx, "twice", twice_forward, WF_PARAMETER("gain", gain_of(ctx, 2)),
                         WF_CHILD("norm", scaled(ctx, 1)), WF_CHILDREN("list", list, 2));
    CU_ASSERT_PTR_NOT_NULL_FATAL(m);
    CU_ASSERT_EQUAL(wf_nn_keep(m, &factor, sizeof factor), WF_OK);
    wf_nn_name_tree(m);
    all = wf_nn_parameters(m, &count);
    CU_ASSERT_EQUAL(count, 4);
    CU_ASSERT_STRING_EQUAL(all[0]->path, "gain");
    CU_ASSERT_STRING_EQUAL(all[1]->path, "norm.gain");
    CU_ASSERT_STRING_EQUAL(all[3]->path, "list.1.gain");
    free(all);
    CU_ASSERT_EQUAL(first_of(wf_nn_call(m, three_of(ctx, 1))), 27); /* 3 * 9 * 2 / 2 */
    CU_ASSERT_PTR_EQUAL(wf_nn_children(m, "list", &count), list);
    CU_ASSERT_EQUAL(count, 2);
    CU_ASSERT_PTR_NULL(wf_nn_child(m, "norm2"));
    CU_ASSERT(strstr(wf_context_error(ctx)->text, "has no child called norm2; it has norm") !=
              NULL);
    wf_context_clear(ctx);
    wf_nn_free(m);
    wf_scope_close(ctx);
    wf_context_close(ctx);
}

/* A module that cannot be made frees what it was given. */
static void children_refused(void)
{
    wf_context *ctx = lone_context(1);
    const wf_dim wide = wf_dim_width(3);

    CU_ASSERT_PTR_NULL(wf_nn_module_new(ctx, "two", NULL, WF_CHILD("a", scaled(ctx, 1)),
                                        WF_CHILD("a", scaled(ctx, 1))));
    CU_ASSERT(strstr(wf_context_error(ctx)->text, "two entries called a") != NULL);
    wf_context_clear(ctx);
    CU_ASSERT_PTR_NULL(wf_nn_module_new(
        ctx, "dotted", NULL, WF_PARAMETER("a.b", wf_nn_parameter_new(ctx, 1, &wide, false))));
    CU_ASSERT(strstr(wf_context_error(ctx)->text, "an entry called 'a.b'") != NULL);
    wf_context_clear(ctx);
    CU_ASSERT_PTR_NULL(wf_nn_module_new(ctx, "none", NULL, WF_CHILD("a", NULL)));
    CU_ASSERT(strstr(wf_context_error(ctx)->text, "entry a of module none is NULL") != NULL);
    wf_context_clear(ctx);
    wf_context_close(ctx);
}

static wf_tensor *its_input(wf_nn_module *self, wf_tensor *x)
{
    (void)self;
    return x;
}

static wf_tensor *detached(wf_nn_module *self, wf_tensor *x)
{
    (void)self;
    return wf_scale(wf_detach(x), 3);
}

static wf_tensor *its_constant(wf_nn_module *self, wf_tensor *x)
{
    (void)x;
    return *(wf_tensor *const *)wf_nn_kept(self);
}

static wf_tensor *its_parameter(wf_nn_module *self, wf_tensor *x)
{
    (void)x;
    return wf_nn_weight(self, "gain");
}

/* The gradients of 3 (m(x) + x) at 1: of x, and of m's parameter. */
static void gradients_of(wf_nn_module *m, bool again, float grad[2])
{
    wf_nn_parameter **all;
    wf_context *ctx = m->ctx;
    int64_t count;
    wf_tape *tape;
    wf_tensor *x;

    CU_ASSERT_EQUAL(wf_nn_recompute(m, again ? "odd" : NULL), WF_OK);
    all = wf_nn_parameters(m, &count);
    wf_scope_open(ctx);
    tape = wf_tape_open(ctx);
    x = wf_leaf(three_of(ctx, 5));
    CU_ASSERT_EQUAL(
        wf_backward(wf_scale(wf_add(wf_nn_call(m, x), x), 3), three_of(ctx, 1), false), WF_OK);
    grad[0] = first_of(x->grad);
    grad[1] = wf_nn_leaves_of(all[0], NULL)->uses && wf_nn_leaves_of(all[0], NULL)->use[0]
                  ? first_of(wf_nn_leaves_of(all[0], NULL)->use[0]->grad)
                  : -1;
    wf_nn_forget_uses(all[0]);
    wf_tape_close(tape);
    wf_scope_close(ctx);
    free(all);
}

/* A module whose result has no gradient, or is none of its own, is recomputed as it runs once;
   and a constant of its own is none that a tape knows. */
static void nothing_to_recompute_for(void)
{
    wf_nn_forward *const forward[] = {its_input, detached, its_constant, its_parameter};
    static const float expected[][2] = {{6, -1}, {3, -1}, {3, -1}, {3, 3}};
    wf_context *ctx = lone_context(1);

    wf_scope_open(ctx);
    for (int i = 0; i < 4; i++) {
        wf_tensor *constant = three_of(ctx, 7);
        wf_nn_module *m =
            wf_nn_module_new(ctx, "odd", forward[i], WF_PARAMETER("gain", gain_of(ctx, 2)));

        CU_ASSERT_PTR_NOT_NULL_FATAL(m);
        CU_ASSERT_EQUAL(wf_nn_keep(m, &constant, sizeof(wf_tensor *)), WF_OK);
        wf_nn_name_tree(m);
        for (int again = 0; again < 3; again++) {
            float grad[2];

            gradients_of(m, again > 0, grad);
            CU_ASSERT_EQUAL(grad[0], expected[i][0]);
            CU_ASSERT_EQUAL(grad[1], expected[i][1]);
            CU_ASSERT(!constant->requires_grad);
        }
        wf_nn_free(m);
    }
    wf_scope_close(ctx);
    close_lone(ctx, WF_OK);
}

int main(void)
{
    static const wf_test tests[] = {{"modules of named children", named_children},
                                    {"children that are refused", children_refused},
                                    {"nothing to recompute for", nothing_to_recompute_for},
                                    {NULL, NULL}};

    return wf_test_main("children", tests);
}

/* tests/nn/test_replace.c - a module that replaces another: paths, ties, and refusals. */
#include "nn/children.h"
#include "nn/models/gpt/gpt.h"
#include "kernels/ops.h"
#include "tests/nn/model_ranks.h"
#include <string.h>

static wf_tensor *scaled_forward(wf_nn_module *self, wf_tensor *x)
{
    return wf_mul(x, wf_nn_weight(self, "gain"));
}

static wf_nn_module *scaled(wf_context *ctx, wf_nn_parameter *gain)
{
    return wf_nn_module_new(ctx, "scaled", scaled_forward, WF_PARAMETER("gain", gain));
}

static wf_tensor *shifted_forward(wf_nn_module *self, wf_tensor *x)
{
    return wf_add(x, wf_nn_weight(self, "shift"));
}

static wf_tensor *both_forward(wf_nn_module *self, wf_tensor *x)
{
    return wf_nn_run(self, "list", wf_nn_run(self, "first", x));
}

/* Returns x times 2, 3 and 2, the last one being the parameter of the first. */
static wf_nn_module *tied(wf_context *ctx)
{
    wf_nn_module **list = calloc(2, sizeof *list);
    wf_nn_parameter *two = gain_of(ctx, 2);

    CU_ASSERT_PTR_NOT_NULL_FATAL(list);
    list[0] = scaled(ctx, gain_of(ctx, 3));
    list[1] = scaled(ctx, wf_nn_tie(two));
    return wf_nn_module_new(ctx, "both", both_forward, WF_CHILD("first", scaled(ctx, two)),
                            WF_CHILDREN("list", list, 2));
}

static void paths_and_ties(void)
{
    wf_context *ctx = lone_context(1);
    wf_nn_module *m;
    wf_nn_parameter **all;
    int64_t count;

    wf_scope_open(ctx);
    m = tied(ctx);
    CU_ASSERT_FATAL(m && wf_nn_name_tree(m) == WF_OK);
    CU_ASSERT_EQUAL(first_of(wf_nn_call(m, three_of(ctx, 1))), 12);
    CU_ASSERT_EQUAL(wf_nn_replace(m, "list.0", scaled(ctx, gain_of(ctx, 5))), WF_OK);
    CU_ASSERT_EQUAL(first_of(wf_nn_call(m, three_of(ctx, 1))), 20);
    CU_ASSERT_EQUAL(wf_nn_replace(m, "first",
                                  wf_nn_module_new(ctx, "shifted", shifted_forward,
                                                   WF_PARAMETER("shift", gain_of(ctx, 7)))),
                    WF_OK);
    CU_ASSERT_EQUAL(first_of(wf_nn_call(m, three_of(ctx, 1))), 80);
    all = wf_nn_parameters(m, &count);
    CU_ASSERT_FATAL(count == 3);
    CU_ASSERT_STRING_EQUAL(all[0]->path, "first.shift");
    CU_ASSERT_STRING_EQUAL(all[1]->path, "list.0.gain");
    CU_ASSERT_STRING_EQUAL(all[2]->path, "list.1.gain"); /* it was first.gain */
    free(all);
    wf_nn_free(m);
    wf_scope_close(ctx);
    close_lone(ctx, WF_OK);
}

/* Refuses a replacement for the reason `why`. */
static void refuse_for(const char *path, int how, const char *why)
{
    wf_context *ctx = lone_context(1);
    wf_nn_module *m, *other;
    int owner;

    wf_scope_open(ctx);
    m = tied(ctx);
    other = how == 1 ? NULL : how == 2 ? m : scaled(ctx, gain_of(ctx, 1));
    CU_ASSERT_PTR_NOT_NULL_FATAL(m);
    if (how == 3)
        wf_nn_parameter_of(wf_nn_child(m, "first"), "gain")->plan = (void *)&owner;
    CU_ASSERT_EQUAL(wf_nn_replace(m, path, other), WF_EINVAL);
    CU_ASSERT(strstr(wf_context_error(ctx)->text, why) != NULL);
    wf_nn_free(m);
    wf_scope_close(ctx);
    close_lone(ctx, WF_EINVAL);
}

static void refusals(void)
{
    refuse_for("list.2", 0, "no module is at path 'list.2'");
    refuse_for("", 0, "no module is at path ''");
    refuse_for("first", 1, "by NULL");
    refuse_for("first", 2, "it is the root");
    refuse_for("first", 3, "has a sharding plan");
}

/* A model with structs of its own takes modules of the same type alone. */
static void types(void)
{
    static const wf_nn_gpt_config tiny = {WF_NN_GPT2,  .vocabulary = 11, .positions = 5,
                                          .layers = 1, .heads = 3,       .kv_heads = 3,
                                          .width = 6,  .ffn = 7};
    const wf_nn_mlp_options wide = {.width = 6, .hidden = 9};
    wf_context *ctx = lone_context(1);
    wf_nn_module *m = (wf_nn_module *)wf_nn_gpt_new(ctx, &tiny);
    wf_nn_parameter **all;
    int64_t count, rows = 0;

    CU_ASSERT_PTR_NOT_NULL_FATAL(m);
    CU_ASSERT_EQUAL(
        wf_nn_replace(m, "block.0.mlp", (wf_nn_module *)wf_nn_gelu_mlp_new(ctx, &wide)), WF_OK);
    all = wf_nn_parameters(m, &count);
    for (int64_t i = 0; i < count; i++)
        if (strcmp(all[i]->path, "block.0.mlp.up.weight") == 0)
            rows = all[i]->tensor->dim[0].size;
    free(all);
    CU_ASSERT_EQUAL(rows, 9);
    wf_scope_open(ctx);
    CU_ASSERT_EQUAL(wf_nn_replace(m, "block.0.mlp", scaled(ctx, gain_of(ctx, 1))), WF_EINVAL);
    CU_ASSERT(strstr(wf_context_error(ctx)->text, "give one of the same type") != NULL);
    wf_nn_free(m);
    wf_scope_close(ctx);
    close_lone(ctx, WF_EINVAL);
}

int main(void)
{
    static const wf_test tests[] = {{"paths and ties", paths_and_ties},
                                    {"refusals", refusals},
                                    {"types", types},
                                    {NULL, NULL}};

    return wf_test_main("replace", tests);
}

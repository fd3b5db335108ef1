/*
 * tests/nn/test_module.c - what every module has: points, scopes, children, paths.
 *
 * ctest: builds address thread
 */
#include "kernels/ops.h"
#include "kernels/parameters.h"
#include "nn/checkpointing.h"
#include "nn/layers/moe.h"
#include "tests/nn/model_ranks.h"
#include "tests/nn/repeat_module.h"

/* The hooks of a plan see what passes, and may put something else in its place. */
typedef struct witness {
    int points, uses, entered, left;
    wf_nn_module *module;
    wf_nn_parameter *parameter;
} witness;

static void double_it(void *self, wf_nn_module *m, const char *point, int n, wf_tensor **x)
{
    witness *w = self;

    w->points += n == 1 && strcmp(point, "in") == 0;
    w->module = m;
    x[0] = wf_scale(x[0], 2);
}

static wf_tensor *halve_it(void *self, wf_nn_module *m, wf_nn_parameter *p, wf_tensor *t)
{
    witness *w = self;

    w->uses += w->module == m;
    w->parameter = p;
    return wf_scale(t, 0.5f);
}

static void count_enter(void *self, wf_nn_module *m)
{
    witness *w = self;

    w->entered += w->entered == w->left && m->hooks;
}

static void count_leave(void *self, wf_nn_module *m)
{
    witness *w = self;

    w->left += w->entered == w->left + 1 && m->hooks;
}

static void hooks_are_heard(void)
{
    wf_context *ctx = lone_context(1);
    repeat *m = new_repeat(ctx, 2);
    witness w = {.points = 0};
    const wf_nn_hooks hooks = {.at = double_it,
                               .use = halve_it,
                               .enter = count_enter,
                               .leave = count_leave,
                               .self = &w},
                      none = {.self = NULL};
    wf_tensor *x;

    wf_nn_name_tree(&m->base);
    wf_scope_open(ctx);
    x = three_of(ctx, 1);
    CU_ASSERT_EQUAL(first_of(wf_nn_call(m, x)), 9);
    CU_ASSERT_PTR_EQUAL(wf_nn_at(m, "in", x), x);
    CU_ASSERT_PTR_EQUAL(wf_nn_use(m, m->gain), m->gain->tensor); /* no tape: no leaf */
    CU_ASSERT_EQUAL(wf_nn_hook_add(m, &none), WF_OK);
    CU_ASSERT_EQUAL(first_of(wf_nn_call(m, x)), 9);
    CU_ASSERT_EQUAL(wf_nn_hook_add(m, &hooks), WF_OK);
    CU_ASSERT_EQUAL(first_of(wf_nn_call(m, x)), 2 * 1.5f * 2 * 1.5f);
    CU_ASSERT(w.points == 2 && w.uses == 2);
    CU_ASSERT(w.entered == 1 && w.left == 1);
    CU_ASSERT(w.module == &m->base && w.parameter == m->gain);
    CU_ASSERT_PTR_NULL(wf_nn_call(m, NULL));
    CU_ASSERT_PTR_NULL(wf_nn_call(NULL, x));
    CU_ASSERT_PTR_NULL(wf_nn_use(m, NULL));
    wf_scope_close(ctx);
    wf_nn_free(&m->base);
    close_lone(ctx, WF_OK);
}

/* A call leaves its result behind, and nothing else. */
static void calls_clean_up(void)
{
    wf_context *ctx = lone_context(1);
    repeat *m = new_repeat(ctx, 3);
    size_t one, before;

    wf_scope_open(ctx);
    before = in_use(ctx);
    three_of(ctx, 1);
    one = in_use(ctx) - before;
    CU_ASSERT(one > 0);
    wf_nn_call(m, three_of(ctx, 1));
    CU_ASSERT_EQUAL(in_use(ctx) - before, 3 * one);
    wf_scope_close(ctx);
    CU_ASSERT_EQUAL(in_use(ctx), before);
    wf_nn_free(&m->base);
    CU_ASSERT_EQUAL(in_use(ctx), 0);
    close_lone(ctx, WF_OK);
}

/* The paths of a tree's parameters, in the order of a walk. */
static void list_parameter(void *arg, wf_nn_module *m, const char *name, wf_nn_parameter *p)
{
    char *text = arg;

    (void)m;
    (void)name;
    strcat(strcat(text, p->path), " ");
}

static void children_and_long_paths(void)
{
    wf_context *ctx = lone_context(1);
    repeat *root = new_repeat(ctx, 1), *m = root;
    char text[4 * WF_NN_PATH] = "";

    root->list = calloc(2, sizeof *root->list);
    CU_ASSERT_PTR_NOT_NULL_FATAL(root->list);
    root->list[root->children++] = &new_repeat(ctx, 1)->base;
    root->list[root->children++] = &new_repeat(ctx, 1)->base;
    root->list[1]->name = "second";
    wf_nn_name_tree(&root->base);
    wf_nn_visit(&root->base, NULL, list_parameter, text);
    CU_ASSERT_STRING_EQUAL(text, "gain list.0.gain second.gain ");
    CU_ASSERT_EQUAL(wf_context_status(ctx), WF_OK);
    for (int i = 0; i < 4; i++) {
        m->child = &new_repeat(ctx, 1)->base;
        m = (repeat *)m->child;
    }
    wf_nn_name_tree(&root->base);
    CU_ASSERT_PTR_NOT_NULL(strstr(wf_context_error(ctx)->text, "has over 128 characters"));
    wf_nn_free(&root->base);
    close_lone(ctx, WF_EINVAL);
}

static const wf_nn_gpt_config tiny = {WF_NN_GPT2, .vocabulary = 7, .positions = 4, .layers = 1,
                                      .heads = 1, .kv_heads = 1,   .width = 4,     .ffn = 4};

/* Whole trees, each named by itself before, become parts of one: every parameter has a path of
   its own, a tied one that of its first place, and one model is frozen without the other. */
static void models_in_one_tree(void)
{
    static const char *const names[] = {"student", "teacher"};
    wf_context *ctx = lone_context(1);
    repeat *root = new_repeat(ctx, 1);
    wf_nn_parameter **p;
    int64_t count, frozen = 0;

    root->list = calloc(2, sizeof *root->list);
    CU_ASSERT_PTR_NOT_NULL_FATAL(root->list);
    for (int i = 0; i < 2; i++) {
        root->list[root->children++] = (wf_nn_module *)wf_nn_gpt_new(ctx, &tiny);
        CU_ASSERT_PTR_NOT_NULL_FATAL(root->list[i]);
        root->list[i]->name = names[i];
    }
    wf_nn_name_tree(&root->base);
    p = wf_nn_parameters(&root->base, &count);
    for (int64_t i = 1; i < count; i++) {
        CU_ASSERT(strncmp(p[i]->path, names[i > count / 2], 7) == 0);
        for (int64_t k = 0; k < i; k++)
            CU_ASSERT(strcmp(p[i]->path, p[k]->path) != 0);
    }
    CU_ASSERT_EQUAL(wf_nn_freeze(&root->base, "teacher"), WF_OK);
    for (int64_t i = 0; i < count; i++)
        frozen += p[i]->frozen;
    CU_ASSERT_EQUAL(frozen, count / 2);
    /* A part of it that is named again keeps what it is called; so does what is tied. */
    for (int i = 0; i < 2; i++) {
        char before[WF_NN_PATH];
        wf_nn_gpt *gpt = (wf_nn_gpt *)root->list[i];

        snprintf(before, sizeof before, "%s", gpt->head->weight->path);
        wf_nn_name_tree((wf_nn_module *)gpt->head);
        CU_ASSERT_STRING_EQUAL(gpt->head->weight->path, before);
    }
    free(p);
    root->list[1]->name = names[0];
    wf_nn_name_tree(&root->base);
    CU_ASSERT_PTR_NOT_NULL(
        strstr(wf_context_error(ctx)->text, "two parameters of the tree are called student."));
    wf_nn_free(&root->base);
    close_lone(ctx, WF_EINVAL);
}

static void refused_owners(wf_context *ctx, repeat *root, const char *words)
{
    CU_ASSERT_EQUAL(wf_nn_name_tree(&root->base), WF_EINVAL);
    if (!strstr(wf_context_error(ctx)->text, words))
        printf("\n    not said: %s\n    %s\n", words, wf_context_error(ctx)->text);
    CU_ASSERT_PTR_NOT_NULL(strstr(wf_context_error(ctx)->text, words));
    wf_context_clear(ctx);
}

/* A module in two places, in itself, and parameters that two fields hold: reported, and freed
   once. */
static void owners(void)
{
    wf_context *ctx = lone_context(1);
    repeat *root = new_repeat(ctx, 1), *child = new_repeat(ctx, 1);

    root->child = &child->base;
    CU_ASSERT_EQUAL(wf_nn_name_tree(&root->base), WF_OK);
    root->list = calloc(2, sizeof *root->list);
    CU_ASSERT_PTR_NOT_NULL_FATAL(root->list);
    root->list[root->children++] = &child->base;
    refused_owners(ctx, root,
                   "of a repeat, and list.0 of a repeat; a module belongs to one field");
    root->list[0] = &root->base;
    refused_owners(ctx, root, "is in two fields: the root of a tree, and list.0 of a repeat;");
    root->children = 0;
    wf_nn_parameter_free(child->gain);
    child->gain = root->gain;
    refused_owners(ctx, root,
                   "a parameter is in field gain of a repeat and in field gain of a ");
    child->gain = wf_nn_tie(root->gain);
    CU_ASSERT_EQUAL(wf_nn_name_tree(&root->base), WF_OK);
    root->list[root->children++] = &child->base;
    wf_nn_parameter_free(child->gain); /* the tie, and child->gain stays */
    wf_nn_free(&root->base);
    close_lone(ctx, WF_OK);
}

static wf_tensor *sum_of_tokens(wf_nn_module *self, wf_tensor *x)
{
    (void)self;
    return wf_token_sum(x);
}

/* Results are stored as bf16, but this sum is not: its gradient comes as bf16 all the same, and
   goes through a run that happens again as through one that does not. */
static void rounded_gradients(void)
{
    static const wf_nn_type type = {.name = "sum", .forward = sum_of_tokens};
    const wf_dim dims[] = {wf_dim_batch(2), wf_dim_chunked(3)};
    wf_context *ctx = lone_context(1);
    wf_nn_module m = {.type = &type, .ctx = ctx};
    float grad[2] = {0, 1};

    wf_context_storage(ctx, WF_BF16);
    for (int again = 0; again < 2; again++) {
        wf_tape *tape = wf_tape_open(ctx);
        wf_tensor *x, *y, *seed;

        wf_scope_open(ctx);
        x = wf_tensor_new(ctx, WF_F32, 2, dims, NULL, WF_MEMORY_ACTIVATION);
        seed = wf_tensor_new(ctx, WF_F32, 1, dims, NULL, WF_MEMORY_ACTIVATION);
        CU_ASSERT_PTR_NOT_NULL_FATAL(seed);
        wf_init_uniform(x, -1, 1, 1);
        wf_init_fill(seed, 0.7f);
        x = wf_leaf(x);
        y = wf_scale(again ? wf_nn_checkpoint(&m, x) : wf_token_sum(x), 0.3f);
        CU_ASSERT_EQUAL(wf_backward(y, seed, false), WF_OK);
        CU_ASSERT_PTR_NOT_NULL_FATAL(x->grad);
        grad[again] = *(const float *)x->grad->data;
        wf_scope_close(ctx);
        wf_tape_close(tape);
    }
    CU_ASSERT_EQUAL(grad[0], grad[1]);
    close_lone(ctx, WF_OK);
}

static float deviation_of(const wf_nn_parameter *p)
{
    return p ? p->recipe.step[0].arg[1] : -1;
}

/* The last linear of experts, and of the shared one, has the deviation of the others or its
   own. */
static void last_linear(void)
{
    wf_nn_moe_options o = {.width = 8, .hidden = 16, .experts = 4, .shared = 16, .route.k = 2};

    o.deviation = 0.5f;
    for (int own = 0; own < 2; own++) {
        wf_context *ctx = lone_context(1);
        wf_nn_moe *m;

        o.out_deviation = own ? 0.25f : 0;
        m = wf_nn_moe_new(ctx, &o);
        CU_ASSERT_PTR_NOT_NULL_FATAL(m);
        CU_ASSERT(deviation_of(m->up) == 0.5f && deviation_of(m->gate) == 0.5f);
        CU_ASSERT_EQUAL(deviation_of(m->down), own ? 0.25f : 0.5f);
        CU_ASSERT_EQUAL(deviation_of(m->shared->down->weight), own ? 0.25f : 0.5f);
        wf_nn_free(&m->base);
        close_lone(ctx, WF_OK);
    }
}

/* A mixture of experts that cannot be is refused; its last linear may start apart. */
static void mixtures(void)
{
    const wf_nn_moe_options usual = {.width = 8, .hidden = 16, .experts = 100, .route.k = 2};
    wf_nn_moe_options bad[5] = {usual, usual, usual, usual, usual};
    static const char *const why[] = {"chooses 0 of 100", "chooses 101 of 100", "at most",
                                      "has no sigmoids", "bias_step -1"};

    bad[0].route.k = 0;
    bad[1].route.k = 101;
    bad[2].route.k = WF_ROUTE_MOST + 1;
    bad[3].route.sigmoid = bad[3].route.after = true;
    bad[4].bias_step = -1;
    for (int i = 0; i < 5; i++) {
        wf_context *ctx = lone_context(1);

        CU_ASSERT_PTR_NULL(wf_nn_moe_new(ctx, &bad[i]));
        CU_ASSERT_EQUAL(wf_context_status(ctx), WF_EINVAL);
        CU_ASSERT_PTR_NOT_NULL(strstr(wf_context_error(ctx)->text, why[i]));
        wf_context_close(ctx);
    }
    last_linear();
}

int main(void)
{
    static const wf_test tests[] = {
        {"hooks are heard", hooks_are_heard},
        {"calls clean up", calls_clean_up},
        {"children, and paths too long", children_and_long_paths},
        {"models in one tree", models_in_one_tree},
        {"a field for each module and parameter", owners},
        {"gradients of what is recomputed, as bf16", rounded_gradients},
        {"mixtures of experts that cannot be", mixtures},
        {NULL, NULL}};

    return wf_test_main("module", tests);
}

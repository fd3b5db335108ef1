/* tests/nn/test_chain.c - models as chains: cut or whole they have the same bits; refusals. */
#include "nn/chain.h"
#include "nn/children.h"
#include "kernels/ops.h"
#include "tests/nn/model_ranks.h"

enum { TOKENS = 6 };

static const wf_nn_gpt_config small[] = {{WF_NN_GPT2, .vocabulary = 11, .positions = TOKENS,
                                          .layers = 3, .heads = 2, .kv_heads = 2, .width = 8,
                                          .ffn = 10, .dropout = 0.25f},
                                         {.vocabulary = 11,
                                          .positions = TOKENS,
                                          .layers = 3,
                                          .heads = 4,
                                          .kv_heads = 2,
                                          .width = 8,
                                          .ffn = 10}};

static wf_tensor *tokens_of(wf_par *par, int32_t by)
{
    const wf_dim dims[] = {wf_dim_batch(2), wf_dim_chunked(TOKENS)};
    wf_tensor *t = wf_tensor_new(wf_par_context(par), WF_I32, 2, dims, wf_par_batch_layout(par),
                                 WF_MEMORY_ACTIVATION);

    for (int64_t i = 0; t && i < wf_tensor_local_count(t); i++)
        ((int32_t *)t->data)[i] = (int32_t)(i * by % 11);
    return t;
}

/* The losses of a run that is cut behind each of its steps. */
static wf_tensor *cut_everywhere(model_rank *r, wf_tensor *tokens, wf_tensor *targets)
{
    int64_t steps = wf_nn_chain_steps(&r->model->base);
    wf_tensor *x = tokens;

    for (int64_t i = 0; i < steps; i++)
        wf_nn_chain_run(&r->model->base, i, i + 1, 1, &x);
    return wf_nn_gpt_head_loss(r->model, x, targets, 0.5f);
}

static bool alike(const wf_tensor *a, const wf_tensor *b)
{
    return a && b && wf_tensor_local_count(a) == wf_tensor_local_count(b) &&
           memcmp(a->data, b->data, (size_t)wf_tensor_local_count(a) * sizeof(float)) == 0;
}

static wf_status cut_is_whole(model_rank *r, void *arg)
{
    wf_rank *rank = r->rank;
    wf_tensor *tokens, *targets, *whole, *cut;

    (void)arg;
    wf_scope_open(r->ctx);
    tokens = tokens_of(r->par, 3);
    targets = tokens_of(r->par, 5);
    whole = wf_nn_gpt_loss(r->model, tokens, targets, 0.5f);
    wf_nn_enter(r->model); /* as the whole run does, for what a plan gathers with the root */
    cut = cut_everywhere(r, tokens, targets);
    wf_nn_leave(r->model, NULL, 1, &cut);
    NEED(alike(whole, cut));
    NEED(wf_nn_chain_steps(&r->model->base) == r->model->layers + 2);
    NEED(wf_nn_chain_check(&r->model->base) == WF_OK);
    NEED(wf_nn_chain_module(&r->model->base, 2, 0) == r->model->block[1]);
    NEED(wf_nn_chain_module(&r->model->base, 5, 0) == &r->model->head->base);
    NEED(!wf_nn_chain_module(&r->model->base, 2, 1));
    wf_scope_close(r->ctx);
    return WF_OK;
}

static void gpt_cut_is_whole(void)
{
    for (int i = 0; i < 4; i++)
        on_model_ranks(&(model_test){.options = {.tp = 1 + i / 2, .dp = 1, .seed = 3},
                                     .config = small[i % 2],
                                     .body = cut_is_whole});
}

/* A model that is no GPT: a list and a child are its steps, and `head`, which it runs itself,
   is not. */
static wf_tensor *add_forward(wf_nn_module *self, wf_tensor *x)
{
    return wf_add(x, wf_nn_weight(self, "by"));
}

static wf_nn_module *add_new(wf_context *ctx, float by)
{
    const wf_dim dim = wf_dim_width(3);
    wf_nn_parameter *p = wf_nn_parameter_new(ctx, 1, &dim, false);

    CU_ASSERT_PTR_NOT_NULL_FATAL(p);
    wf_tensor_release(p->tensor);
    p->tensor = wf_tensor_retain(three_of(ctx, by));
    return wf_nn_module_new(ctx, "add", add_forward, WF_PARAMETER("by", p));
}

static wf_tensor *net_forward(wf_nn_module *self, wf_tensor *x)
{
    wf_nn_chain_run(self, 0, wf_nn_chain_steps(self), 1, &x);
    return wf_nn_run(self, "head", x);
}

static wf_nn_module *net_new(wf_context *ctx)
{
    wf_nn_module **list = calloc(2, sizeof(wf_nn_module *));

    CU_ASSERT_PTR_NOT_NULL_FATAL(list);
    list[0] = add_new(ctx, 1);
    list[1] = add_new(ctx, 2);
    return wf_nn_module_new(ctx, "net", net_forward, WF_CHILD("head", add_new(ctx, 4)),
                            WF_CHILDREN("block", list, 2), WF_CHILD("norm", add_new(ctx, 8)));
}

static void children_in_a_chain(void)
{
    wf_context *ctx = lone_context(1);
    wf_nn_module *m;
    wf_tensor *x;

    wf_scope_open(ctx);
    m = net_new(ctx);
    CU_ASSERT_PTR_NOT_NULL_FATAL(m);
    wf_nn_name_tree(m);
    CU_ASSERT_EQUAL(WF_NN_CHAIN(m, "block", "norm"), WF_OK);
    CU_ASSERT_EQUAL(wf_nn_chain_steps(m), 3);
    CU_ASSERT_EQUAL(wf_nn_chain_check(m), WF_OK);
    CU_ASSERT_STRING_EQUAL(wf_nn_chain_module(m, 1, 0)->path, "block.1");
    CU_ASSERT_STRING_EQUAL(wf_nn_chain_module(m, 2, 0)->path, "norm");
    CU_ASSERT_PTR_NULL(wf_nn_chain_module(m, 2, 1));
    CU_ASSERT_STRING_EQUAL(wf_nn_chain_module(m, 3, 0)->path, "head");
    CU_ASSERT_EQUAL(first_of(wf_nn_call(m, three_of(ctx, 16))), 31);
    x = three_of(ctx, 16);
    CU_ASSERT_EQUAL(wf_nn_chain_run(m, 0, 2, 1, &x), 1);
    CU_ASSERT_EQUAL(first_of(x), 19);
    CU_ASSERT_EQUAL(wf_nn_chain_run(m, 2, 2, 1, &x), 1); /* an empty stage */
    CU_ASSERT_EQUAL(first_of(x), 19);
    CU_ASSERT_EQUAL(wf_nn_chain_run(m, 2, 3, 1, &x), 1);
    CU_ASSERT_EQUAL(first_of(x), 27);
    wf_nn_free(m);
    wf_scope_close(ctx);
    close_lone(ctx, WF_OK);
}

/* Three tensors become one, which says how many there were: a skip over steps is carried. */
static int64_t two_steps(const wf_nn_module *model)
{
    (void)model;
    return 2;
}

static wf_nn_module *no_module(const wf_nn_module *model, int64_t i, int k)
{
    (void)model;
    (void)i;
    (void)k;
    return NULL;
}

static int split_and_add(wf_nn_module *model, int64_t i, int n, wf_tensor **x)
{
    (void)model;
    if (i == 0) {
        x[1] = wf_scale(x[0], 2);
        x[2] = wf_scale(x[0], 4);
        return 3;
    }
    x[0] = n == 3 ? wf_add(x[0], wf_add(x[1], x[2])) : NULL;
    return 1;
}

static void reported(wf_context *ctx, const char *words)
{
    CU_ASSERT(strstr(wf_context_error(ctx)->text, words) != NULL);
    wf_context_clear(ctx);
}

static void several_are_carried(void)
{
    static const wf_nn_chain chain = {two_steps, no_module, split_and_add};
    wf_context *ctx = lone_context(1);
    wf_nn_module *m;
    wf_tensor *x[WF_NN_CARRIED];

    wf_scope_open(ctx);
    m = net_new(ctx);
    m->chain = &chain;
    wf_nn_name_tree(m);
    x[0] = three_of(ctx, 1);
    CU_ASSERT_EQUAL(wf_nn_chain_run(m, 0, 1, 1, x), 3);
    CU_ASSERT_EQUAL(wf_nn_chain_run(m, 1, 2, 3, x), 1);
    CU_ASSERT_EQUAL(first_of(x[0]), 7);
    CU_ASSERT_EQUAL(wf_nn_chain_check(m), WF_EINVAL);
    reported(ctx, "parameter head.by of model net lies in none of the 2 steps");
    CU_ASSERT_EQUAL(wf_nn_chain_run(m, 1, 3, 1, x), 0);
    reported(ctx, "was to run steps 1 to 2 of its 2 on 1 tensors");
    wf_nn_free(m);
    wf_scope_close(ctx);
    close_lone(ctx, WF_OK);
}

static void chains_refused(void)
{
    wf_context *ctx = lone_context(1);
    wf_nn_module *m;

    wf_scope_open(ctx);
    m = net_new(ctx);
    CU_ASSERT_EQUAL(wf_nn_chain_steps(m), 0);
    reported(ctx, "model net has no chain of steps");
    CU_ASSERT_EQUAL(WF_NN_CHAIN(m, "block", "norms"), WF_EINVAL);
    reported(ctx, "has no child called norms");
    CU_ASSERT_EQUAL(WF_NN_CHAIN(m, "norm", "norm"), WF_EINVAL);
    reported(ctx, "names norm twice");
    CU_ASSERT_PTR_NULL(m->chain);
    wf_nn_free(m);
    wf_scope_close(ctx);
    close_lone(ctx, WF_OK);
}

int main(void)
{
    static const wf_test tests[] = {
        {"GPT-2 and Llama cut behind every step have the bits of one run", gpt_cut_is_whole},
        {"children by name make a chain", children_in_a_chain},
        {"up to four tensors are carried from step to step", several_are_carried},
        {"models without a chain, and names that are none, are refused", chains_refused},
        {NULL, NULL}};

    return wf_test_main("chain", tests);
}

/*
 * tests/parallel/test_plan.c - planning, materialising and opening a trainer: what is refused,
 * with which words, and that a refusal leaves what was there as it was.
 */
#include "parallel/shard/materialize.h"
#include "parallel/models/gpt/gpt.h"
#include "parallel/train/train.h"
#include "tests/mesh/mesh_harness.h"
#include "tests/parallel/part.h"

static const wf_nn_gpt_config tiny = {WF_NN_GPT2, .vocabulary = 17, .positions = 8, .layers = 1,
                                      .heads = 2, .kv_heads = 2,    .width = 4,     .ffn = 8};

/* Two ranks, tensor parallel. */
static void on_two(wf_status (*body)(part *))
{
    run_parts((part_test){.options = {.tp = 2, .seed = 3}, .config = &tiny, .body = body});
}

static wf_status refuses(part *p, wf_status code, const char *words)
{
    return refused(p->rank, p->ctx, NULL, code, words);
}

static bool split(const part *p)
{
    return wf_par_layout(p->gpt->embed->table) != NULL && p->gpt->embed->base.n_hooks == 2 &&
           p->gpt->head->base.n_hooks == 1;
}

/* A plan removes its own hooks alone. */
static wf_status planned_again(part *p)
{
    static const wf_nn_hooks users = {.self = NULL};
    wf_nn_module *embed = &p->gpt->embed->base;
    wf_rank *rank = p->rank;
    const wf_layout *first;

    GOOD(wf_nn_hook_add(embed, &users));
    GOOD(wf_par_plan(p->par, p->model, wf_par_gpt_plan));
    NEED(split(p));
    first = wf_par_layout(p->gpt->embed->table);
    GOOD(wf_par_plan(p->par, p->model, NULL)); /* nothing of the first plan stays */
    NEED(!wf_par_layout(p->gpt->embed->table));
    NEED(embed->n_hooks == 1 && embed->hooks[0] == &users && !p->gpt->head->base.n_hooks);
    GOOD(wf_par_plan(p->par, p->model, wf_par_gpt_plan));
    NEED(split(p) && wf_par_layout(p->gpt->embed->table) == first);

    GOOD(wf_par_materialize(p->par, p->model)); /* now it is too late for another */
    NEED(p->gpt->embed->table->tensor->layout == first);
    NEED(wf_par_plan(p->par, p->model, NULL) == WF_EINVAL);
    GOOD(refuses(p, WF_EINVAL, "parameter embed.table is real already"));
    NEED(split(p) && wf_par_layout(p->gpt->embed->table) == first);
    return WF_OK;
}

static wf_status wrong_plans(part *p)
{
    static const wf_par_split third[] = {{"table", 2}, {NULL, 0}},
                              none[] = {{"tables", 0}, {NULL, 0}};
    static const wf_par_style far = {.name = "far", .splits = third};
    static const wf_par_style other = {.name = "other", .splits = none};
    static const wf_par_border sun[] = {{"sun", WF_PAR_WHOLE, 0, false}, {NULL, 0, 0, false}};
    static const wf_par_style misspelt = {.name = "misspelt", .borders = sun};
    static const struct {
        wf_par_rule rules[3];
        const char *words;
    } bad[] = {
        {{{"block.*.attn.out", &misspelt}, {NULL, NULL}},
         "style misspelt has a border at point sun, but module block.0.attn.out (linear) has "
         "no "
         "such point; its points are: in lora_in lora sum"},
        {{{"block.*.mlp", &misspelt}, {NULL, NULL}},
         "module block.0.mlp (mlp) has no points: name those that it passes (wf_nn_points)"},
        {{{"embed", &far}, {NULL, NULL}},
         "style far splits dim 2 of parameter embed.table, which has only 2 dims"},
        {{{"embed", &other}, {NULL, NULL}},
         "style other splits parameter tables, but module embed (embedding)"},
        {{{"embed", WF_VOCAB}, {"head", WF_ROW}, {NULL, NULL}},
         "parameter embed.table is tied, but style row of module head"},
        {{{"embed", WF_VOCAB}, {"block.*.atn.out", WF_ROW}, {NULL, NULL}},
         "rule block.*.atn.out (style row) is for no module of the model, which has embed, "
         "position, block.*, block.*.norm1, block.*.attn, block.*.attn.qkv, "},
        {{{"heads", WF_COLUMN}, {"?block.1.attn", WF_GROUPS}, {NULL, NULL}},
         "rule heads (style column)"}};
    wf_rank *rank = p->rank;

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        NEED(wf_par_plan(p->par, p->model, bad[i].rules) == WF_EINVAL);
        NEED(wf_par_materialize(p->par, p->model) == WF_EINVAL); /* the first error stays */
        GOOD(refuses(p, WF_EINVAL, bad[i].words));
    }
    GOOD(wf_par_plan(p->par, p->model,
                     (const wf_par_rule[]){{"?block.1.attn", WF_GROUPS}, {NULL, NULL}}));
    GOOD(wf_par_plan(p->par, p->model, wf_par_gpt_plan));
    return wf_par_materialize(p->par, p->model);
}

/* A module of one's own that was never named: its parameters still differ from each other. */
static wf_status never_named(part *p)
{
    static const char *const names[] = {"a", "b"};
    wf_nn_linear_options o = {.in = wf_dim_width(3), .out = wf_dim_chunked(5), .deviation = 1};
    wf_nn_linear_group *group =
        wf_nn_linear_group_new(p->ctx, 2, names, (wf_nn_linear_options[]){o, o});
    wf_rank *rank = p->rank;
    wf_tensor *a, *b;

    NEED(group);
    GOOD(wf_par_materialize(p->par, &group->base));
    a = ((wf_nn_linear *)group->member[0])->weight->tensor;
    b = ((wf_nn_linear *)group->member[1])->weight->tensor;
    NEED(wf_tensor_count(a) == 15 && memcmp(a->data, b->data, 15 * sizeof(float)) != 0);
    wf_nn_free(&group->base);
    NEED(!wf_nn_linear_group_new(p->ctx, 0, names, &o));
    return refuses(p, WF_EINVAL, "a group of 0 linears: it has at least 1");
}

static wf_tensor *no_loss(wf_nn_module *model, const wf_par_batch *batch)
{
    (void)model, (void)batch;
    return NULL;
}

enum { LENGTH = 8 };

static wf_status zeros(void *self, int64_t step, int64_t first, int64_t count,
                       void *const *field, wf_error *error)
{
    (void)step, (void)first, (void)error;
    for (int i = 0; i < 2; i++)
        memset(field[i], 0, (size_t)(count * LENGTH) * sizeof(int32_t));
    return self ? WF_EIO : WF_OK; /* fails, and does not say why */
}

static wf_status trainers(part *p)
{
    wf_par_train_options o = {.global_batch = 2,
                              .field = WF_PAR_GPT_FIELDS(LENGTH),
                              .optimizer = {.method = WF_NN_SGD},
                              .schedule = {.lr = 1, .steps = 9},
                              .loss = wf_par_gpt_loss};
    wf_par_data data = {.read = zeros}, silent = {.read = zeros, .self = p};
    wf_rank *rank = p->rank;
    wf_par_trainer *t;
    wf_par_step step;

    GOOD(wf_par_plan(p->par, p->model, wf_par_gpt_plan));
    NEED(!wf_par_trainer_open(p->par, p->model, &o));
    GOOD(refuses(p, WF_EINVAL,
                 "parameter embed.table is fake: wf_par_materialize comes before"));
    GOOD(wf_par_materialize(p->par, p->model));
    o.loss = NULL;
    t = wf_par_trainer_open(p->par, p->model, &o);
    NEED(t && wf_par_train_step(t, 1, &data, &step) == WF_EINVAL);
    GOOD(refuses(p, WF_EINVAL, "a trainer needs a loss function"));
    wf_par_trainer_close(t);
    o.loss = no_loss;
    t = wf_par_trainer_open(p->par, p->model, &o);
    NEED(t && wf_par_train_step(t, 1, &data, &step) == WF_EINVAL);
    GOOD(refuses(p, WF_EINVAL, "the loss function returned NULL"));
    wf_par_trainer_close(t);
    o.loss = wf_par_gpt_loss;
    t = wf_par_trainer_open(p->par, p->model, &o);
    NEED(t && wf_par_train_step(t, 1, &silent, &step) == WF_EIO);
    GOOD(refuses(p, WF_EIO, "the data gave no reason"));
    NEED(wf_par_train_step(t, 1, &data, &step) == WF_OK && step.loss > 0);
    wf_context_training(p->ctx, false); /* evaluating leaves it so */
    NEED(wf_par_evaluate(t, 1, &data, NULL, &step.loss) == WF_OK);
    NEED(!wf_context_is_training(p->ctx));
    wf_par_trainer_close(t);
    return WF_OK;
}

static wf_status wrong_runs(wf_rank *rank, void *arg)
{
    wf_error error = {WF_OK, ""};

    (void)arg;
    NEED(!wf_par_open(rank, &(wf_par_options){.tp = 3}, &error));
    NEED(error.code == WF_EINVAL && strstr(error.text, "tp 3 x dp 1 is 3 ranks, but 2 were"));
    NEED(!wf_par_open(rank, &(wf_par_options){.tp = 3}, NULL));
    NEED(!wf_par_open(rank, &(wf_par_options){.tp = 2, .threads = 1 << 30}, NULL));
    return WF_OK;
}

static void plans_twice(void)
{
    on_two(planned_again);
}

static void plans_that_cannot_be(void)
{
    on_two(wrong_plans);
}

static void unnamed(void)
{
    on_two(never_named);
}

static void trainers_that_cannot_be(void)
{
    on_two(trainers);
}

static void runs_that_cannot_be(void)
{
    run_ranks(2, wrong_runs, NULL);
}

int main(void)
{
    static const wf_test tests[] = {{"a model is planned twice", plans_twice},
                                    {"plans that cannot be", plans_that_cannot_be},
                                    {"a module without a name", unnamed},
                                    {"trainers that cannot be", trainers_that_cannot_be},
                                    {"runs that cannot be", runs_that_cannot_be},
                                    {NULL, NULL}};

    return wf_test_main("plan", tests);
}

/*
 * tests/parallel/test_added_loss.c - losses that modules add to the step's own: with the
 * gradient of a loss function that adds them itself, and the same bits on every layout,
 * recomputed, in micro-steps and in stages of a pipeline.
 */
#include "tests/parallel/rows.h"

enum { BATCH = 8, STEPS = UNDER_SANITIZER ? 2 : 3, LAYERS = 2 };

static const float weight = 0.25f; /* times 1 / (BATCH * TOKENS) it is exact */

/* Returns a penalty of what an MLP sees, a number per token. */
static wf_tensor *penalty_of(wf_tensor *x)
{
    return wf_mean(wf_mul(x, x), 2);
}

static wf_tensor *penalise(void *self, wf_nn_module *m, wf_tensor *x)
{
    (void)self;
    wf_nn_add_loss(m, "penalty", penalty_of(x), weight);
    return x;
}

static const wf_nn_hooks added = {.pre_forward = penalise};

static void add_penalties(wf_nn_gpt *model)
{
    for (int64_t i = 0; i < model->layers; i++)
        wf_nn_hook_add(((wf_nn_block *)model->block[i])->mlp, &added);
}

/* ---- the same by hand: the loss function adds what hooks have kept ---- */

static _Thread_local wf_tensor *kept[LAYERS];
static _Thread_local int n_kept;

static wf_tensor *keep(void *self, wf_nn_module *m, wf_tensor *x)
{
    (void)self;
    (void)m;
    if (n_kept < LAYERS)
        kept[n_kept++] = wf_tensor_retain(penalty_of(x));
    return x;
}

static const wf_nn_hooks keeping = {.pre_forward = keep};

static void keep_penalties(wf_nn_gpt *model)
{
    for (int64_t i = 0; i < model->layers; i++)
        wf_nn_hook_add(((wf_nn_block *)model->block[i])->mlp, &keeping);
}

static wf_tensor *whole_loss(wf_nn_module *model, const wf_par_batch *batch)
{
    wf_tensor *loss;

    n_kept = 0;
    loss = wf_par_gpt_loss(model, batch);
    for (int i = 0; i < n_kept; i++) {
        loss = wf_add(loss, wf_scale(kept[i], weight));
        wf_tensor_release(kept[i]);
    }
    return loss;
}

static training make_training(model_kind kind)
{
    training t = new_training(kind, kind == GPT2 ? HEADS : 3, BATCH);

    t.steps = STEPS;
    t.model.layers = LAYERS;
    t.model.dropout = 0.1f;
    t.change = add_penalties;
    return t;
}

static void by_hand(void)
{
    training one = make_training(LLAMA), hand = one, without = one;

    hand.change = keep_penalties;
    hand.options.loss = whole_loss;
    without.change = NULL;
    if (!train(&one) || !train(&hand) || !train(&without))
        return;
    CU_ASSERT_EQUAL(one.added_by, LAYERS);
    CU_ASSERT_EQUAL(one.digest, hand.digest);
    CU_ASSERT_NOT_EQUAL(one.digest, without.digest);
    CU_ASSERT_EQUAL(without.added_by, 0);
    CU_ASSERT(same_bits(one.loss[0], without.loss[0])); /* it is logged apart */
    for (int i = 0; i < STEPS; i++)
        CU_ASSERT_DOUBLE_EQUAL(one.loss[i] + weight * one.added[i], hand.loss[i], 1e-5);
}

/* ---- on every layout ---- */

/* Counts the sums over ranks of a run's steps. */
static wf_status count_sums(training *t, wf_rank *rank, wf_par *par, wf_nn_gpt *model, int step)
{
    const wf_mesh *mesh = wf_par_mesh(par);
    const wf_comm *group = wf_mesh_comm(mesh, wf_mesh_axis(mesh, "replicate"));

    (void)model;
    if (rank->index == 0 && step == t->steps)
        *(int64_t *)t->arg = wf_comm_counters_of(group)->of[WF_ALL_REDUCE].calls;
    return WF_OK;
}

/* All losses of a step that modules add are summed over ranks by one collective. */
static void one_collective(void)
{
    training with = on_row(make_training(LLAMA), &(row){"no_shard", .tp = 1, .dp = 2}), without;
    int64_t sums[2] = {0, 0};

    with.watch = count_sums;
    without = with;
    without.change = NULL;
    with.arg = &sums[0];
    without.arg = &sums[1];
    if (train(&with) && train(&without))
        CU_ASSERT_EQUAL(sums[0], sums[1] + STEPS);
    CU_ASSERT(sums[1] > 0);
}

static const row rows[] = {
    {"full_shard", .tp = 2, .dp = 2, .micro = 2, .prefetch = 1, .sequence_parallel = true},
    {"no_shard", .tp = 1, .dp = 4, .micro = 1, .recompute = "block"},
    {"no_shard", .tp = 1, .dp = 1, .micro = 2, .recompute = "mlp"},
    {"zero1", .tp = 4, .dp = 2, .micro = 4, .recompute = "block"},
    {"hybrid_shard", .tp = 1, .dp = 4, .group = 2, .micro = 2, .prefetch = 1},
    {"shard_grad_op", .tp = 2, .dp = 2, .micro = 1, .sequence_parallel = true,
     .recompute = "block"},
};

static void on_layouts(void)
{
    for (int kind = GPT2; kind <= LLAMA; kind++) {
        training one = make_training((model_kind)kind);

        if (!train(&one))
            return;
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            training t = on_row(one, &rows[i]);

            if (train(&t))
                check_same(&t, &one);
        }
    }
}

/* Stages have the bits of one rank, of losses that hooks add and of a mixture's own. */
static void in_stages_of(const training *one, int first, int every)
{
    static const struct {
        const char *schedule, *strategy;
        int pp, tp, dp;
        bool recompute;
        const char *modules;
    } cases[] = {{"1f1b", "full_shard", 2, 1, 1, false, NULL},
                 {"zb-v", "no_shard", 2, 2, 2, false, NULL},
                 {"gpipe", "zero1", 4, 1, 2, false, NULL},
                 {"1f1b", "full_shard", 2, 2, 1, true, NULL},
                 {"zb-h1", "full_shard", 2, 1, 2, false, "block"}};

    for (size_t i = (size_t)first; i < sizeof cases / sizeof *cases; i += (size_t)every) {
        training t = *one;

        t.layout = (wf_par_options){.pp = cases[i].pp,
                                    .tp = cases[i].tp,
                                    .dp = cases[i].dp,
                                    .strategy = cases[i].strategy,
                                    .seed = one->layout.seed};
        t.options.micro_batch = 1;
        t.pipeline.schedule = cases[i].schedule;
        t.pipeline.recompute = cases[i].recompute;
        t.recompute = cases[i].modules;
        t.added_by = 0;
        if (train(&t))
            check_same(&t, one);
    }
}

static void in_stages(void)
{
    training one = make_training(LLAMA), mixture = one;

    mixture.change = NULL;
    mixture.model.experts = 4;
    mixture.model.top_k = 2;
    mixture.model.sequence_weight = mixture.model.z_weight = 0.1;
    if (train(&one))
        in_stages_of(&one, 0, 1);
    if (train(&mixture))
        in_stages_of(&mixture, 1, 2);
    CU_ASSERT_EQUAL(mixture.added_by, LAYERS);
}

/* ---- what is alone with its loss ---- */

/* Every module is frozen but an MLP's norm, and the last block's result is not used, so that
   the added loss alone reaches it. */
static wf_tensor *of_embedding(wf_nn_module *model, const wf_par_batch *batch)
{
    wf_nn_gpt *m = (wf_nn_gpt *)model;
    const char *outside = wf_nn_enter(model);
    wf_tensor *x = wf_nn_call(m->embed, wf_par_batch_tensor(batch, "tokens")), *loss;

    wf_nn_call(m->block[0], x);
    loss = wf_nn_linear_cross_entropy(
        m->head, m->loss, wf_nn_call(m->norm, x), wf_par_batch_tensor(batch, "targets"),
        wf_par_batch_weight(batch, wf_par_batch_tensor(batch, "targets")));
    wf_nn_leave(model, outside, 1, &loss);
    return loss;
}

static void recomputed_alone(void)
{
    training one = make_training(LLAMA), again;

    one.model.dropout = 0;
    one.options.loss = of_embedding;
    again = one;
    again.recompute = "block";
    if (train(&one) && train(&again))
        check_same(&again, &one);
    CU_ASSERT_EQUAL(again.added_by, 1);
}

static wf_tensor *penalise_by_mean(void *self, wf_nn_module *m, wf_tensor *x)
{
    (void)self;
    wf_nn_add_loss(m, "penalty", wf_mean(wf_mean(penalty_of(x), 1), 0), weight);
    return x;
}

static const wf_nn_hooks added_means = {.pre_forward = penalise_by_mean};

static void add_means(wf_nn_gpt *model)
{
    for (int64_t i = 0; i < model->layers; i++)
        wf_nn_hook_add(((wf_nn_block *)model->block[i])->mlp, &added_means);
}

/* Takes numbers without dims, each a mean of its own: a step's is the mean of its
   micro-steps'. */
static void means_of_micro_steps(void)
{
    training tokens = make_training(LLAMA), means;

    tokens.options.micro_batch = BATCH / 2;
    means = tokens;
    means.change = add_means;
    if (!train(&tokens) || !train(&means))
        return;
    CU_ASSERT_EQUAL(means.added_by, LAYERS);
    for (int i = 0; i < STEPS; i++) {
        CU_ASSERT_DOUBLE_EQUAL(means.added[i], tokens.added[i], 1e-3);
        CU_ASSERT_DOUBLE_EQUAL(means.grad_norm[i] / tokens.grad_norm[i], 1, 1e-3);
    }
    CU_ASSERT_PTR_NOT_NULL(strstr(means.inexact, "a mean of its own over each of 2 micro"));
}

/* ---- refusals ---- */

static const char *bad_name = "penalty";
static float bad_weight = 1;
static int bad_shape;
static bool once; /* in the first of two micro-steps alone */
static _Thread_local int calls;

static wf_tensor *add_badly(void *self, wf_nn_module *m, wf_tensor *x)
{
    (void)self;
    if (once && calls++)
        return x;
    wf_nn_add_loss(m, bad_name, bad_shape ? wf_mean(x, 0) : wf_mean(x, 2), bad_weight);
    return x;
}

static const wf_nn_hooks badly = {.pre_forward = add_badly};

static void hook_badly(wf_nn_gpt *model)
{
    wf_nn_hook_add(model->norm, &badly);
}

/* One that adds in the first micro-step alone runs before one that adds in each. */
static void hook_two(wf_nn_gpt *model)
{
    wf_nn_hook_add(((wf_nn_block *)model->block[0])->mlp, &badly);
    wf_nn_hook_add(((wf_nn_block *)model->block[1])->mlp, &added);
}

static void refused_as(void (*change)(wf_nn_gpt *model), const char *text)
{
    training t = make_training(LLAMA);
    wf_launch_options launch = {.ranks = 1};
    wf_error error = {WF_OK, ""};

    t.change = change;
    t.layout.tp = t.layout.dp = 1;
    t.options.micro_batch = once ? BATCH / 2 : t.options.micro_batch;
    wf_launch(&launch, training_rank, &t, &error);
    CU_ASSERT_NOT_EQUAL(error.code, WF_OK);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, text));
    if (!strstr(error.text, text))
        printf("\n    %s\n", error.text);
}

static void refused_with(const char *text)
{
    refused_as(hook_badly, text);
}

static void refused(void)
{
    bad_name = "no name";
    refused_with("letters, digits and _");
    bad_name = "penalty";
    bad_weight = INFINITY;
    refused_with("a weight is finite");
    bad_weight = 1;
    bad_shape = 1;
    refused_with("with the batch as its first dim");
    bad_shape = 0;
    once = true;
    refused_with("in 1 of 2 micro-steps: add it in each");
    refused_as(hook_two, "module block.0.mlp added loss penalty in 1 of 2 micro-steps");
    once = false;
}

static wf_tensor *add_late(void *self, wf_nn_module *m, wf_tensor *x)
{
    (void)self;
    wf_nn_add_loss(m, wf_context_step(m->ctx) > 1 ? "late" : "penalty", penalty_of(x), weight);
    return x;
}

static const wf_nn_hooks late = {.pre_forward = add_late};

static void hook_late(wf_nn_gpt *model)
{
    wf_nn_hook_add(((wf_nn_block *)model->block[0])->mlp, &late);
}

/* Stages agree on the losses of a step before the first one: none comes later. */
static void refused_in_stages(void)
{
    wf_launch_options launch = {.ranks = 2, .stall_timeout = 5};
    training t = make_training(LLAMA);
    wf_par_pipeline *pipeline;
    wf_error error = {WF_OK, ""};

    t.change = hook_late;
    t.layout = (wf_par_options){.pp = 2, .tp = 1, .dp = 1, .seed = t.layout.seed};
    t.options.micro_batch = 1;
    t.pipeline.schedule = "1f1b";
    t.options.pipeline = pipeline = pipeline_of(&t, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(pipeline);
    wf_launch(&launch, training_rank, &t, &error);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "which it did not in the plan of the pipeline"));
    if (error.code != WF_EINVAL)
        printf("\n    %s\n", error.text);
    wf_par_pipeline_free(pipeline);
}

int main(void)
{
    static const wf_test tests[] = {
        {"the gradient of a loss that is added by hand", by_hand},
        {"same bits on layouts", on_layouts},
        {"one collective a step", one_collective},
        {"same bits in stages", in_stages},
        {"recomputed where nothing else comes back", recomputed_alone},
        {"means of micro-steps", means_of_micro_steps},
        {"what is no loss is refused", refused},
        {"a loss that stages did not expect", refused_in_stages},
        {NULL, NULL}};

    return wf_test_main("added_loss", tests);
}

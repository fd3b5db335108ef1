/*
 * tests/parallel/test_strategies.c - a strategy decides where numbers are stored, never what
 * they are: whatever is split, gathered, kept, accumulated or wrapped, a run has the loss bits
 * of one rank at every step, and its digest. scripts/proofs/exactness.py --strategies covers
 * more of the choices.
 *
 * Nothing divides: 12 heads, 3 key-value heads, a vocabulary of 257, and a tied embedding in
 * gpt2. One parameter is frozen, gradients are clipped at a norm that is always reached.
 *
 * ctest: builds address thread
 */
#include "tests/parallel/rows.h"

enum { BATCH = 16, STEPS = UNDER_SANITIZER ? 2 : 6 };

static const row rows[] = {
    {"full_shard", .tp = 1, .dp = 2, .micro = 2},
    {"full_shard", .tp = 1, .dp = 8, .micro = 1, .reshard = WF_PAR_RESHARD_ALWAYS,
     .prefetch = 1},
    {"full_shard", .tp = 2, .dp = 4, .micro = 2, .accumulate = WF_PAR_LOCAL,
     .reshard = WF_PAR_RESHARD_NEVER, .prefetch = 2, .wrap_type = "mlp",
     .sequence_parallel = true},
    {"full_shard", .tp = 4, .dp = 2, .micro = 4, .accumulate = WF_PAR_REDUCED, .prefetch = 3,
     .wrap_min_params = 500, .sequence_parallel = true},
    {"full_shard", .tp = 8, .dp = 1, .micro = 8, .accumulate = WF_PAR_REDUCED,
     .reshard = WF_PAR_RESHARD_ALWAYS, .prefetch = 1, .wrap_type = "attention",
     .sequence_parallel = true},
    {"shard_grad_op", .tp = 1, .dp = 4, .micro = 1, .prefetch = 1},
    {"shard_grad_op", .tp = 2, .dp = 2, .micro = 4, .accumulate = WF_PAR_LOCAL, .prefetch = 5,
     .wrap_min_params = 1, .sequence_parallel = true},
    {"no_shard", .tp = 1, .dp = 4, .micro = 1, .accumulate = WF_PAR_REDUCED},
    {"no_shard", .tp = 2, .dp = 4, .micro = 2, .sequence_parallel = true},
    {"zero1", .tp = 1, .dp = 8, .micro = 1},
    {"zero1", .tp = 2, .dp = 2, .micro = 2, .accumulate = WF_PAR_REDUCED, .wrap_type = "mlp",
     .sequence_parallel = true},
    {"hybrid_shard", .tp = 1, .dp = 8, .group = 2, .micro = 1, .prefetch = 1},
    {"hybrid_shard", .tp = 2, .dp = 4, .group = 2, .micro = 2, .accumulate = WF_PAR_LOCAL,
     .reshard = WF_PAR_RESHARD_ALWAYS, .wrap_min_params = 700, .sequence_parallel = true},
    {"hybrid_shard_zero2", .tp = 1, .dp = 4, .group = 2, .micro = 2, .prefetch = 1},
    {"mics", .tp = 2, .dp = 4, .group = 4, .micro = 1, .prefetch = 1},
    {"mics", .tp = 1, .dp = 8, .group = 1, .micro = 1, .prefetch = 1},
};

enum { ROWS = sizeof rows / sizeof *rows };

static training make_training(model_kind kind)
{
    training t = new_training(kind, kind == GPT2 ? HEADS : 3, BATCH);

    t.steps = STEPS;
    t.model.dropout = kind == GPT2 ? 0.1f : 0;
    t.options.clip = 0.1f;
    t.options.micro_batch = BATCH;
    t.frozen = "block.1.mlp.down.weight";
    return t;
}

static void compare_rows(model_kind kind, int every)
{
    training one = make_training(kind);

    if (!train(&one))
        return;
    for (int i = 0; i < STEPS; i++)
        CU_ASSERT(one.grad_norm[i] > 0.1);
    check_rows(&one, rows, ROWS, every);
}

static void gpt2(void)
{
    compare_rows(GPT2, 1);
}

static void llama(void)
{
    compare_rows(LLAMA, UNDER_SANITIZER ? 3 : 1); /* the same moves */
}

/* Evaluating in between gathers and releases as well, and changes nothing. */
static wf_status evaluate(training *t, wf_rank *rank, wf_par *par, wf_nn_gpt *model, int step)
{
    wf_context *ctx = wf_par_context(par);
    wf_memory_report memory;
    wf_tensor *tokens, *logits;
    wf_dim dims[] = {wf_dim_batch(t->layout.dp), wf_dim_chunked(TOKENS)};

    (void)step;
    wf_scope_open(ctx);
    tokens =
        wf_tensor_new(ctx, WF_I32, 2, dims, wf_par_batch_layout(par), WF_MEMORY_ACTIVATION);
    NEED(tokens);
    memset(tokens->data, 0, (size_t)wf_tensor_local_count(tokens) * sizeof(int32_t));
    wf_context_training(ctx, false);
    logits = wf_nn_gpt_logits(model, tokens);
    wf_context_training(ctx, true);
    NEED(logits);
    wf_scope_close(ctx);
    wf_pool_report(wf_context_pool(ctx), &memory);
    NEED(memory.now[WF_MEMORY_GATHERED] == 0);
    return WF_OK;
}

static void evaluation_between_steps(void)
{
    for (int i = 0; i < ROWS; i += 3) {
        training plain = on_row(make_training(LLAMA), &rows[i]), t = plain;

        t.watch = evaluate;
        if (!train(&plain) || !train(&t))
            return;
        check_same(&t, &plain);
    }
}

/* Bits of a model without dropout, clipping and decay: each of them shows. */
static void strategies_see_all(void)
{
    training run[4];

    run[0] = on_row(make_training(GPT2), &rows[0]);
    run[1] = run[2] = run[3] = run[0];
    run[1].frozen = NULL;
    run[2].options.clip = 0;
    run[3].model.dropout = 0;
    check_differ(run, 4);
}

static const wf_par_strategy own = {
    .name = "own_zero2", .split_gradients = true, .split_optimizer = true, .reduce_each = true};

static bool splits_none(const wf_nn_parameter *p)
{
    return !p;
}

/* Rows that no run could be of, and names that are taken; the same row may come again. */
static void registered(void)
{
    static const wf_par_strategy taken = {.name = "zero1"}, unnamed = {.name = "a b"},
                                 torn = {.name = "torn", .split_parameters = true},
                                 kept = {.name = "kept", .keep_gathered = true},
                                 loose = {.name = "loose", .split_gradients = true},
                                 picky = {.name = "picky", .splits = splits_none};
    const wf_par_strategy *const bad[] = {&taken, &unnamed, &torn, &kept, NULL, &loose, &picky};
    static const char *const why[] = {"there is a strategy zero1",
                                      "letters, digits and _",
                                      "who splits parameters splits gradients",
                                      "keeps parameters gathered splits them",
                                      "is NULL",
                                      "gradients splits the optimizer's state",
                                      "says which parameters it splits, and splits nothing"};
    wf_error error;

    for (int i = 0; i < 7; i++) {
        CU_ASSERT_EQUAL(wf_par_strategy_register(bad[i], &error), WF_EINVAL);
        CU_ASSERT_PTR_NOT_NULL(strstr(error.text, why[i]));
    }
    CU_ASSERT_EQUAL(wf_par_strategy_register(&own, &error), WF_OK);
    CU_ASSERT_EQUAL(wf_par_strategy_register(&own, &error), WF_OK);
}

/* As many rows as there is room for, but the one that is there. */
static void more_than_fit(void)
{
    static char name[WF_PAR_MOST_STRATEGIES][16];
    static wf_par_strategy more[WF_PAR_MOST_STRATEGIES];
    wf_error error;

    for (int i = 0; i < WF_PAR_MOST_STRATEGIES; i++) {
        bool fits = i < WF_PAR_MOST_STRATEGIES - 1;

        snprintf(name[i], sizeof name[i], "more_%d", i);
        more[i].name = name[i];
        CU_ASSERT_EQUAL(wf_par_strategy_register(&more[i], &error), fits ? WF_OK : WF_EINVAL);
        CU_ASSERT_EQUAL(strstr(error.text, "no more fit") != NULL, !fits);
    }
}

/* A registered row has the bits of one rank, over the axes of the others. */
static void own_strategy(void)
{
    static const row on[] = {
        {"own_zero2", .tp = 1, .dp = 4, .micro = 2},
        {"own_zero2", .tp = 2, .dp = 2, .micro = 4, .sequence_parallel = true},
        {"own_zero2", .tp = 1, .dp = 2, .micro = 2, .accumulate = WF_PAR_LOCAL}};
    training one = new_training(LLAMA, 3, 8);

    one.steps = 2;
    if (train(&one))
        check_rows(&one, on, sizeof on / sizeof *on, 1);
}

int main(void)
{
    static const wf_test tests[] = {
        {"gpt2, tied, with dropout: every strategy has the bits of one rank", gpt2},
        {"llama, 3 key-value heads", llama},
        {"evaluation between steps", evaluation_between_steps},
        {"what was frozen, clipped or dropped shows in the bits", strategies_see_all},
        {"rows that are registered", registered},
        {"a strategy from outside", own_strategy},
        {"more strategies than fit", more_than_fit},
        {NULL, NULL},
    };

    return wf_test_main("strategies", tests);
}

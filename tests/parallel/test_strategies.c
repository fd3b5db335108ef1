/*
 * tests/parallel/test_strategies.c - a strategy decides where numbers rest, never what they are:
 * whatever is split, gathered, kept, accumulated or wrapped, a run has the loss bits of one rank
 * at every step, and its digest. scripts/exactness.py --strategies covers more of the choices.
 *
 * Nothing divides: 12 heads, 3 key-value heads, a vocabulary of 257, and a tied embedding in
 * gpt2. One parameter is frozen, gradients are clipped at a norm that is always reached.
 */
#include "tests/parallel/parallel_harness.h"

enum { BATCH = 16, STEPS = UNDER_SANITIZER ? 2 : 6 };

typedef struct row {
    const char *strategy;
    int tp, dp, group; /* ranks of a group, 0 where the strategy has none */
    int micro;
    wf_par_accumulate accumulate;
    wf_par_reshard reshard;
    int prefetch;
    const char *wrap_type;
    int64_t wrap_min_params;
    bool sequence_parallel;
} row;

static const row rows[] = {
    {"full_shard", 1, 2, 0, 2, WF_PAR_AUTO, WF_PAR_RESHARD_DEFAULT, 0, NULL, 0, false},
    {"full_shard", 1, 8, 0, 1, WF_PAR_AUTO, WF_PAR_RESHARD_ALWAYS, 1, NULL, 0, false},
    {"full_shard", 2, 4, 0, 2, WF_PAR_LOCAL, WF_PAR_RESHARD_NEVER, 2, "mlp", 0, true},
    {"full_shard", 4, 2, 0, 4, WF_PAR_REDUCED, WF_PAR_RESHARD_DEFAULT, 3, NULL, 500, true},
    {"full_shard", 8, 1, 0, 8, WF_PAR_REDUCED, WF_PAR_RESHARD_ALWAYS, 1, "attention", 0, true},
    {"shard_grad_op", 1, 4, 0, 1, WF_PAR_AUTO, WF_PAR_RESHARD_DEFAULT, 1, NULL, 0, false},
    {"shard_grad_op", 2, 2, 0, 4, WF_PAR_LOCAL, WF_PAR_RESHARD_DEFAULT, 5, NULL, 1, true},
    {"no_shard", 1, 4, 0, 1, WF_PAR_REDUCED, WF_PAR_RESHARD_DEFAULT, 0, NULL, 0, false},
    {"no_shard", 2, 4, 0, 2, WF_PAR_AUTO, WF_PAR_RESHARD_DEFAULT, 0, NULL, 0, true},
    {"zero1", 1, 8, 0, 1, WF_PAR_AUTO, WF_PAR_RESHARD_DEFAULT, 0, NULL, 0, false},
    {"zero1", 2, 2, 0, 2, WF_PAR_REDUCED, WF_PAR_RESHARD_DEFAULT, 0, "mlp", 0, true},
    {"hybrid_shard", 1, 8, 2, 1, WF_PAR_AUTO, WF_PAR_RESHARD_DEFAULT, 1, NULL, 0, false},
    {"hybrid_shard", 2, 4, 2, 2, WF_PAR_LOCAL, WF_PAR_RESHARD_ALWAYS, 0, NULL, 700, true},
    {"hybrid_shard_zero2", 1, 4, 2, 2, WF_PAR_AUTO, WF_PAR_RESHARD_DEFAULT, 1, NULL, 0, false},
    {"mics", 2, 4, 4, 1, WF_PAR_AUTO, WF_PAR_RESHARD_DEFAULT, 1, NULL, 0, false},
    {"mics", 1, 8, 1, 1, WF_PAR_AUTO, WF_PAR_RESHARD_DEFAULT, 1, NULL, 0, false},
};

enum { ROWS = sizeof rows / sizeof *rows };

static training make_training(wf_nn_arch arch)
{
    training t = new_training(arch, arch == WF_NN_GPT2 ? HEADS : 3, BATCH);

    t.steps = STEPS;
    t.model.dropout = arch == WF_NN_GPT2 ? 0.1f : 0;
    t.options.clip = 0.1f;
    t.options.micro_batch = BATCH;
    t.frozen = "block.1.mlp.down.weight";
    return t;
}

static bool train_row(training *t, const row *r)
{
    t->layout.strategy = r->strategy;
    t->layout.tp = r->tp;
    t->layout.dp = r->dp;
    t->layout.shard_group_size = r->group;
    t->layout.accumulate = r->accumulate;
    t->layout.reshard = r->reshard;
    t->layout.prefetch = r->prefetch;
    t->layout.wrap_type = r->wrap_type;
    t->layout.wrap_min_params = r->wrap_min_params;
    t->layout.sequence_parallel = r->sequence_parallel;
    t->options.micro_batch = r->micro;
    return train(t);
}

static void compare_rows(wf_nn_arch arch)
{
    training one = make_training(arch);

    if (!train(&one))
        return;
    for (int i = 0; i < STEPS; i++)
        CU_ASSERT(one.grad_norm[i] > 0.1);
    for (int i = 0; i < ROWS; i++) {
        training t = make_training(arch);
        bool same = true;

        if (!train_row(&t, &rows[i]))
            continue;
        for (int k = 0; k < STEPS; k++)
            same = same && same_bits(t.loss[k], one.loss[k]);
        CU_ASSERT(same && t.digest == one.digest);
        CU_ASSERT_STRING_EQUAL(t.inexact, "");
        if (!same || t.digest != one.digest)
            printf("\n    row %d: %s tp %d dp %d: %s, digest %016" PRIx64 ", not %016" PRIx64
                   "\n",
                   i, rows[i].strategy, rows[i].tp, rows[i].dp,
                   same ? "the same losses" : "other losses", t.digest, one.digest);
    }
}

static void gpt2(void)
{
    compare_rows(WF_NN_GPT2);
}

static void llama(void)
{
    compare_rows(WF_NN_LLAMA);
}

/* Evaluating in between gathers and releases as well, and changes nothing. */
static wf_status evaluate(training *t, wf_rank *rank, wf_par *par, wf_nn_gpt *model, int step)
{
    wf_context *ctx = wf_par_context(par);
    wf_memory_report memory;
    wf_tensor *tokens, *logits;
    wf_dim dims[] = {wf_dim_batch(t->layout.dp), wf_dim_split(TOKENS)};

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
    training plain = make_training(WF_NN_LLAMA), t;

    for (int i = 0; i < ROWS; i += 3) {
        t = plain;
        t.watch = evaluate;
        if (!train_row(&plain, &rows[i]) || !train_row(&t, &rows[i]))
            return;
        CU_ASSERT_EQUAL(t.digest, plain.digest);
    }
}

/* Bits of a model without dropout, clipping and decay: each of them shows. */
static void strategies_see_all(void)
{
    training plain = make_training(WF_NN_GPT2), other[3];

    other[0] = other[1] = other[2] = plain;
    other[0].frozen = NULL;
    other[1].options.clip = 0;
    other[2].model.dropout = 0;
    if (!train_row(&plain, &rows[0]))
        return;
    for (int i = 0; i < 3; i++)
        if (train_row(&other[i], &rows[0]))
            CU_ASSERT_NOT_EQUAL(other[i].digest, plain.digest);
}

int main(void)
{
    static const wf_test tests[] = {
        {"gpt2, tied, with dropout: every strategy has the bits of one rank", gpt2},
        {"llama, 3 key-value heads", llama},
        {"evaluation between steps", evaluation_between_steps},
        {"what was frozen, clipped or dropped shows in the bits", strategies_see_all},
        {NULL, NULL},
    };

    return wf_test_main("strategies", tests);
}

/*
 * tests/parallel/test_any_dp.c - any number of data-parallel ranks has the bits of one for any
 * batch, where ranks add single sequences: micro-batches of 1, whose gradients are reduced in
 * each micro-step. Losses, norms of gradients and digests are those of one rank that takes the
 * global batch in one micro-step.
 *
 * Any number of micro-steps does too, where they are what is summed first. Layouts beside these
 * say that they are not exact (test_inexact.c), and have other bits, so that equality here says
 * something.
 *
 * ctest: builds plain, cost 20
 */
#include "tests/parallel/checkpoint_harness.h"
#include <math.h>

enum { STEPS = UNDER_SANITIZER ? 2 : 4 };

/* Layouts of a global batch, all of them with micro-batches of one sequence. */
typedef struct table {
    int64_t batch;
    const row *rows;
    int n;
} table;

static const row of_12[] = {
    {"full_shard", .tp = 1, .dp = 3, .micro = 1, .prefetch = 1},
    {"full_shard", .tp = 2, .dp = 3, .micro = 1, .sequence_parallel = true},
    {"shard_grad_op", .tp = 2, .dp = 3, .micro = 1},
    {"no_shard", .tp = 1, .dp = 3, .micro = 1, .accumulate = WF_PAR_REDUCED},
    {"no_shard", .tp = 1, .dp = 6, .micro = 1, .accumulate = WF_PAR_REDUCED},
    {"zero1", .tp = 2, .dp = 3, .micro = 1, .accumulate = WF_PAR_REDUCED,
     .sequence_parallel = true},
    {"hybrid_shard", .tp = 1, .dp = 6, .group = 3, .micro = 1},
    {"hybrid_shard_zero2", .tp = 1, .dp = 6, .group = 3, .micro = 1, .wrap_type = "mlp"},
    {"mics", .tp = 1, .dp = 12, .group = 3, .micro = 1},
    {"hybrid_shard", .tp = 1, .dp = 6, .group = 2, .micro = 1, .accumulate = WF_PAR_GROUP,
     .accumulate_group = 1},
    {"no_shard", .tp = 1, .dp = 12, .micro = 1},
    /* 12, 6 and 3 micro-steps of one rank or of 2 and 4, which sum them first */
    {"no_shard", .tp = 1, .dp = 1, .micro = 1},
    {"zero1", .tp = 2, .dp = 2, .micro = 1},
    {"full_shard", .tp = 1, .dp = 4, .micro = 1, .accumulate = WF_PAR_LOCAL},
};

static const row of_6[] = {
    {"full_shard", .tp = 2, .dp = 3, .micro = 1},
    {"zero1", .tp = 1, .dp = 6, .micro = 1},
    {"hybrid_shard", .tp = 1, .dp = 6, .group = 3, .micro = 1, .accumulate = WF_PAR_LOCAL},
};

static const row of_20[] = {
    {"full_shard", .tp = 1, .dp = 5, .micro = 1, .prefetch = 2},
    {"zero1", .tp = 2, .dp = 5, .micro = 1, .accumulate = WF_PAR_REDUCED},
    {"hybrid_shard", .tp = 1, .dp = 10, .group = 5, .micro = 1},
};

static const row of_24[] = {
    {"full_shard", .tp = 2, .dp = 6, .micro = 1, .sequence_parallel = true},
    {"shard_grad_op", .tp = 1, .dp = 3, .micro = 1, .recompute = "block"},
};

static const row of_28[] = {
    {"full_shard", .tp = 1, .dp = 7, .micro = 1},
    {"no_shard", .tp = 2, .dp = 7, .micro = 1, .accumulate = WF_PAR_REDUCED,
     .sequence_parallel = true},
};

/* Micro-steps that are no nodes of the tree over the batch, whose gradients are added one by
   one; most have ranks without a sequence in the last one. */
static const row of_10[] = {
    {"full_shard", .tp = 1, .dp = 3, .micro = 1, .prefetch = 1},
    {"shard_grad_op", .tp = 2, .dp = 4, .micro = 1, .sequence_parallel = true},
    {"no_shard", .tp = 2, .dp = 3, .micro = 1, .accumulate = WF_PAR_REDUCED},
    {"zero1", .tp = 1, .dp = 7, .micro = 1, .accumulate = WF_PAR_REDUCED},
    {"hybrid_shard", .tp = 1, .dp = 6, .group = 3, .micro = 1},
    {"mics", .tp = 1, .dp = 8, .group = 4, .micro = 1, .recompute = "block"},
    /* three and five groups, which all sum in each micro-step */
    {"hybrid_shard", .tp = 1, .dp = 6, .group = 2, .micro = 1, .accumulate = WF_PAR_GROUP,
     .accumulate_group = 1},
    {"mics", .tp = 2, .dp = 10, .group = 2, .micro = 1, .accumulate = WF_PAR_GROUP,
     .accumulate_group = 1},
    {"full_shard", .tp = 1, .dp = 12, .micro = 1, .wrap_type = "mlp"},
    {"full_shard", .tp = 2, .dp = 2, .micro = 1, .prefetch = 2},
};

static const row of_9[] = {
    {"full_shard", .tp = 1, .dp = 3, .micro = 1},
    {"no_shard", .tp = 1, .dp = 2, .micro = 1, .accumulate = WF_PAR_REDUCED},
    {"zero1", .tp = 2, .dp = 4, .micro = 1, .accumulate = WF_PAR_REDUCED},
};

static const row of_31[] = {
    {"full_shard", .tp = 1, .dp = 8, .micro = 1},
    {"shard_grad_op", .tp = 1, .dp = 5, .micro = 1},
};

#define ROWS_OF(rows) rows, sizeof rows / sizeof rows[0]
static const table tables[] = {{12, ROWS_OF(of_12)}, {6, ROWS_OF(of_6)},   {20, ROWS_OF(of_20)},
                               {24, ROWS_OF(of_24)}, {28, ROWS_OF(of_28)}, {10, ROWS_OF(of_10)},
                               {9, ROWS_OF(of_9)},   {31, ROWS_OF(of_31)}};

enum { TABLES = sizeof tables / sizeof tables[0] };

/* The tables that are tried in other ways, too: sums over ranks, and gradients one by one. */
static const table some[] = {{12, of_12, 10}, {10, ROWS_OF(of_10)}};

enum { SOME = sizeof some / sizeof some[0] };

static training make_training(model_kind kind, int64_t batch)
{
    training t = new_training(kind, kind == GPT2 ? HEADS : 3, batch);

    t.steps = STEPS;
    t.options.micro_batch = batch;
    t.options.clip = 0.1f;
    return t;
}

/* The row has all that `one` has, its norms too. */
static void check_row(const training *one, const row *r)
{
    training t = on_row(*one, r);

    if (!train(&t))
        return;
    check_same(&t, one);
    CU_ASSERT_EQUAL(memcmp(t.grad_norm, one->grad_norm, sizeof t.grad_norm), 0);
}

static void check_some(const training *one, int k)
{
    training whole = *one;

    if (train(&whole))
        for (int i = 0; i < some[k].n; i += 2)
            check_row(&whole, &some[k].rows[i]);
}

/* Each model takes a part of the rows, and the other model the rest. */
static void every_table(model_kind kind, float dropout)
{
    int apart = UNDER_SANITIZER ? 4 : wf_test_one_in(3);

    for (int k = 0; k < TABLES; k++) {
        training one = make_training(kind, tables[k].batch);

        one.model.dropout = dropout;
        if (!train(&one))
            return;
        for (int i = (k + (kind == LLAMA)) % apart; i < tables[k].n; i += apart)
            check_row(&one, &tables[k].rows[i]);
    }
}

static void gpt2(void)
{
    every_table(GPT2, 0.1f);
}

static void llama(void)
{
    every_table(LLAMA, 0);
}

static void optimizers(void)
{
    static const wf_nn_optimizer_options of[] = {
        {WF_NN_MUON, .beta1 = 0.95f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0.1f},
        {WF_NN_ADAMW8BIT, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0.1f}};

    for (int k = 0; k < 2 * SOME; k++) {
        training one = make_training(LLAMA, some[k / 2].batch);

        one.options.optimizer = of[k % 2];
        check_some(&one, k / 2);
    }
}

static void adapters(void)
{
    for (int k = 0; k < SOME; k++) {
        training one = make_training(LLAMA, some[k].batch);

        one.lora = (wf_nn_lora_options){
            .rank = 5, .alpha = 8, .site = 64, .targets = WF_NN_ALL_LINEAR, .train = "embed"};
        check_some(&one, k);
    }
}

static void bf16(void)
{
    for (int k = 0; k < SOME; k++) {
        training one = make_training(LLAMA, some[k].batch);

        one.layout.dtype = one.layout.param_dtype = WF_BF16;
        check_some(&one, k);
    }
}

/* Sequence s ends after 2 to 16 tokens: what follows counts in no loss. */
static int64_t length_of(int64_t step, int64_t s)
{
    return 2 + (5 * s + 3 * step) % (TOKENS - 1);
}

static wf_status masked_rows(void *self, int64_t step, int64_t first, int64_t count,
                             void *const *field, wf_error *error)
{
    int32_t *targets = field[1];
    wf_status status = count_up(NULL, step, first, count, field, error);

    (void)self;
    for (int64_t s = 0; s < count; s++)
        for (int64_t i = length_of(step, first + s); i < TOKENS; i++)
            targets[s * TOKENS + i] = -1;
    return status;
}

static wf_status counted_rows(void *self, int64_t step, int64_t *count, wf_error *error)
{
    const int64_t *batch = self;

    (void)error;
    *count = 0;
    for (int64_t s = 0; s < *batch; s++)
        *count += length_of(step, s);
    return WF_OK;
}

static void masked_tokens(void)
{
    for (int k = 0; k < SOME; k++) {
        int64_t batch = some[k].batch;
        wf_par_data masked = {.read = masked_rows, .counted = counted_rows, .self = &batch};
        training one = make_training(LLAMA, batch);

        one.data = &masked;
        check_some(&one, k);
    }
}

/* Counts down to a stop; on every rank alike. */
static bool count_down(void *left)
{
    return --*(int *)left < 0;
}

/* The mean loss over three other batches, of rank 0; between two steps. One that is stopped is
   no number, and leaves nothing. */
static wf_status validated(part *p, wf_par_trainer *trainer)
{
    training *t = p->arg;
    int64_t length = TOKENS;
    const wf_par_data data = {.read = count_up, .self = &length};
    wf_par_step result;
    wf_rank *rank = p->rank;
    float mean = 0, again = 0;
    int two = 2, three = 3;

    GOOD(wf_par_train_step(trainer, 1, &data, &result));
    GOOD(wf_par_evaluate_until(trainer, 3, &data, NULL, count_down, &two, &mean));
    NEED(isnan(mean) && two == -1);
    GOOD(wf_par_evaluate_until(trainer, 3, &data, NULL, count_down, &three, &again));
    GOOD(wf_par_evaluate(trainer, 3, &data, NULL, &mean));
    NEED(again == mean && three == 0);
    if (p->rank->index == 0)
        t->loss[0] = mean;
    return WF_OK;
}

static wf_status validating_rank(wf_rank *rank, void *arg)
{
    return on_trainer(rank, arg, validated, arg);
}

static bool validate(training *t)
{
    wf_launch_options launch = {.ranks = (int)wf_par_ranks(&t->layout)};
    wf_error error = {WF_OK, ""};

    wf_launch(&launch, validating_rank, t, &error);
    CU_ASSERT_EQUAL(error.code, WF_OK);
    return error.code == WF_OK;
}

static void validation(void)
{
    for (int k = 0; k < SOME; k++) {
        training one = make_training(LLAMA, some[k].batch);

        if (!validate(&one))
            return;
        CU_ASSERT(one.loss[0] > 1);
        for (int i = 0; i < some[k].n; i += 2) {
            training t = on_row(one, &some[k].rows[i]);

            if (validate(&t))
                CU_ASSERT(same_bits(t.loss[0], one.loss[0]));
        }
    }
}

static void pipelines(void)
{
    static const char *const schedule[] = {"1f1b", "zb-h1", "zb-v", "interleaved"};
    for (int k = 0; k < SOME; k++) {
        training one = make_training(GPT2, some[k].batch);

        one.model.layers = 4;
        if (!train(&one))
            return;
        for (int i = 0; i < 4; i++) {
            training t = on_row(one, &some[k].rows[i]);

            t.layout.pp = 2;
            t.pipeline = (wf_par_pipeline_options){.schedule = schedule[i]};
            if (train(&t))
                check_same(&t, &one);
        }
    }
}

/* A run of dp 3 goes on with 1, 2, 4, 5 and 6 ranks, and one of a single rank with these. */
static void resume(void)
{
    static const row on[] = {
        {"full_shard", .tp = 1, .dp = 3, .micro = 1},
        {"no_shard", .tp = 1, .dp = 1, .micro = 12},
        {"zero1", .tp = 2, .dp = 2, .micro = 1, .accumulate = WF_PAR_LOCAL},
        {"no_shard", .tp = 1, .dp = 6, .micro = 1, .accumulate = WF_PAR_REDUCED},
        {"full_shard", .tp = 1, .dp = 5, .micro = 1}};
    training one = on_row(make_training(LLAMA, 12), &on[1]);

    if (!train(&one))
        return;
    for (int from = 0; from < 2; from++) {
        char dir[64];
        training t = on_row(one, &on[from]);

        wf_test_new_folder(dir);
        t.steps = 1;
        if (save_run(&t, &(wf_par_save_options){.dir = dir}, 1))
            for (int to = 0; to < 5; to++) {
                training rest = on_row(one, &on[to]);

                if (resume_run(&rest, dir, 1))
                    CU_ASSERT_EQUAL(rest.digest, one.digest);
            }
        wf_test_remove(dir);
    }
}

/* Equality proves something only where the layouts that say they are not exact do differ. */
static void others_differ(void)
{
    static const row on[] = {{"full_shard", .tp = 1, .dp = 3, .micro = 2},
                             {"no_shard", .tp = 1, .dp = 3, .micro = 1},
                             {"full_shard", .tp = 1, .dp = 2, .micro = 2},
                             {"no_shard", .tp = 1, .dp = 1, .micro = 4}};
    training one = make_training(LLAMA, 12);

    if (!train(&one))
        return;
    for (int i = 0; i < 4; i++) {
        training t = on_row(one, &on[i]);

        if (!train(&t))
            continue;
        CU_ASSERT_NOT_EQUAL(t.digest, one.digest);
        CU_ASSERT_PTR_NOT_NULL(strstr(t.inexact, "a power of two"));
        CU_ASSERT_DOUBLE_EQUAL(t.loss[0], one.loss[0], 1e-5);
    }
}

int main(void)
{
    static const wf_test tests[] = {
        {"gpt2, with dropout", gpt2},
        {"llama", llama},
        {"muon and 8-bit adamw", optimizers},
        {"adapters", adapters},
        {"bf16", bf16},
        {"tokens that count in no loss", masked_tokens},
        {"validation", validation},
        {"pipelines", pipelines},
        {"resumed with other numbers of ranks", resume},
        {"what says that it is not exact is not", others_differ},
        {NULL, NULL},
    };

    return wf_test_main("any_dp", tests);
}

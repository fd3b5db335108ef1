/*
 * tests/parallel/test_masked.c - rows of unequal length: targets of -1 are not trained on,
 * every other token weighs alike over the whole global batch, and no layout or micro-batch
 * changes a bit of that.
 *
 * ctest: builds plain
 */
#include "tests/parallel/rows.h"

enum { BATCH = 16, STEPS = 3 };

/* Returns the number of targets of a sequence: from none to all. */
static int64_t length_of(int64_t step, int64_t sequence)
{
    return (step * 5 + sequence * 7) % (TOKENS + 1);
}

/* Behind its targets a row has tokens that nobody learns from, `self` says which. */
static wf_status masked_rows(void *self, int64_t step, int64_t first, int64_t count,
                             void *const *field, wf_error *error)
{
    int32_t *tokens = field[0], *targets = field[1];
    wf_status status = count_up(NULL, step, first, count, field, error);

    for (int64_t s = 0; s < count; s++)
        for (int64_t i = length_of(step, first + s); i < TOKENS; i++) {
            targets[s * TOKENS + i] = -1;
            if (i > length_of(step, first + s))
                tokens[s * TOKENS + i] = *(const int32_t *)self;
        }
    return status;
}

static wf_status counted_rows(void *self, int64_t step, int64_t *count, wf_error *error)
{
    (void)self, (void)error;
    *count = 0;
    for (int64_t s = 0; s < BATCH; s++)
        *count += length_of(step, s);
    return WF_OK;
}

static const int32_t padding = 5;
static const wf_par_data masked = {
    .read = masked_rows, .self = (void *)&padding, .counted = counted_rows};

static training run_of(model_kind kind, const wf_par_data *data)
{
    training t = new_training(kind, HEADS, BATCH);

    t.steps = STEPS;
    t.data = data;
    return t;
}

static const row rows[] = {
    {.tp = 1, .dp = 1, .micro = 16, .threads = 1},
    {.tp = 1, .dp = 1, .micro = 1, .threads = 2},
    {.tp = 1, .dp = 1, .micro = 2, .threads = 1},
    {.tp = 1, .dp = 1, .micro = 4, .threads = 1},
    {.tp = 1, .dp = 1, .micro = 8, .threads = 1},
    {.tp = 1, .dp = 2, .micro = 8, .threads = 1},
    {.tp = 1, .dp = 4, .micro = 2, .threads = 1},
    {.tp = 1, .dp = 8, .micro = 1, .threads = 1},
    {.tp = 1, .dp = 8, .micro = 2, .threads = 1},
    {.tp = 2, .dp = 2, .micro = 1, .sequence_parallel = true, .threads = 1},
    {.tp = 8, .dp = 1, .micro = 4, .threads = 1},
    {.strategy = "zero1", .tp = 4, .dp = 4, .micro = 2, .threads = 1},
    {.tp = 1, .dp = 4, .micro = 1, .accumulate = WF_PAR_LOCAL, .threads = 1},
};

enum { ROWS = sizeof rows / sizeof *rows };

/* A mean over the tokens that count: the model still guesses among all words. */
static bool is_untrained(float loss)
{
    return fabs((double)loss - log(VOCABULARY)) < 0.3;
}

static void layouts(void)
{
    training gpt2 = on_row(run_of(GPT2, &masked), &rows[0]);
    training llama = on_row(run_of(LLAMA, &masked), &rows[0]);

    if (train(&gpt2))
        CU_ASSERT(is_untrained(gpt2.loss[0]));
    if (gpt2.digest)
        check_rows(&gpt2, rows + 1, ROWS - 1, UNDER_SANITIZER ? 5 : 1);
    if (train(&llama))
        check_rows(&llama, rows + 1, ROWS - 1, UNDER_SANITIZER ? 6 : 4);
}

static void stages(void)
{
    training one = on_row(run_of(LLAMA, &masked), &rows[0]);
    training t = on_row(one, &rows[6]);

    t.layout.pp = 2;
    t.pipeline.schedule = "1f1b";
    if (train(&one) && train(&t))
        check_same(&t, &one);
}

/* No bit of what is trained depends on the tokens behind the last target. */
static void padding_leaves_no_trace(void)
{
    static const int32_t other = 200;
    const wf_par_data padded = {
        .read = masked_rows, .self = (void *)&other, .counted = counted_rows};
    training one = on_row(run_of(GPT2, &masked), &rows[3]);
    training two = on_row(run_of(GPT2, &padded), &rows[3]);

    if (train(&one) && train(&two))
        check_same(&two, &one);
}

static wf_status count_all(void *self, int64_t step, int64_t *count, wf_error *error)
{
    (void)self, (void)step, (void)error;
    *count = BATCH * TOKENS;
    return WF_OK;
}

/* Counting all tokens changes nothing where all count; where others do, much. */
static void all_of_them(void)
{
    const wf_par_data said = {.read = count_up, .counted = count_all};
    training unsaid = on_row(run_of(GPT2, NULL), &rows[0]);
    training t = on_row(run_of(GPT2, &said), &rows[0]);
    training other = on_row(run_of(GPT2, &masked), &rows[0]);

    if (train(&unsaid) && train(&t))
        check_same(&t, &unsaid);
    if (train(&other))
        CU_ASSERT_NOT_EQUAL(other.digest, unsaid.digest);
}

static wf_status count_none(void *self, int64_t step, int64_t *count, wf_error *error)
{
    (void)self, (void)step, (void)error;
    *count = 0;
    return WF_OK;
}

static wf_status read_none(void *self, int64_t step, int64_t first, int64_t count,
                           void *const *field, wf_error *error)
{
    wf_status status = count_up(self, step, first, count, field, error);

    for (int64_t i = 0; i < count * TOKENS; i++)
        ((int32_t *)field[1])[i] = -1;
    return status;
}

/* A step with nothing to learn has no loss, which is NaN, and gradients of 0. It is no
   error. */
static void nothing_counts(void)
{
    const wf_par_data none = {.read = read_none, .counted = count_none};
    training t = on_row(run_of(GPT2, &none), &rows[2]), cut = t;

    cut.layout.pp = 2;
    cut.pipeline.schedule = "1f1b";
    if (!train(&t) || !train(&cut))
        return;
    for (int i = 0; i < STEPS; i++) {
        CU_ASSERT(isnan(t.loss[i]) && t.grad_norm[i] == 0);
        CU_ASSERT(isnan(cut.loss[i]) && cut.grad_norm[i] == 0);
    }
    CU_ASSERT_EQUAL(t.digest, cut.digest);
}

static wf_status count_badly(void *self, int64_t step, int64_t *count, wf_error *error)
{
    (void)self, (void)error;
    *count = step == 2 ? -3 : 5;
    return WF_OK;
}

/* Batch 0 has all targets, those behind it one a row; *self is the batch that comes first. */
static wf_status read_uneven(void *self, int64_t step, int64_t first, int64_t count,
                             void *const *field, wf_error *error)
{
    int64_t batch = *(const int64_t *)self + step;
    wf_status status = count_up(NULL, batch, first, count, field, error);

    for (int64_t i = 0; batch && i < count * TOKENS; i++)
        if (i % TOKENS)
            ((int32_t *)field[1])[i] = -1;
    return status;
}

static wf_status count_uneven(void *self, int64_t step, int64_t *count, wf_error *error)
{
    (void)error;
    *count = *(const int64_t *)self + step ? BATCH : BATCH * TOKENS;
    return WF_OK;
}

/* Batches of an evaluation weigh as much as counts in them, and what cannot be is refused. */
static wf_status evaluate(part *p, wf_par_trainer *trainer)
{
    static const int64_t number[] = {0, 1};
    const wf_par_data bad = {.read = count_up, .counted = count_badly};
    const wf_par_data none = {.read = read_none, .counted = count_none};
    wf_par_data uneven = {.read = read_uneven, .counted = count_uneven};
    wf_rank *rank = p->rank;
    float mean[2], both;
    double expected;

    for (int i = 0; i < 2; i++) {
        uneven.self = (void *)&number[i];
        GOOD(wf_par_evaluate(trainer, 1, &uneven, NULL, &mean[i]));
        NEED(is_untrained(mean[i]));
    }
    uneven.self = (void *)&number[0];
    GOOD(wf_par_evaluate(trainer, 2, &uneven, NULL, &both));
    expected = (TOKENS * (double)mean[0] + (double)mean[1]) / (TOKENS + 1);
    NEED(fabs((double)both - expected) < 1e-6);
    NEED(fabs((double)both - ((double)mean[0] + (double)mean[1]) / 2) > 1e-4);
    NEED(wf_par_evaluate(trainer, 3, &bad, NULL, &both) == WF_EINVAL);
    NEED(strstr(wf_context_error(p->ctx)->text,
                "the data say that -3 elements of the losses of step 2 count"));
    wf_context_clear(p->ctx);
    NEED(wf_par_evaluate(trainer, 2, &none, NULL, &both) == WF_EDATA);
    NEED(strstr(wf_context_error(p->ctx)->text,
                "nothing of the 2 batches of the evaluation counts"));
    wf_context_clear(p->ctx);
    NEED(wf_par_evaluate(trainer, 0, &none, NULL, &both) == WF_EINVAL);
    NEED(strstr(wf_context_error(p->ctx)->text, "an evaluation of 0 batches has no mean"));
    wf_context_clear(p->ctx);
    return WF_OK;
}

static wf_status evaluate_rank(wf_rank *rank, void *arg)
{
    return on_trainer(rank, arg, evaluate, NULL);
}

static void evaluations(void)
{
    training t = on_row(run_of(GPT2, &masked), &rows[5]);
    wf_launch_options launch = {.ranks = 2};
    wf_error error = {WF_OK, ""};

    CU_ASSERT_EQUAL(wf_launch(&launch, evaluate_rank, &t, &error), WF_OK);
    if (error.code != WF_OK)
        printf("\n    %s\n", error.text);
}

static const wf_test tests[] = {
    {"layouts and micro-batches", layouts},
    {"stages of a pipeline", stages},
    {"padding leaves no trace", padding_leaves_no_trace},
    {"all of them count", all_of_them},
    {"nothing counts", nothing_counts},
    {"evaluations", evaluations},
    {NULL, NULL},
};

int main(void)
{
    return wf_test_main("masked", tests);
}

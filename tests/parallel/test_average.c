/*
 * tests/parallel/test_average.c - a model that computes with the moving average of its weights,
 * where there is one, and with the weights themselves where no update has made any.
 *
 * ctest: builds plain
 */
#include "parallel/train/train_internal.h"
#include "tests/parallel/parallel_harness.h"

enum { BATCH = 16 };

/* Takes the average, and says whether it differs from the weights, which come back. */
static wf_status compare(part *p, wf_par_trainer *t, bool *differs)
{
    const wf_tensor *gain = p->gpt->norm->gain->tensor;
    const float weight = *(const float *)gain->data;
    wf_rank *rank = p->rank;

    GOOD(wf_par_trainer_average(t, true));
    *differs = *(const float *)gain->data != weight;
    GOOD(wf_par_trainer_average(t, false));
    NEED(*(const float *)gain->data == weight);
    return WF_OK;
}

/* There is no average before the first update, behind steps that are skipped, and where the
   optimizer is new; there is one behind two updates. */
static wf_status average(part *p, wf_par_trainer *t)
{
    const wf_par_data data = {.read = count_up};
    wf_rank *rank = p->rank;
    wf_par_step result;
    bool differs;

    GOOD(compare(p, t, &differs));
    NEED(!differs);
    GOOD(wf_par_train_step(t, 1, &data, &result));
    NEED(result.skipped);
    GOOD(compare(p, t, &differs));
    NEED(!differs);
    wf_par_trainer_restored(t, 5, 0, 5);
    GOOD(compare(p, t, &differs));
    NEED(!differs);
    t->options.skip.loss_above = 0;
    for (int64_t step = 6; step <= 7; step++)
        GOOD(wf_par_train_step(t, step, &data, &result));
    GOOD(compare(p, t, &differs));
    NEED(differs);
    return WF_OK;
}

static wf_status average_rank(wf_rank *rank, void *arg)
{
    return on_trainer(rank, arg, average, NULL);
}

static void averages(void)
{
    training t = new_training(LLAMA, 3, BATCH);

    t.options.optimizer.ema = 0.5f;
    t.options.skip.loss_above = 1e-3f; /* every loss is */
    run_ranks(1, average_rank, &t);
    t.layout.dp = 2;
    run_ranks(2, average_rank, &t);
}

int main(void)
{
    static const wf_test tests[] = {{"averages of no update", averages}, {NULL, NULL}};

    return wf_test_main("average", tests);
}

/*
 * tests/parallel/test_freeze.c - frozen modules: they stay what they were, nothing is kept or moved
 * for them, and what is trained has one rank's bits on every layout.
 */
#include "tests/parallel/rows.h"

enum { BATCH = 8, STEPS = UNDER_SANITIZER ? 2 : 4 };

static const row rows[] = {
    {NULL, .tp = 4, .dp = 2},
    {"zero1", .tp = 2, .dp = 2, .recompute = "block"},
    {NULL, .tp = 4, .dp = 1, .recompute = "block"},
    {NULL, .tp = 2, .dp = 1, .sequence_parallel = true, .recompute = "block"},
};

enum { ROWS = sizeof rows / sizeof *rows };

static training make_training(const char *frozen)
{
    training t = new_training(LLAMA, 3, BATCH);

    t.frozen = frozen;
    t.steps = STEPS;
    return t;
}

static void one_digest(void)
{
    static const char *const patterns[] = {"block.0", "block.*.norm1", "embed", "head",
                                           "block.*.attn.qkv"};

    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        training one = make_training(patterns[i]), none = make_training(NULL);

        if (!train(&one) || !train(&none))
            return;
        CU_ASSERT_NOT_EQUAL(one.digest, none.digest);
        check_rows(&one, rows, ROWS, 1);
    }
}

/* Sums of all elements of the frozen and of the other parameters, before and after. */
typedef struct sums {
    double frozen[2], other[2];
    size_t state;
} sums;

static double sum_of(const wf_tensor *t)
{
    double sum = 0;

    for (int64_t i = 0; i < wf_tensor_local_count(t); i++)
        sum += (double)((const float *)t->data)[i];
    return sum;
}

static wf_status add_up(training *t, wf_rank *rank, wf_par *par, wf_nn_gpt *model, int step)
{
    int64_t count = 0;
    wf_nn_parameter **p = wf_nn_parameters(&model->base, &count);
    sums *s = t->arg;
    wf_memory_report m;

    (void)rank;
    for (int64_t i = 0; (step == 0 || step == STEPS) && i < count; i++)
        *(p[i]->frozen ? &s->frozen[step > 0] : &s->other[step > 0]) += sum_of(p[i]->tensor);
    free(p);
    wf_pool_report(wf_context_pool(wf_par_context(par)), &m);
    s->state = m.most[WF_MEMORY_OPTIMIZER] + m.most[WF_MEMORY_GRADIENT];
    return WF_OK;
}

static void frozen_stays(void)
{
    sums some = {.state = 0}, none = {.state = 0};
    training t = make_training("block.*.mlp"), all = make_training(NULL);

    t.watch = all.watch = add_up;
    t.arg = &some;
    all.arg = &none;
    if (!train(&t) || !train(&all))
        return;
    CU_ASSERT_EQUAL(some.frozen[0], some.frozen[1]);
    CU_ASSERT_NOT_EQUAL(some.frozen[0], 0);
    CU_ASSERT_NOT_EQUAL(some.other[0], some.other[1]);
    CU_ASSERT(some.state < none.state);
}

static void nothing_left(void)
{
    training t = make_training("*");
    wf_launch_options launch = {.ranks = 1};
    wf_error error = {WF_OK, ""};

    CU_ASSERT_EQUAL(wf_launch(&launch, training_rank, &t, &error), WF_EINVAL);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "all parameters are frozen"));
}

int main(void)
{
    static const wf_test tests[] = {
        {"the bits of one rank", one_digest},
        {"what is frozen stays, and has no state", frozen_stays},
        {"something is trained", nothing_left},
        {NULL, NULL},
    };

    return wf_test_main("freeze", tests);
}

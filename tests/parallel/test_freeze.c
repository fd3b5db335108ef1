/*
 * tests/parallel/test_freeze.c - frozen modules: they stay what they were, nothing is kept or
 * moved for them, and what is trained has one rank's bits on every layout.
 *
 * ctest: builds plain
 */
#include "tests/parallel/plan_harness.h"
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

/* Stored as bf16, what is frozen has no master, and one digest on every layout. */
static void frozen_in_bf16(void)
{
    static const row more[] = {{"no_shard", .tp = 1, .dp = 4, .micro = 1},
                               {"shard_grad_op", .tp = 2, .dp = 2, .micro = 2},
                               {"hybrid_shard", .tp = 1, .dp = 4, .group = 2}};
    training one = make_training("block.*.attn");

    one.layout.param_dtype = WF_BF16;
    if (!train(&one))
        return;
    check_rows(&one, rows, ROWS, 1);
    check_rows(&one, more, sizeof more / sizeof *more, 1);
}

/* A model of which a rank holds so much for every element of its share, at most, and all ranks
   together. */
static void check_bytes(const char *strategy, const char *frozen, wf_dtype dtype, wf_dtype base,
                        double most)
{
    static reports planned;
    training t = new_training(LLAMA, 8, 16);
    double elements = 0, rest = 0;
    int replicate, shard;

    t.model.heads = 8;
    t.model.width = 512;
    t.model.ffn = 1408;
    t.frozen = frozen;
    t.layout.dp = 4;
    t.layout.strategy = strategy;
    if (wf_par_axes(&t.layout, &replicate, &shard, NULL) != WF_OK)
        t.layout.shard_group_size = 2;
    CU_ASSERT_EQUAL_FATAL(wf_par_axes(&t.layout, &replicate, &shard, NULL), WF_OK);
    t.layout.param_dtype = dtype;
    t.layout.base_dtype = base;
    t.steps = 2;
    t.watch = report_step;
    t.arg = &planned;
    if (!plan(&t))
        return;
    for (int rank = 0; rank < t.layout.dp; rank++) {
        const wf_par_report *r = &planned.of[rank];

        CU_ASSERT_EQUAL(r->frozen.share + r->trained.share, r->share);
        CU_ASSERT(r->memory.now[WF_MEMORY_FROZEN] >= r->frozen.stored);
        CU_ASSERT_EQUAL(r->memory.now[WF_MEMORY_FROZEN], r->memory.most[WF_MEMORY_FROZEN]);
        CU_ASSERT(r->memory.most[WF_MEMORY_OPTIMIZER] <= 13 * (size_t)r->trained.share);
        elements = (double)r->frozen.share;
        rest += (double)r->memory.now[WF_MEMORY_FROZEN];
    }
    if (strcmp(strategy, "no_shard") == 0 || strcmp(strategy, "zero1") == 0)
        rest /= t.layout.dp;
    else
        rest /= replicate;
    CU_ASSERT(rest / elements <= most);
    if (!(rest / elements <= most))
        printf("\n    %s: %.3f bytes of a frozen parameter\n", strategy, rest / elements);
}

/* Whatever the strategy, and no more than what modules compute with. */
static void frozen_memory(void)
{
    const char *strategy;

    for (int s = 0; (strategy = wf_par_strategy_name(s)); s++) {
        check_bytes(strategy, "block", WF_BF16, WF_F32, 2.01);
        check_bytes(strategy, "block", WF_F32, WF_F32, 4.01);
        check_bytes(strategy, "block", WF_BF16, WF_NF4, 0.53);
        check_bytes(strategy, "block", WF_F32, WF_NF4, 0.53);
    }
}

static void plan_is_run(void)
{
    const char *strategy;

    for (int s = 0; (strategy = wf_par_strategy_name(s)); s++)
        for (int bf16 = 0; bf16 < 2; bf16++) {
            training t = make_training("block.*.attn");
            int replicate, shard;

            t.layout.dp = 4;
            t.layout.strategy = strategy;
            if (wf_par_axes(&t.layout, &replicate, &shard, NULL) != WF_OK)
                t.layout.shard_group_size = 2;
            t.layout.dtype = t.layout.param_dtype = bf16 ? WF_BF16 : WF_F32;
            compare(strategy, t);
        }
}

static wf_status thaw(training *t, wf_rank *rank, wf_par *par, wf_nn_gpt *model, int step)
{
    wf_par_trainer *other;

    (void)rank, (void)step;
    model->embed->table->frozen = false;
    other = wf_par_trainer_open(par, &model->base, &t->options);
    wf_par_trainer_close(other);
    return wf_context_status(wf_par_context(par));
}

/* A parameter without a master cannot be trained after all. */
static void thawed(void)
{
    training t = make_training("embed");
    wf_launch_options launch = {.ranks = 1};
    wf_error error = {WF_OK, ""};

    t.layout.param_dtype = WF_BF16;
    t.watch = thaw;
    CU_ASSERT_EQUAL(wf_launch(&launch, training_rank, &t, &error), WF_EINVAL);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "embed.table was frozen when it was planned"));
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
        {"frozen in bf16", frozen_in_bf16},
        {"memory of what is frozen", frozen_memory},
        {"plan is run", plan_is_run},
        {"what has no master stays frozen", thawed},
        {"something is trained", nothing_left},
        {NULL, NULL},
    };

    return wf_test_main("freeze", tests);
}

/*
 * tests/cuda/test_cuda_graph_ranks.c - steps of several ranks by graphs that are cut where
 * ranks meet: loss, norm and digest of one rank without graphs, for each strategy, on GPUs of
 * their own; no op is called; a rank that fails is an error of all.
 *
 * WEFT_TEST_ALL in the environment tries every row; without it every second one is.
 *
 * ctest: builds plain, cost 5
 */
#include "tests/cuda/gpu_main.h"
#include "tests/parallel/checkpoint_harness.h"
#include "tests/parallel/second_step.h"

enum { LENGTH = 4, STEPS = 3 };

static const row rows[] = {
    {"full_shard", .tp = 1, .dp = 2, .micro = 1},
    {"hybrid_shard_zero2", .tp = 1, .dp = 4, .group = 2, .micro = 1},
    {"shard_grad_op", .tp = 2, .dp = 2, .micro = 1, .sequence_parallel = true},
    {"no_shard", .tp = 2, .dp = 1, .micro = 4},
    {"hybrid_shard", .tp = 1, .dp = 4, .group = 2, .micro = 1},
    {"mics", .tp = 2, .dp = 2, .group = 1, .micro = 1},
    {"zero1", .tp = 1, .dp = 2, .micro = 2},
    {"full_shard", .tp = 2, .dp = 2, .micro = 1, .prefetch = 1},
};

enum { ROWS = sizeof rows / sizeof *rows, FULL_SHARD = 0, FOUR_RANKS = 2, ZERO1 = 6 };

static training make_training(model_kind kind)
{
    training t = new_training(kind, kind == GPT2 ? 4 : 2, 4);

    t.model.heads = 4;
    t.model.layers = 1;
    t.model.width = 16;
    t.model.ffn = 32;
    t.model.dropout = kind == GPT2 ? 0.1f : 0;
    t.model.positions = LENGTH;
    for (int i = 0; i < 2; i++)
        t.options.field[i].dim[0].size = LENGTH;
    t.options.clip = 0.1f;
    t.steps = STEPS;
    t.layout.device = "cuda";
    return t;
}

static void by_graphs(const training *one, const row *r, const char *devices)
{
    training t = on_row(*one, r);

    t.layout.cuda_graph = true;
    setenv("WEFT_EMULATOR_DEVICES", devices, 1);
    if (train(&t)) {
        check_same(&t, one);
        for (int k = 0; k < t.steps; k++)
            CU_ASSERT_EQUAL(t.grad_norm[k], one->grad_norm[k]);
    }
    unsetenv("WEFT_EMULATOR_DEVICES");
}

static void strategies(void)
{
    training one = make_training(GPT2);

    if (!train(&one))
        return;
    for (int i = 0; i < ROWS; i += getenv("WEFT_TEST_ALL") ? 1 : 2)
        by_graphs(&one, &rows[i], i % 4 ? "4" : "2");
}

/* Parameters in bf16, whose copies are gathered, and a moving average of them; recomputed
   blocks. */
static void other_types(void)
{
    training one = make_training(LLAMA);
    row r = rows[ZERO1];

    one.layout.param_dtype = WF_BF16;
    one.options.optimizer.ema = 0.9f;
    r.recompute = "block";
    if (train(&one)) {
        by_graphs(&one, &rows[FULL_SHARD], "2");
        by_graphs(&one, &r, "2");
    }
}

/* Numbers of a rank's steps. */
typedef struct counted {
    int calls[4];
    int64_t launches[MAX_STEPS + 1], syncs[MAX_STEPS + 1];
} counted;

static void count_call(void *arg, const wf_call *call)
{
    (void)call;
    ++*(int *)arg;
}

static wf_status count(training *t, wf_rank *rank, wf_par *par, wf_nn_gpt *model, int step)
{
    wf_context *ctx = wf_par_context(par);
    const wf_device_counts now = wf_context_device(ctx)->counts();
    counted *c = t->arg;

    (void)model;
    if (step == 0)
        wf_context_observe(ctx, count_call, &c->calls[rank->index]);
    if (t->layout.cuda_graph)
        NEED((c->calls[rank->index] > 0) == (step == 1 || step == 2));
    c->calls[rank->index] = 0;
    if (rank->index == 0) {
        c->launches[step] = now.launches;
        c->syncs[step] = now.syncs + now.waits;
    }
    return WF_OK;
}

/* A step by graphs waits for its judgment, which is read at once here; op by op it waits where
   the host reads loss and norm. Where ranks meet neither does. */
static void waits(void)
{
    training t = on_row(make_training(GPT2), &rows[FOUR_RANKS]);
    counted c[2];

    memset(c, 0, sizeof c);
    t.watch = count;
    for (int graphs = 0; graphs < 2; graphs++) {
        t.layout.cuda_graph = graphs;
        t.arg = &c[graphs];
        if (!train(&t))
            return;
        CU_ASSERT(c[graphs].syncs[STEPS] - c[graphs].syncs[STEPS - 1] <= (graphs ? 1 : 4));
        printf("\n    tp 2 dp 2 %s: %d launches and %d waits in a step of a rank",
               graphs ? "by graphs" : "op by op",
               (int)(c[graphs].launches[STEPS] - c[graphs].launches[STEPS - 1]),
               (int)(c[graphs].syncs[STEPS] - c[graphs].syncs[STEPS - 1]));
    }
    printf("\n");
}

/* Data of one rank end in the step whose graphs run for the first time on others, or in the
   next one. */
static int64_t last_step;

static wf_status read_or_end(void *self, int64_t step, int64_t first, int64_t count,
                             void *const *field, wf_error *error)
{
    if (step > last_step && first == 1) /* the sequence is the second rank's */
        return wf_error_set(error, WF_EDATA, "there are no data of sequence %d", (int)first);
    return count_up(self, step, first, count, field, error);
}

static void a_rank_fails(void)
{
    training t = on_row(make_training(GPT2), &rows[FULL_SHARD]);
    const wf_par_data data = {.read = read_or_end, .self = &t.options.field[0].dim[0].size};
    wf_error error[2] = {{WF_OK, ""}, {WF_OK, ""}};

    t.data = &data;
    t.layout.cuda_graph = true;
    for (int i = 0; i < 2; i++) {
        last_step = 1 + i;
        wf_launch(&(wf_launch_options){.ranks = 2}, training_rank, &t, &error[i]);
        CU_ASSERT(says(&error[i], WF_EDATA, "rank 1", "there are no data of sequence"));
    }
}

/* A loss that is not finite is found by all, and looked at op by op. */
static void not_finite(void)
{
    training t = on_row(make_training(GPT2), &rows[FULL_SHARD]);
    wf_error error = {WF_OK, ""};

    t.steps = 20;
    t.options.clip = 0;
    t.options.optimizer = (wf_nn_optimizer_options){.method = WF_NN_SGD};
    t.options.schedule = (wf_nn_schedule){.lr = 1e6, .min_lr = 1e6, .steps = 20};
    t.layout.cuda_graph = true;
    wf_launch(&(wf_launch_options){.ranks = 2}, training_rank, &t, &error);
    CU_ASSERT_EQUAL(error.code, WF_ENONFINITE);
}

/* Parameters lie where they lay, and their memory is counted. */
static void plan_is_run(void)
{
    training t = on_row(make_training(LLAMA), &rows[ZERO1]);
    wf_par_report ran = {0}, planned = {0};

    t.steps = 2;
    t.layout.cuda_graph = true;
    t.watch = report_second_step;
    t.arg = &ran;
    if (!train(&t))
        return;
    plan_second_step(&t, 2, &planned);
    CU_ASSERT(ran.memory.now[WF_MEMORY_GRAPH] > 0);
    same_kinds(&planned.memory, &ran.memory);
}

int main(void)
{
    static const wf_test tests[] = {{"each strategy by graphs", strategies},
                                    {"other types by graphs", other_types},
                                    {"what a step waits for", waits},
                                    {"a rank fails", a_rank_fails},
                                    {"numbers that are not finite", not_finite},
                                    {"a plan is the run", plan_is_run},
                                    {NULL, NULL}};

    return gpu_test_main("cuda_graph_ranks", tests);
}

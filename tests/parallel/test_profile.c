/*
 * tests/parallel/test_profile.c - a row replayed from what few micro-batches have shown takes
 * what its plan takes, to the byte, on every rank; and thousands of times as fast.
 *
 * ctest: builds plain
 */
#include "parallel/stages/profile.h"
#include "tests/parallel/plan_harness.h"
#include "tests/clock.h"

/* One line per configuration: what differs from a gpt2 of 4 blocks. The profile is of `few`
   micro-batches. */
typedef struct row {
    const char *schedule, *split, *strategy, *recompute;
    int pp, per_rank, tp, dp, layers, few, many, group, resident;
    bool stage_again, llama, sequence_parallel, muon, bf16, activations, reduced;
} row;

static const row rows[] = {
    {"1f1b", .pp = 2},
    {"1f1b", .pp = 4, .llama = true},
    {"gpipe", .pp = 2},
    {"interleaved", .pp = 2},
    {"looped-bfs", .pp = 2},
    {"zb-h1", .pp = 2, .llama = true},
    {"zb-h1", .pp = 4},
    {"zb-v", .pp = 2},
    {"v-half", .pp = 2, .llama = true},
    {"dualpipe-v", .pp = 2},
    {"1f1b", "1,0,4,1", .pp = 4},
    {"zb-h1", .pp = 2, .tp = 2, .sequence_parallel = true},
    {"1f1b", .pp = 2, .recompute = "block"},
    {"zb-h1", .pp = 2, .recompute = "block"},
    {"1f1b", .pp = 2, .stage_again = true},
    {"1f1b", .pp = 2, .activations = true, .bf16 = true, .llama = true},
    {"1f1b", .pp = 2, .dp = 2, .strategy = "no_shard"},
    {"zb-h1", .pp = 2, .dp = 2, .strategy = "zero1", .bf16 = true},
    {"1f1b", .pp = 2, .dp = 2, .strategy = "shard_grad_op"},
    {"zb-v", .pp = 2, .dp = 2, .strategy = "shard_grad_op"},
    {"1f1b", .pp = 2, .dp = 2, .strategy = "full_shard"},
    {"zb-h1", .pp = 2, .dp = 2, .strategy = "full_shard", .bf16 = true, .llama = true},
    {"interleaved", .pp = 2, .dp = 2, .strategy = "full_shard", .resident = 1},
    {"1f1b", .pp = 2, .dp = 2, .strategy = "no_shard", .reduced = true},
    {"1f1b", .pp = 2, .dp = 2, .strategy = "full_shard", .group = 2, .few = 16},
    {"1f1b", .pp = 2, .dp = 4, .strategy = "hybrid_shard"},
    {"1f1b", .pp = 2, .tp = 2, .dp = 2, .strategy = "full_shard", .muon = true},
    {"1f1b", .pp = 2, .layers = 36, .many = 64}, /* the last one is timed */
};

enum { ROWS = sizeof rows / sizeof *rows, FEW = 8, MANY = 32 };

static training training_of(const row *r, int micros)
{
    int dp = r->dp ? r->dp : 1, replicate, shard;
    training t = new_training(r->llama ? LLAMA : GPT2, HEADS, (int64_t)micros * dp);

    t.model.layers = r->layers ? r->layers : 4;
    t.layout.pp = r->pp;
    t.layout.tp = r->tp ? r->tp : 1;
    t.layout.dp = dp;
    t.layout.strategy = r->strategy;
    if (wf_par_axes(&t.layout, &replicate, &shard, NULL) != WF_OK)
        t.layout.shard_group_size = 2;
    t.layout.sequence_parallel = r->sequence_parallel;
    t.layout.dtype = r->activations ? WF_BF16 : WF_F32;
    t.layout.param_dtype = r->bf16 ? WF_BF16 : WF_F32;
    t.layout.accumulate = r->reduced ? WF_PAR_REDUCED : r->group ? WF_PAR_GROUP : WF_PAR_LOCAL;
    t.layout.accumulate_group = r->group;
    t.recompute = r->recompute;
    t.options.micro_batch = 1;
    if (r->muon)
        t.options.optimizer.method = WF_NN_MUON;
    t.pipeline = (wf_par_pipeline_options){.schedule = r->schedule,
                                           .split = r->split,
                                           .stages_per_rank = r->per_rank,
                                           .recompute = r->stage_again,
                                           .resident = r->resident};
    t.steps = 2;
    t.watch = report_step;
    return t;
}

/* One rank's plan. */
static bool plan_rank(training *t, wf_par_pipeline *pipeline, int rank)
{
    wf_launch_options launch = {
        .ranks = (int)wf_par_ranks(&t->layout), .transport = "fake", .rank = rank};
    wf_error error = {WF_OK, ""};

    t->layout.plan = true;
    t->options.pipeline = pipeline;
    wf_launch(&launch, training_rank, t, &error);
    if (error.code != WF_OK)
        printf("\n    plan of rank %d: %s\n", rank, error.text);
    return error.code == WF_OK;
}

typedef struct times {
    double planned, replayed;
} times;

/* Checks that a rank's profile of few micro-batches, replayed over many, is its plan of
   many. */
static bool replays(const row *r, training *few, training *many, wf_par_pipeline *small,
                    wf_par_pipeline *large, int pp, times *spent)
{
    static reports planned;
    int each = (int)wf_par_ranks(&many->layout) / r->pp, rank = (pp + 1) * each - 1;
    wf_par_profile *profile = wf_par_profile_new();
    wf_par_profile_memory memory;
    wf_error error = {WF_OK, ""};
    double start;
    bool good;

    many->arg = few->arg = &planned;
    few->options.profile = profile;
    good = plan_rank(few, small, rank);
    start = wf_test_clock(CLOCK_PROCESS_CPUTIME_ID);
    good = good && plan_rank(many, large, rank);
    spent->planned += wf_test_clock(CLOCK_PROCESS_CPUTIME_ID) - start;
    start = wf_test_clock(CLOCK_PROCESS_CPUTIME_ID);
    good = good && wf_par_profile_replay(profile, wf_par_pipeline_table(large), pp, NULL,
                                         &memory, &error) == WF_OK;
    spent->replayed += wf_test_clock(CLOCK_PROCESS_CPUTIME_ID) - start;
    if (good && (memory.peak != planned.of[rank].memory.peak || memory.unknown)) {
        printf("\n    %s, pp rank %d: %zu replayed, %zu planned (%s %s), %" PRId64
               " unknown of %" PRId64 " entries",
               r->schedule, pp, memory.peak, planned.of[rank].memory.peak,
               planned.of[rank].memory.phase, planned.of[rank].memory.module, memory.unknown,
               wf_par_profile_entries(profile));
        good = false;
    }
    wf_par_profile_free(profile);
    return good;
}

static void replay_is_plan(void)
{
    times spent;

    for (int i = 0; i < ROWS; i++) {
        const row *r = &rows[i];
        training few = training_of(r, r->few ? r->few : FEW),
                 many = training_of(r, r->many ? r->many : MANY);
        wf_error error = {WF_OK, ""};
        wf_par_pipeline *small = pipeline_of(&few, &error), *large = pipeline_of(&many, &error);
        bool good = error.code == WF_OK;

        spent = (times){0, 0};
        for (int pp = 0; good && pp < r->pp; pp++)
            good = replays(r, &few, &many, small, large, pp, &spent);
        CU_ASSERT(good);
        if (!good)
            printf("\n    row %d %s\n", i, error.text);
        wf_par_pipeline_free(small);
        wf_par_pipeline_free(large);
    }
    printf("\n    planned in %.3f s, replayed in %.6f s\n", spent.planned, spent.replayed);
    CU_ASSERT(spent.planned > 500 * spent.replayed);
}

int main(void)
{
    static const wf_test tests[] = {
        {"a profile of few micro-batches, replayed, is the plan of many", replay_is_plan},
        {NULL, NULL},
    };

    return wf_test_main("unit profiles", tests);
}

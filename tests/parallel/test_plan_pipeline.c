/*
 * tests/parallel/test_plan_pipeline.c - the plan of every rank of a pipeline is its run, to the
 * byte; what is sent and gathered is what the formulas say.
 *
 * ctest: builds plain
 */
#include "tests/parallel/plan_harness.h"

/* One line per configuration: what differs from a gpt2 of 4 blocks with 8 micro-batches of
   1. */
typedef struct row {
    const char *schedule, *split, *strategy, *recompute;
    int pp, per_rank, tp, dp, micro, depth, resident, batch, group;
    bool stage_again, llama, sequence_parallel, muon, sgd, bf16, activations, rounded, reduced,
        split_messages;
    float dropout;
} row;

static const row rows[] = {
    {"naive", .pp = 2},
    {"gpipe", .pp = 4},
    {"1f1b", .pp = 1},
    {"1f1b", .pp = 2},
    {"1f1b", .pp = 4, .llama = true},
    {"1f1b", .pp = 4, .depth = 3},
    {"interleaved", .pp = 2},
    {"looped-bfs", .pp = 2},
    {"zb-h1", .pp = 2},
    {"zb-h1", .pp = 4, .llama = true},
    {"zb-h2", .pp = 3},
    {"zb-v", .pp = 2},
    {"v-half", .pp = 2, .llama = true},
    {"v-min", .pp = 3},
    {"dualpipe-v", .pp = 2},
    {"list", .pp = 2},
    {"1f1b", "1,0,4,1", .pp = 4},
    {"zb-v", "1,0,0,5", .pp = 2},
    {"1f1b", .pp = 2, .micro = 4},
    {"zb-h1", .pp = 2, .tp = 2},
    {"zb-v", .pp = 2, .tp = 2, .sequence_parallel = true},
    {"interleaved", .pp = 2, .per_rank = 3, .tp = 4, .llama = true, .sequence_parallel = true},
    {"zb-h1", .pp = 2, .tp = 4, .split_messages = true},
    {"interleaved", .pp = 2, .tp = 2, .dp = 2, .split_messages = true, .llama = true},
    {"1f1b", .pp = 2, .dropout = 0.1f},
    {"1f1b", .pp = 2, .recompute = "block"},
    {"zb-h1", .pp = 2, .recompute = "block", .dropout = 0.1f},
    {"zb-v", .pp = 2, .recompute = "attention"},
    {"1f1b", .pp = 2, .stage_again = true},
    {"zb-v", .pp = 2, .dp = 2, .strategy = "full_shard", .stage_again = true, .dropout = 0.1f},
    {"1f1b", .pp = 2, .activations = true},
    {"zb-h1", .pp = 2, .activations = true, .bf16 = true, .llama = true},
    {"1f1b", .pp = 2, .muon = true},
    {"zb-h1", .pp = 2, .dp = 2, .strategy = "no_shard", .sgd = true},
    {"1f1b", .pp = 2, .dp = 2, .strategy = "no_shard", .reduced = true},
    {"zb-h1", .pp = 2, .dp = 2, .strategy = "zero1"},
    {"zb-v", .pp = 2, .dp = 2, .strategy = "zero1", .bf16 = true, .rounded = true},
    {"1f1b", .pp = 2, .dp = 2, .strategy = "shard_grad_op"},
    {"zb-h1", .pp = 2, .dp = 2, .strategy = "shard_grad_op", .recompute = "block"},
    {"zb-v", .pp = 2, .dp = 2, .strategy = "shard_grad_op", .reduced = true},
    {"1f1b", .pp = 2, .dp = 2, .strategy = "full_shard"},
    {"interleaved", .pp = 2, .dp = 2, .strategy = "full_shard", .resident = 1},
    {"zb-v", .pp = 2, .tp = 2, .dp = 2, .strategy = "full_shard", .recompute = "block"},
    {"zb-h1", .pp = 2, .dp = 2, .strategy = "full_shard", .bf16 = true, .llama = true},
    {"zb-h1", .pp = 2, .dp = 2, .strategy = "full_shard", .group = 2},
    {"zb-v", .pp = 2, .tp = 2, .dp = 2, .strategy = "no_shard", .group = 4, .bf16 = true},
    {"1f1b", .pp = 2, .dp = 4, .strategy = "hybrid_shard"},
    {"zb-v", .pp = 2, .dp = 4, .strategy = "hybrid_shard_zero2", .batch = 16},
    {"zb-h1", .pp = 4, .tp = 2, .dp = 2, .strategy = "full_shard", .muon = true},
};

enum { ROWS = sizeof rows / sizeof *rows };

static training training_of(const row *r)
{
    training t = new_training(r->llama ? LLAMA : GPT2, HEADS, 8 * (r->dp ? r->dp : 1));
    int replicate, shard;

    t.model.layers = 4;
    t.model.dropout = r->dropout;
    t.layout.pp = r->pp;
    t.layout.tp = r->tp ? r->tp : 1;
    t.layout.dp = r->dp ? r->dp : 1;
    t.layout.strategy = r->strategy;
    if (wf_par_axes(&t.layout, &replicate, &shard, NULL) != WF_OK)
        t.layout.shard_group_size = 2;
    t.layout.sequence_parallel = r->sequence_parallel;
    t.layout.dtype = r->activations ? WF_BF16 : WF_F32;
    t.layout.param_dtype = r->bf16 ? WF_BF16 : WF_F32;
    t.layout.reduce_dtype = r->rounded ? WF_BF16 : WF_F32;
    t.layout.accumulate = r->reduced ? WF_PAR_REDUCED : r->group ? WF_PAR_GROUP : WF_PAR_LOCAL;
    t.layout.accumulate_group = r->group;
    t.recompute = r->recompute;
    t.options.micro_batch = r->micro ? r->micro : 1;
    t.options.global_batch = r->batch ? r->batch : t.options.global_batch;
    if (r->muon)
        t.options.optimizer.method = WF_NN_MUON;
    if (r->sgd)
        t.options.optimizer.method = WF_NN_SGD;
    t.pipeline = (wf_par_pipeline_options){.schedule = r->schedule,
                                           .split = r->split,
                                           .stages_per_rank = r->per_rank,
                                           .recompute = r->stage_again,
                                           .depth = r->depth,
                                           .resident = r->resident,
                                           .split_messages = r->split_messages};
    return t;
}

static void plan_is_run(void)
{
    for (int i = 0; i < ROWS; i++) {
        char name[64];

        snprintf(name, sizeof name, "row %d, %s", i, rows[i].schedule);
        compare(name, training_of(&rows[i]));
    }
}

/* Calls and bytes of a kind, over an axis. */
typedef struct count {
    int64_t calls, bytes;
} count;

static count counted(const wf_par_report *r, const char *axis, wf_collective_kind kind)
{
    for (int i = 0; i < r->n_traffic; i++)
        if (strcmp(r->traffic[i].axis, axis) == 0)
            return (count){r->traffic[i].counters.of[kind].calls,
                           r->traffic[i].counters.of[kind].bytes};
    return (count){0, 0};
}

/* Each border between two ranks takes a message each way for each micro-batch, of a
   micro-batch's activations, of which a tensor-parallel rank has its tokens alone with sequence
   parallelism, and takes them alone without where messages are split. Where a GPT-2's first and
   last stage are on two ranks, these exchange the gradient of the table that they share,
   once. */
static void messages(void)
{
    static const struct {
        const char *schedule;
        int borders, tied; /* borders with another rank's stages; messages of the table */
    } cases[] = {{"1f1b", 1, 1}, {"interleaved", 3, 1}, {"zb-v", 2, 0}};
    static reports planned;

    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 6; k++) {
            int tp = k % 2 + 1, llama = k / 2 == 1, split = k / 2 == 2;
            training t = training_of(
                &(row){cases[i].schedule, .pp = 2, .tp = tp, .micro = 2, .llama = llama});
            int64_t each = t.options.global_batch / 2 * cases[i].borders;
            int tied = llama ? 0 : cases[i].tied;

            if (split && tp == 1) /* refused: no ranks have activations alike */
                continue;
            t.layout.sequence_parallel = tp > 1 && !split;
            t.pipeline.split_messages = split;
            t.steps = 2;
            t.watch = report_step;
            t.arg = &planned;
            if (!plan(&t))
                return;
            for (int rank = 0; rank < 2 * tp; rank++) {
                count sent = counted(&planned.of[rank], "pp", WF_SEND),
                      got = counted(&planned.of[rank], "pp", WF_RECV);

                CU_ASSERT_EQUAL(sent.calls, each + tied);
                CU_ASSERT_EQUAL(got.calls, each + tied);
                /* 257 rows of the table are 128 and 129 */
                CU_ASSERT_EQUAL(got.bytes,
                                each * 2 * TOKENS * WIDTH * 4 / tp +
                                    tied * (VOCABULARY + rank % tp) / tp * WIDTH * 4);
            }
        }
}

/* A stage gathers and reduces in a step of shard_grad_op its own parameters, whatever the
   number of micro-batches. */
static void gathers(void)
{
    static reports planned[3];

    for (int k = 0; k < 3; k++) {
        training t = training_of(
            &(row){"zb-v", .pp = 2, .dp = 2, .strategy = "shard_grad_op", .batch = 4 << k});

        t.steps = 2;
        t.watch = report_step;
        t.arg = &planned[k];
        if (!plan(&t))
            return;
        for (int rank = 0; rank < 4; rank++) {
            const wf_par_report *r = &planned[k].of[rank], *first = &planned[0].of[rank];
            int64_t units = 0;

            for (int i = 0; i < r->n_groups; i++)
                units += r->group[i].parameters ? r->group[i].count : 0;
            CU_ASSERT(units > 0);
            for (int kind = 0; kind < WF_COLLECTIVE_KINDS; kind++)
                CU_ASSERT_EQUAL(counted(r, "shard", (wf_collective_kind)kind).bytes,
                                counted(first, "shard", (wf_collective_kind)kind).bytes);
            CU_ASSERT_EQUAL(counted(r, "shard", WF_ALL_GATHER).calls, units);
        }
    }
}

int main(void)
{
    static const wf_test tests[] = {
        {"the plan of every rank is its run, to the byte", plan_is_run},
        {"messages are those of the borders", messages},
        {"a stage is gathered once a step", gathers},
        {NULL, NULL},
    };

    return wf_test_main("plans of pipelines", tests);
}

/*
 * tests/parallel/test_pipeline_beside.c - forward of a micro-batch alternately with backward of
 * another one, where tokens are exchanged: the bits of one rank, exchanges that are hidden, and
 * a plan that is the run, to the byte.
 *
 * ctest: builds plain, cost 30
 */
#include "parallel/pipeline/table_internal.h"
#include "parallel/stages/profile.h"
#include "tests/parallel/plan_harness.h"

enum { MICROS = 8, BATCH = 32 };

/* One line per configuration: what differs from a llama of 4 blocks over pp 2. */
typedef struct row {
    const char *schedule, *strategy, *recompute;
    int tp, dp, ep;
    wf_par_accumulate accumulate;
    bool shared, waits, sequence_parallel, stage_again, bf16, bias, losses;
    double buffer;
    int prefetch, resident;
} row;

static const row rows[] = {
    {"dualpipe-v", "no_shard", .tp = 1, .dp = 2, .ep = 2},
    {"dualpipe-v", "full_shard", .tp = 1, .dp = 4, .ep = 2, .shared = true, .prefetch = 1},
    {"dualpipe-v", "full_shard", "block", .tp = 1, .dp = 4, .ep = 2, .shared = true,
     .bias = true},
    {"dualpipe-v", "zero1", .tp = 2, .dp = 2, .ep = 4, .sequence_parallel = true,
     .stage_again = true},
    {"dualpipe-v", "shard_grad_op", .tp = 1, .dp = 4, .ep = 2, .shared = true, .waits = true,
     .bf16 = true, .buffer = 1.25},
    {"dualpipe-v", "full_shard", "moe", .tp = 1, .dp = 2, .ep = 2, .resident = 2, .bf16 = true,
     .accumulate = WF_PAR_REDUCED},
    {"beside-any", "full_shard", .tp = 1, .dp = 4, .ep = 2, .shared = true, .bias = true,
     .losses = true},
};

enum { ROWS = sizeof rows / sizeof *rows };

/* dualpipe-v with the two of each pair in the other order, and further pairs: of gradients of
   inputs, of weights, and of two forwards. Those that are no forward and backward are done one
   after the other. */
static wf_status any_pairs(const wf_pipe_shape *shape, wf_pipe_table *t)
{
    wf_pipe_table *from = NULL;
    wf_error error = {WF_OK, ""};

    if (wf_pipe_generate("dualpipe-v", shape, &from, &error) != WF_OK)
        return wf_pipe_table_refuse(t, "%s", error.text);
    wf_pipe_assign_v("beside-any", t);
    for (int r = 0; r < shape->ranks; r++) {
        int64_t n;
        const wf_pipe_action *a = wf_pipe_table_row(from, r, &n);

        for (int64_t i = 0; i < n; i++) {
            bool pair = a[i].with_next;
            wf_pipe_action one = a[pair ? i + 1 : i], other = a[i];

            one.with_next = pair || (i + 1 < n && !a[i + 1].with_next &&
                                     a[i].kind == WF_PIPE_W && a[i + 1].kind == WF_PIPE_W);
            wf_pipe_table_append(t, r, &one);
            if (!one.with_next)
                continue;
            other = pair ? other : a[i + 1];
            other.with_next = false;
            wf_pipe_table_append(t, r, &other);
            i++;
        }
    }
    wf_pipe_table_free(from);
    return WF_OK;
}

/* dualpipe-v of which nothing overlaps. */
static wf_status no_pairs(const wf_pipe_shape *shape, wf_pipe_table *t)
{
    wf_pipe_table *from = NULL;
    wf_error error = {WF_OK, ""};

    if (wf_pipe_generate("dualpipe-v", shape, &from, &error) != WF_OK)
        return wf_pipe_table_refuse(t, "%s", error.text);
    wf_pipe_assign_v("beside-none", t);
    for (int r = 0; r < shape->ranks; r++) {
        int64_t n;
        const wf_pipe_action *a = wf_pipe_table_row(from, r, &n);

        for (int64_t i = 0; i < n; i++) {
            wf_pipe_action one = a[i];

            one.with_next = false;
            wf_pipe_table_append(t, r, &one);
        }
    }
    wf_pipe_table_free(from);
    return WF_OK;
}

static training mixture(const row *r)
{
    training t = new_training(LLAMA, HEADS, BATCH);

    t.model.layers = 4;
    t.model.experts = 8;
    t.model.top_k = 2;
    t.model.expert_ffn = 20;
    t.model.shared_ffn = r->shared ? 24 : 0;
    t.model.bias_step = r->bias ? 0.05 : 0;
    t.model.sequence_weight = t.model.z_weight = r->losses ? 0.1 : 0;
    t.layout.dtype = t.layout.param_dtype = r->bf16 ? WF_BF16 : WF_F32;
    t.options.clip = 0.05f;
    t.steps = 3;
    return t;
}

static training on_row(const row *r)
{
    training t = mixture(r);

    t.layout.pp = 2;
    t.layout.tp = r->tp;
    t.layout.dp = r->dp;
    t.layout.ep = r->ep;
    t.layout.strategy = r->strategy;
    t.layout.dispatch = WF_PAR_DISPATCH_EXCHANGE;
    t.layout.moe_overlap_off = r->waits;
    t.layout.sequence_parallel = r->sequence_parallel;
    t.layout.accumulate = r->accumulate;
    t.layout.prefetch = r->prefetch;
    t.recompute = r->recompute;
    t.buffer = r->buffer;
    t.options.micro_batch = BATCH / MICROS / r->dp;
    t.pipeline = (wf_par_pipeline_options){.schedule = r->schedule,
                                           .stages_per_rank = 2,
                                           .recompute = r->stage_again,
                                           .resident = r->resident};
    return t;
}

static void one_digest(void)
{
    for (int i = 0; i < ROWS; i += UNDER_SANITIZER ? 2 : 1) {
        training one = mixture(&rows[i]), t = on_row(&rows[i]);

        one.options.micro_batch = t.options.micro_batch;
        if (!train(&one) || !train(&t))
            continue;
        CU_ASSERT(one.digest && t.digest == one.digest);
        for (int k = 0; k < t.steps; k++) {
            CU_ASSERT(same_bits(t.loss[k], one.loss[k]));
            CU_ASSERT_EQUAL(t.grad_norm[k], one.grad_norm[k]);
            CU_ASSERT_EQUAL(t.added[k], one.added[k]); /* by micro-batch */
        }
        CU_ASSERT_STRING_EQUAL(t.inexact, "");
        if (t.digest != one.digest)
            printf("\n    row %d\n", i);
    }
}

static void plan_is_run(void)
{
    for (int i = 0; i < ROWS; i++) {
        char name[64];

        snprintf(name, sizeof name, "row %d, %s", i, rows[i].schedule);
        compare(name, on_row(&rows[i]));
    }
}

typedef struct exchanged {
    int64_t calls, bytes, exposed;
} exchanged;

/* Adds up the exchanges of all ranks, in plan or run. */
static exchanged all_of(const reports *r, int ranks)
{
    exchanged sum = {0, 0, 0};

    for (int k = 0; k < ranks; k++)
        for (int i = 0; i < r->of[k].n_traffic; i++) {
            const wf_comm_counters *c = &r->of[k].traffic[i].counters;

            sum.calls += c->of[WF_ALL_TO_ALL].calls;
            sum.bytes += c->of[WF_ALL_TO_ALL].bytes;
            sum.exposed += c->of[WF_ALL_TO_ALL].exposed;
        }
    return sum;
}

/* Exposed are all of them where no actions overlap, and those
   outside of pairs, or of the longer one of a pair, where some do. */
static void exchanges_are_hidden(void)
{
    static reports found;
    exchanged of[2][2];

    for (int pairs = 0; pairs < 2; pairs++)
        for (int ran = 0; ran < 2; ran++) {
            training t = on_row(&rows[0]);

            t.pipeline.schedule = pairs ? "dualpipe-v" : "beside-none";
            t.steps = 2;
            t.watch = report_step;
            t.arg = &found;
            memset(&found, 0, sizeof found);
            if (!(ran ? train(&t) : plan(&t)))
                return;
            of[pairs][ran] = all_of(&found, (int)wf_par_ranks(&t.layout));
        }
    for (int ran = 0; ran < 2; ran++) {
        CU_ASSERT_EQUAL(of[0][ran].calls, of[1][ran].calls);
        CU_ASSERT_EQUAL(of[0][ran].bytes, of[1][ran].bytes);
        CU_ASSERT_EQUAL(of[0][ran].exposed, of[0][ran].bytes);
        CU_ASSERT(of[1][ran].exposed > 0);
        CU_ASSERT(of[1][ran].exposed < of[1][ran].bytes * 6 / 10);
    }
}

static bool plan_rank(training *t, wf_par_pipeline *pipeline, int rank)
{
    wf_launch_options launch = {
        .ranks = (int)wf_par_ranks(&t->layout), .transport = "fake", .rank = rank};
    wf_error error = {WF_OK, ""};

    t->layout.plan = true;
    t->options.pipeline = pipeline;
    return wf_launch(&launch, training_rank, t, &error) == WF_OK;
}

/* Two actions that alternate are one entry of a profile: a row of twice as many micro-batches,
   replayed, takes what its plan takes, to the byte. */
static void replay_is_plan(void)
{
    static reports planned;
    training few = on_row(&rows[0]), many = few;
    wf_error error = {WF_OK, ""};
    wf_par_pipeline *small, *large;

    many.options.global_batch *= 2;
    few.steps = many.steps = 2;
    few.watch = many.watch = report_step;
    few.arg = many.arg = &planned;
    small = pipeline_of(&few, &error);
    large = pipeline_of(&many, &error);
    CU_ASSERT_EQUAL_FATAL(error.code, WF_OK);
    for (int pp = 0; pp < 2; pp++) {
        int rank = 2 * pp + 1;
        wf_par_profile_memory memory;

        few.options.profile = wf_par_profile_new();
        CU_ASSERT(plan_rank(&few, small, rank) && plan_rank(&many, large, rank));
        CU_ASSERT_EQUAL(wf_par_profile_replay(few.options.profile, wf_par_pipeline_table(large),
                                              pp, NULL, &memory, &error),
                        WF_OK);
        CU_ASSERT_EQUAL(memory.unknown, 0);
        CU_ASSERT_EQUAL(memory.peak, planned.of[rank].memory.peak);
        wf_par_profile_free(few.options.profile);
    }
    wf_par_pipeline_free(small);
    wf_par_pipeline_free(large);
}

int main(void)
{
    static const wf_test tests[] = {
        {"one digest", one_digest},
        {"a plan is its run, to the byte", plan_is_run},
        {"exchanges are hidden", exchanges_are_hidden},
        {"a row replayed is its plan, to the byte", replay_is_plan},
        {NULL, NULL},
    };

    wf_pipe_register("beside-any", any_pairs);
    wf_pipe_register("beside-none", no_pairs);
    return wf_test_main("pipeline beside", tests);
}

/*
 * tests/parallel/test_steady.c - a training step in steady state asks the system for no memory:
 * neither for tensors nor for bookkeeping, on no rank of any layout.
 *
 * ctest: builds plain, links weft_allocations
 */
#include "tests/allocations.h"
#include "tests/parallel/parallel_harness.h"
#include <stdlib.h>

enum { WARM = 3, STEPS = 8, RANKS = 8 };

static _Thread_local int64_t asked; /* by this thread */

static bool count_request(allocation_kind kind, size_t bytes)
{
    (void)kind, (void)bytes;
    asked++;
    return false;
}

/* A rank's requests of memory until a step was done. */
typedef struct count {
    int64_t library, pool;
} count;

typedef struct counts {
    count built, warm, end;
    bool traced;
    wf_trace *trace;
} counts;

/* Every step is written down as well. */
static wf_status trace_all(counts *c, wf_rank *rank, wf_par *par, int step)
{
    if (step == 0) {
        c->trace = wf_trace_open(1 << 14, &rank->error);
        NEED(c->trace != NULL);
        wf_mesh_trace(wf_par_mesh(par), c->trace);
    }
    if (step == STEPS) {
        wf_mesh_trace(wf_par_mesh(par), NULL);
        NEED(wf_trace_count(c->trace) > 0 && wf_trace_lost(c->trace) == 0);
        wf_trace_close(c->trace);
    }
    return WF_OK;
}

static wf_status note(training *t, wf_rank *rank, wf_par *par, wf_nn_gpt *model, int step)
{
    counts *c = (counts *)t->arg + rank->index;
    wf_memory_report memory;
    count now;

    (void)model;
    if (c->traced)
        GOOD(trace_all(c, rank, par, step));
    wf_pool_report(wf_context_pool(wf_par_context(par)), &memory);
    now = (count){asked, memory.system_allocations};
    if (step == 0)
        c->built = now;
    if (step == WARM)
        c->warm = now;
    if (step == STEPS)
        c->end = now;
    return WF_OK;
}

static void check(training t, bool traced)
{
    counts of[RANKS] = {0};

    for (int r = 0; r < RANKS; r++)
        of[r].traced = traced;
    t.model.dropout = 0.1f;
    t.steps = STEPS;
    t.watch = note;
    t.arg = of;
    if (!train(&t))
        return;
    for (int r = 0; r < t.layout.pp * t.layout.tp * t.layout.dp; r++) {
        CU_ASSERT(of[r].built.library > 0 && of[r].built.pool > 0); /* it counts */
        CU_ASSERT_EQUAL(of[r].end.library, of[r].warm.library);
        CU_ASSERT_EQUAL(of[r].end.pool, of[r].warm.pool);
    }
}

static void steady_if(bool traced, model_kind kind, int tp, int dp, int64_t micro,
                      bool sequence_parallel)
{
    training t = new_training(kind, kind == LLAMA ? 4 : HEADS, 8);

    t.layout.pp = 1;
    t.layout.tp = tp;
    t.layout.dp = dp;
    t.layout.sequence_parallel = sequence_parallel;
    t.options.micro_batch = micro;
    check(t, traced);
}

static void steady(model_kind kind, int tp, int dp, int64_t micro, bool sequence_parallel)
{
    steady_if(false, kind, tp, dp, micro, sequence_parallel);
}

static void traced(void)
{
    steady_if(true, GPT2, 2, 2, 1, true);
    steady_if(true, LLAMA, 1, 4, 0, false);
}

static void one_rank(void)
{
    steady(GPT2, 1, 1, 0, false);
    steady(GPT2, 1, 1, 1, false);
    steady(LLAMA, 1, 1, 2, false);
}

static void tensor_parallel(void)
{
    steady(GPT2, 2, 1, 0, false);
    steady(GPT2, 4, 1, 2, true);
    steady(LLAMA, 8, 1, 0, true);
}

static void data_parallel(void)
{
    steady(GPT2, 1, 2, 0, false);
    steady(LLAMA, 1, 8, 0, false);
}

static void both(void)
{
    steady(GPT2, 2, 2, 0, false);
    steady(GPT2, 2, 2, 1, true);
    steady(LLAMA, 2, 4, 1, true);
}

static void over_stages(const char *schedule, model_kind kind, int pp, int tp, int dp,
                        const char *strategy, bool recompute)
{
    training t = new_training(kind, kind == LLAMA ? 4 : HEADS, 8);

    t.model.layers = 4;
    t.layout.pp = pp;
    t.layout.tp = tp;
    t.layout.dp = dp;
    t.layout.strategy = strategy;
    t.options.micro_batch = 1;
    t.pipeline.schedule = schedule;
    t.pipeline.recompute = recompute;
    check(t, false);
}

static void pipelines(void)
{
    over_stages("1f1b", GPT2, 1, 1, 1, NULL, false);
    over_stages("1f1b", GPT2, 2, 1, 1, NULL, true);
    over_stages("zb-h1", LLAMA, 4, 1, 1, NULL, false);
    over_stages("zb-v", GPT2, 2, 2, 2, "full_shard", false);
    over_stages("interleaved", LLAMA, 2, 1, 2, "shard_grad_op", true);
    over_stages("dualpipe-v", GPT2, 2, 1, 2, "zero1", false);
}

int main(void)
{
    static const wf_test tests[] = {{"one rank", one_rank},
                                    {"tensor parallel", tensor_parallel},
                                    {"data parallel", data_parallel},
                                    {"both", both},
                                    {"traced", traced},
                                    {"pipelines", pipelines},
                                    {NULL, NULL}};
    static const allocation_watch watch = {.refuses = count_request};

    allocations_watch(&watch);
    return wf_test_main("steady", tests);
}

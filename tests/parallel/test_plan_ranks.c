/*
 * tests/parallel/test_plan_ranks.c - ranks of a pipeline that are alike are planned once, and
 * what is reported of the others is what their own plans report, to the byte.
 *
 * ctest: builds plain
 */
#include "parallel/plan/plan_internal.h"
#include "tests/parallel/plan_harness.h"

/* 18 steps, embedding and norm among them, over 8 stages. */
#define EVEN "3,2,2,2,2,2,2,3"

enum { LAYERS = 16, MANY = 9, ODD = 3 };

/* Block 3 alone is computed again in backward. */
static wf_status again_in_one(wf_par *par, wf_nn_module *model)
{
    ((wf_nn_gpt *)model)->block[ODD]->recompute = true;
    return wf_par_plan(par, model, wf_par_gpt_plan);
}

/* Blocks 3 and 9, of other ranks than the first and the last, have a parameter in common. */
static void shared(wf_nn_gpt *model)
{
    wf_nn_block *from = (wf_nn_block *)model->block[ODD],
                *to = (wf_nn_block *)model->block[MANY];

    wf_nn_parameter_free(to->norm1->gain);
    to->norm1->gain = wf_nn_tie(from->norm1->gain);
}

/* One line per configuration: what differs from a gpt2 of 16 blocks over 8 ranks. */
typedef struct row {
    const char *schedule, *split, *strategy, *recompute, *frozen;
    int64_t planned; /* plans of ranks */
    int pp, per_rank, tp, dp, micros, steps, resident;
    bool llama, sequence_parallel, bf16, reduced, muon, stage_again, odd, shared;
    float dropout;
} row;

static const row rows[] = {
    {"gpipe", .planned = 3},
    {"1f1b", .planned = 3},
    {"1f1b", .planned = 3, .micros = 1},
    {"1f1b", .planned = 3, .micros = 1, .steps = 1},
    {"1f1b", .planned = 3, .llama = true, .dropout = .1f, .bf16 = true},
    {"1f1b", .planned = 3, .dp = 2, .strategy = "full_shard", .recompute = "block"},
    {"1f1b", .planned = 3, .tp = 2, .dp = 2, .strategy = "zero1", .sequence_parallel = true},
    {"1f1b", .planned = 3, .dp = 2, .strategy = "no_shard", .reduced = true, .muon = true},
    {"1f1b", .planned = 3, .stage_again = true},
    {"zb-h1", .planned = 5, .llama = true},
    {"interleaved", EVEN, .planned = 4, .pp = 4, .dp = 2, .strategy = "full_shard",
     .resident = 1},
    {"zb-v", EVEN, .planned = 4, .pp = 4},
    {"gpipe", "3,2,2,2,2,2,2,2,1,0", .planned = 4, .pp = 10},
    {"gpipe", EVEN, .planned = 4, .frozen = "block.3"},
    {"gpipe", EVEN, .planned = 3, .frozen = "block.*.mlp"},
    {"gpipe", EVEN, .planned = 4, .odd = true},
    {"gpipe", EVEN, .planned = 5, .shared = true},
    {"looped-bfs", EVEN, .planned = 3, .pp = 4, .dp = 2, .strategy = "no_shard"},
};

enum { ROWS = sizeof rows / sizeof *rows };

static training training_of(const row *r)
{
    int dp = r->dp ? r->dp : 1, micros = r->micros ? r->micros : 8;
    training t = new_training(r->llama ? LLAMA : GPT2, HEADS, (int64_t)micros * dp);

    t.model.layers = LAYERS;
    t.model.dropout = r->dropout;
    t.layout.pp = r->pp ? r->pp : 8;
    t.layout.tp = r->tp ? r->tp : 1;
    t.layout.dp = dp;
    t.layout.strategy = r->strategy;
    t.layout.sequence_parallel = r->sequence_parallel;
    t.layout.dtype = t.layout.param_dtype = r->bf16 ? WF_BF16 : WF_F32;
    t.layout.accumulate = r->reduced ? WF_PAR_REDUCED : WF_PAR_LOCAL;
    t.recompute = r->recompute;
    t.frozen = r->frozen;
    t.change = r->shared ? shared : NULL;
    t.parallelize = r->odd ? again_in_one : NULL;
    t.options.micro_batch = 1;
    if (r->muon)
        t.options.optimizer.method = WF_NN_MUON;
    t.pipeline = (wf_par_pipeline_options){.schedule = r->schedule,
                                           .split = r->split,
                                           .stages_per_rank = r->per_rank,
                                           .recompute = r->stage_again,
                                           .resident = r->resident,
                                           .input = "tokens",
                                           .head_loss = wf_par_gpt_head_loss};
    t.steps = r->steps ? r->steps : 2;
    return t;
}

static wf_par_job job_of(training *t)
{
    return (wf_par_job){.mesh = t->layout,
                        .model = prepared,
                        .arg = t,
                        .train = t->options,
                        .pipeline = &t->pipeline,
                        .steps = t->steps};
}

static bool reported_alike(int rank, const wf_par_report *reported, const wf_par_report *own)
{
    bool alike = same("peak", rank, (double)reported->memory.peak, (double)own->memory.peak);

    for (int k = 0; k < WF_MEMORY_KINDS; k++)
        alike &= same(wf_memory_kind_name((wf_memory_kind)k), rank,
                      (double)reported->memory.at_peak[k], (double)own->memory.at_peak[k]);
    alike &= same("rank", rank, reported->rank, own->rank);
    alike &= same("parameters", rank, (double)reported->parameters, (double)own->parameters);
    alike &= same("share", rank, (double)reported->share, (double)own->share);
    alike &= same("flops", rank, reported->flops, own->flops);
    alike &= same("model flops", rank, reported->model_flops, own->model_flops);
    if (strcmp(reported->memory.phase, own->memory.phase) == 0 &&
        strcmp(reported->memory.module, own->memory.module) == 0 && *own->memory.module)
        return alike;
    printf("\n    rank %d: reported in %s %s, planned in %s %s", rank, reported->memory.phase,
           reported->memory.module, own->memory.phase, own->memory.module);
    return false;
}

/* The fullest rank is the first of those that take most, and is planned whole. */
static bool fullest_is_right(const wf_par_job *job, const wf_plan_ranks_of *of, size_t most)
{
    wf_error error = {WF_OK, ""};
    const wf_par_report *fullest = &of->run[of->fullest].report;
    bool right =
        fullest->memory.peak == most && of->is_planned[of->fullest] && fullest->n_traffic > 0;
    wf_plan_peak peak;

    for (int i = 0; i < of->fullest; i++)
        right &= of->run[i].report.memory.peak < most;
    return wf_plan_peaks(job, 0, &peak, &error) == WF_OK && peak.bytes == most && right;
}

static void check(const row *r)
{
    training t = training_of(r);
    const wf_par_job job = job_of(&t);
    int each = (int)wf_par_ranks(&t.layout) / t.layout.pp;
    wf_error error = {WF_OK, ""};
    wf_plan_ranks_of of;
    size_t most = 0;
    bool good = wf_plan_ranks_make(&job, -1, 0, true, &of, &error) == WF_OK;

    for (int pp = 0; good && pp < t.layout.pp; pp++) {
        wf_plan own;

        good = wf_plan_step(&job, (pp + 1) * each - 1, NULL, &own, &error) == WF_OK &&
               reported_alike(pp, &of.run[pp].report, &own.report);
        most = own.report.memory.peak > most ? own.report.memory.peak : most;
    }
    good = good && of.count == t.layout.pp && fullest_is_right(&job, &of, most);
    CU_ASSERT(good);
    CU_ASSERT_EQUAL(of.planned, r->planned);
    if (!good || of.planned != r->planned)
        printf("\n    row %d, %s: %" PRId64 " of %d ranks planned; %s", (int)(r - rows),
               r->schedule, of.planned, of.count, error.text);
    wf_plan_ranks_close(&of);
}

static void planned_once(void)
{
    for (int i = 0; i < ROWS; i++)
        check(&rows[i]);
}

/* Refusals name no rank, and a limit ends the plan. */
static void refused(void)
{
    training t = training_of(&rows[0]);
    wf_par_job job = job_of(&t);
    wf_error error = {WF_OK, ""};
    wf_plan_ranks_of of;
    wf_plan_peak peak;

    CU_ASSERT_EQUAL(wf_plan_ranks_make(&job, 0, 4096, true, &of, &error), WF_ENOMEM);
    CU_ASSERT(strstr(error.text, "rank ") != error.text);
    wf_plan_ranks_close(&of);
    t.pipeline.stages_per_rank = MANY;
    t.pipeline.schedule = "interleaved";
    CU_ASSERT_EQUAL(wf_plan_ranks_make(&job, 0, 0, true, &of, &error), WF_EINVAL);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "72 stages are more than"));
    CU_ASSERT(strstr(error.text, "rank ") != error.text);
    wf_plan_ranks_close(&of);
    CU_ASSERT_EQUAL(wf_plan_peaks(&job, 0, &peak, &error), WF_EINVAL);
}

/* Finds a rank above a limit that is not planned, as the one that it is like is below it. */
static void above_a_limit(void)
{
    training t = training_of(&(row){"zb-h2", "3,2,2,2,2,2,2,2,2,1", .pp = 10, .micros = 20});
    wf_error error = {WF_OK, ""};
    wf_plan_ranks_of of;
    wf_plan_peak peak;
    wf_par_job job;
    size_t most;

    t.model.layers = LAYERS + 2;
    job = job_of(&t);
    CU_ASSERT_EQUAL_FATAL(wf_plan_ranks_make(&job, -1, 0, false, &of, &error), WF_OK);
    CU_ASSERT(!of.is_planned[of.fullest]);
    most = of.run[of.fullest].report.memory.peak;
    wf_plan_ranks_close(&of);
    CU_ASSERT_EQUAL(wf_plan_peaks(&job, most, &peak, &error), WF_OK);
    CU_ASSERT_EQUAL(wf_plan_peaks(&job, most - 1, &peak, &error), WF_ENOMEM);
}

/* A reason against exactness is that of all ranks: the first stage sums nothing over tokens. */
static void inexact(void)
{
    training t = training_of(
        &(row){"1f1b", "1,3,2,2,2,2,3,3", .llama = true, .frozen = "embed", .micros = 1});
    wf_error error = {WF_OK, ""};
    wf_plan_ranks_of of;
    wf_par_job job;

    t.layout.cp = 2;
    job = job_of(&t);
    CU_ASSERT_EQUAL_FATAL(wf_plan_ranks_make(&job, -1, 0, false, &of, &error), WF_OK);
    for (int i = 0; i < of.count; i++)
        CU_ASSERT_PTR_NOT_NULL(strstr(of.run[i].inexact, "which cp splits"));
    wf_plan_ranks_close(&of);
}

int main(void)
{
    static const wf_test tests[] = {
        {"ranks that are alike are planned once, and told to the byte", planned_once},
        {"what is refused is refused of every rank", refused},
        {"a limit", above_a_limit},
        {"a reason against exactness", inexact},
        {NULL, NULL},
    };

    return wf_test_main("plans of a pipeline's ranks", tests);
}

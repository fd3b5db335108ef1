/*
 * tests/cuda/test_cuda_ahead_ranks.c - steps of several ranks that are launched before the one
 * before them is finished, and judged by each rank's device by the same numbers: rows and
 * digest of one rank op by op, errors and skipped steps of the same ranks op by op; no wait
 * after which a device is idle; hosts that are late; what is brought to a judgment, word by
 * word.
 *
 * WEFT_TEST_ALL in the environment tries every row; without it every third one is.
 *
 * ctest: builds plain
 */
#include "core/host_data.h"
#include "core/judgment.h"
#include "kernels/devices.h"
#include "kernels/now.h"
#include "tests/cuda/ahead_run.h"
#include "tests/cuda/gpu_main.h"
#include <math.h>

enum { TP_DP = 0, DP = 1, TP = 2 };

static const row rows[] = {
    {"full_shard", .tp = 2, .dp = 2, .micro = 1, .prefetch = 1},
    {"full_shard", .tp = 1, .dp = 2, .micro = 1},
    {"no_shard", .tp = 2, .dp = 1, .micro = 4},
    {"zero1", .tp = 1, .dp = 2, .micro = 2},
    {"hybrid_shard_zero2", .tp = 1, .dp = 4, .group = 2, .micro = 1},
    {"shard_grad_op", .tp = 2, .dp = 2, .micro = 1, .sequence_parallel = true},
};

/* A run on a row, a step of it ahead, or as it is without graphs. */
static ahead_run on_ranks(const row *r, bool ahead)
{
    ahead_run run = ahead_run_of(GPT2, ahead);

    run.t = on_row(run.t, r);
    return run;
}

/* Runs these ranks by graphs: rows and digest of one rank op by op, and no wait for all that a
   device was given. */
static void like_one(ahead_run run)
{
    static ahead_run one;

    if (!one.t.steps) {
        one = ahead_run_of(GPT2, false);
        ahead_go(&one);
    }
    ahead_go(&run);
    ahead_check(&one, &run, run.t.layout.strategy);
    CU_ASSERT_EQUAL(run.error.code, WF_OK);
    CU_ASSERT(run.row[4].loss > 0);
    CU_ASSERT_EQUAL(run.syncs, 0);
    printf("\n    %s tp %d dp %d: %d waits for all, and %d for a judgment, in 3 steps",
           run.t.layout.strategy, run.t.layout.tp, run.t.layout.dp, (int)run.syncs,
           (int)run.waits);
}

/* The last rank's host is late: others launch as far ahead as they may, and no more. */
static void nothing_waits(void)
{
    setenv("WEFT_EMULATOR_DEVICES", "4", 1);
    for (int i = 0; i < (int)(sizeof rows / sizeof *rows);
         i += getenv("WEFT_TEST_ALL") ? 1 : 3) {
        ahead_run run = on_ranks(&rows[i], true);

        run.late = i == TP_DP ? 20 : 0;
        like_one(run);
    }
    unsetenv("WEFT_EMULATOR_DEVICES");
    printf("\n");
}

static void over_nccl(void)
{
    ahead_run run = on_ranks(&rows[DP], true);
    wf_error error = {WF_OK, ""};

    run.transport = "nccl";
    setenv("WEFT_EMULATOR_DEVICES", "2", 1);
    if (wf_cuda_count(false, &error) != 2)
        printf("\n    not looked at: this machine has no two emulated GPUs\n");
    else
        like_one(run);
    unsetenv("WEFT_EMULATOR_DEVICES");
}

/* Runs these ranks both ways. */
static ahead_run both(const row *r, void (*spoil)(ahead_run *), const char *what)
{
    ahead_run at_once = on_ranks(r, false), ahead = on_ranks(r, true);

    spoil(&at_once);
    spoil(&ahead);
    ahead_same(&at_once, &ahead, what);
    return ahead;
}

/* One rank's sequences are spoiled: all skip the step, and the one behind it is made again. */
static void skip_some(ahead_run *r)
{
    r->bad = 3;
    r->sequence = 3;
    r->t.options.skip = (wf_par_skip){.nonfinite = true, .loss_above = 5.5652f};
}

static void skipped_steps(void)
{
    const ahead_run run = both(&rows[DP], skip_some, "skipped steps");

    CU_ASSERT_EQUAL(run.error.code, WF_OK);
    CU_ASSERT(!run.row[1].skipped && run.row[2].skipped && run.row[4].skipped);
}

/* The step behind it has run, too. */
static void spoil_one(ahead_run *r)
{
    r->bad = 4;
    r->sequence = 3;
}

static void a_bad_step(void)
{
    const ahead_run run = both(&rows[DP], spoil_one, "a step that is not finite");

    CU_ASSERT_EQUAL(run.error.code, WF_ENONFINITE);
    CU_ASSERT(run.row[2].loss > 0);
}

/* Data of the last rank end: the step before has its row, and the error is the rank's. */
static void end_one(ahead_run *r)
{
    r->missing = 5;
    r->sequence = 3;
}

/* The same behind a step that is skipped. */
static void end_after_skip(ahead_run *r)
{
    end_one(r);
    r->bad = 4;
    r->t.options.skip.nonfinite = true;
}

static void data_end(void)
{
    for (int skip = 0; skip < (getenv("WEFT_TEST_ALL") ? 2 : 1); skip++) {
        const ahead_run run = both(&rows[DP], skip ? end_after_skip : end_one, "data that end");

        CU_ASSERT_EQUAL(run.error.code, WF_EDATA);
        CU_ASSERT(run.row[3].skipped == skip && run.row[4].loss == 0);
        CU_ASSERT(skip || run.row[3].loss > 0);
        CU_ASSERT_PTR_NOT_NULL(strstr(run.error.text, "there are no data of step 5"));
    }
}

/* Over NCCL, where a GPU may have work that waits for another's: a rank that has failed says so
   before it gives back what its GPU is waited for. */
static void end_over_nccl(ahead_run *r)
{
    end_one(r);
    r->transport = "nccl";
}

static void data_end_over_nccl(void)
{
    wf_error error = {WF_OK, ""};

    setenv("WEFT_EMULATOR_DEVICES", "2", 1);
    if (wf_cuda_count(false, &error) == 2)
        CU_ASSERT_EQUAL(both(&rows[DP], end_over_nccl, "data that end, over NCCL").error.code,
                        WF_EDATA);
    unsetenv("WEFT_EMULATOR_DEVICES");
}

/* Ranks of tp that read others' sequences. */
static void differ(ahead_run *r)
{
    r->differs = 4;
}

static void other_sequences(void)
{
    const ahead_run run = both(&rows[TP], differ, "other sequences");

    CU_ASSERT_EQUAL(run.error.code, WF_EMISMATCH);
    CU_ASSERT(run.row[3].loss > 0 && run.row[4].loss == 0);
}

/* The same in an evaluation, which the next step tells. */
static void differ_before(ahead_run *r)
{
    r->evaluates = true;
}

static void another_evaluation(void)
{
    const ahead_run run = both(&rows[TP], differ_before, "another evaluation");

    CU_ASSERT_EQUAL(run.error.code, WF_EMISMATCH);
    CU_ASSERT_PTR_NOT_NULL(strstr(run.error.text, "in an evaluation"));
    CU_ASSERT(run.row[2].loss > 0 && run.row[3].loss == 0);
}

/* Captures graphs of their own for each number of micro-steps. */
static void grow(ahead_run *r)
{
    r->t.options.rampup = (wf_par_rampup){.start = 2, .increment = 2, .sequences = 6};
}

static void batches_that_grow(void)
{
    if (getenv("WEFT_TEST_ALL"))
        CU_ASSERT_EQUAL(both(&rows[DP], grow, "batches that grow").error.code, WF_OK);
}

/* ---- a judgment by itself ---- */

enum { PARTS = 3, MINE = 1, NUMBERS = 3 };

/* A judgment of what ranks bring. */
typedef struct judging {
    wf_context *ctx;
    wf_judgment *judgment;
    wf_graph *graph;
    wf_tensor *total;
} judging;

static void bring(const judging *j, int rank, const wf_judged_part *brought)
{
    wf_device *device = wf_context_device(j->ctx);

    device->memory->write(device, wf_judgment_parts(j->judgment) + rank, brought,
                          sizeof *brought);
}

static wf_judged judge(const judging *j, wf_judged_part brought[PARTS])
{
    const wf_now now = {.step = 7,
                        .alike = brought[MINE].alike,
                        .held = brought[MINE].held,
                        .inexact = brought[MINE].inexact};
    wf_judged found;

    for (int i = 0; i < PARTS; i++)
        if (i != MINE)
            bring(j, i, &brought[i]);
    wf_judgment_run(j->judgment, j->graph, &now, sizeof now, 0);
    found = wf_judgment_wait(j->judgment, 0);
    wf_judgment_clear(j->judgment);
    return found;
}

/* Parts of step 7 with numbers that only an exact sum has: whichever comes first, limbs carry,
   and what is small is not lost. Those of this rank are its tensor's. */
static void make_parts(wf_judged_part brought[PARTS], const float *mine, wf_exact_sum *whole)
{
    static const double x[PARTS] = {0x1p120, 0, 0x1.fffffffffffffp-70};

    memset(brought, 0, PARTS * sizeof *brought);
    memset(whole, 0, sizeof *whole);
    for (int i = 0; i < PARTS; i++) {
        brought[i].step = 7;
        brought[i].inexact = INT64_MAX;
        for (int k = 0; i != MINE && k < 3; k++) {
            wf_exact_add(&brought[i].squares, x[i]);
            wf_exact_add(whole, x[i]);
        }
    }
    for (int k = 0; k < NUMBERS; k++)
        wf_exact_add(whole, (double)mine[k] * (double)mine[k]);
}

/* The squares of this rank fill a limb more than once, and are brought carried. */
static void check_carried(const judging *j)
{
    wf_device *device = wf_context_device(j->ctx);
    wf_error error = {WF_OK, ""};
    wf_judged_part brought;
    bool carried = true;

    device->memory->read(device, &brought, wf_judgment_parts(j->judgment) + MINE,
                         sizeof brought, &error);
    for (int i = 0; i < WF_EXACT_LIMBS; i++)
        carried = carried && brought.squares.limb[i] >> 32 == 0;
    CU_ASSERT(error.code == WF_OK && carried);
}

static wf_tensor *vector(wf_context *ctx, int64_t n, const float *from)
{
    wf_dim dim = wf_dim_batch(n);
    wf_tensor *t = wf_tensor_new(ctx, WF_F32, 1, &dim, NULL, WF_MEMORY_ACTIVATION);
    wf_host_data view;
    float *to = wf_data_write(t, false, &view);

    for (int64_t i = 0; to && i < n; i++)
        to[i] = from[i];
    wf_data_close(&view);
    return t;
}

/* A loss of 1. */
static judging open_judging(const float *mine, float loss_above)
{
    judging j = {.ctx = gpu_context()};
    wf_squares squares;
    wf_tensor *x = vector(j.ctx, NUMBERS, mine);

    j.total = vector(j.ctx, 1, (const float[]){2});
    j.judgment = wf_judgment_open(j.ctx, PARTS);
    wf_graph_begin(j.ctx);
    wf_squares_begin(&squares, j.ctx);
    wf_squares_add(&squares, 1, &x);
    wf_judgment_bring(j.judgment, MINE, &squares);
    wf_judgment_capture(j.judgment, j.total, 0.5f, 1, loss_above);
    j.graph = wf_graph_end(j.ctx);
    CU_ASSERT_PTR_NOT_NULL_FATAL(j.graph);
    return j;
}

static void close_judging(judging *j)
{
    wf_graph_free(j->graph);
    wf_judgment_close(j->judgment);
    wf_context_close(j->ctx);
}

static void words_of_parts(void)
{
    static const float mine[NUMBERS] = {127.5f, 127.5f, 0x1p-40f};
    judging j = open_judging(mine, 0);
    wf_judged_part brought[PARTS];
    wf_exact_sum whole;
    wf_judged found;

    make_parts(brought, mine, &whole);
    found = judge(&j, brought);
    CU_ASSERT(!found.held && found.norm == sqrt(wf_exact_value(&whole)) && found.loss == 1);
    CU_ASSERT(found.inexact == INT64_MAX && found.scale == wf_clip_scale(found.norm, 1));
    check_carried(&j);
    brought[0].alike = 5, brought[MINE].alike = (uint64_t)-7, brought[2].alike = 2;
    brought[2].inexact = 2, brought[MINE].inexact = 1;
    found = judge(&j, brought);
    CU_ASSERT(!found.held && found.inexact == 1);
    brought[2].alike = 3;
    CU_ASSERT(judge(&j, brought).held == 1);
    brought[2].alike = 2;
    brought[2].step = 6;
    CU_ASSERT(judge(&j, brought).held == 1);
    brought[2].step = 7;
    for (int i = 0; i < PARTS; i++) {
        brought[i].held = 1;
        CU_ASSERT(judge(&j, brought).held == 1);
        brought[i].held = 0;
    }
    CU_ASSERT(!judge(&j, brought).held);
    brought[0].squares.not_finite = WF_EXACT_NAN;
    CU_ASSERT(judge(&j, brought).held == 1);
    close_judging(&j);
}

/* A step is skipped by a loss that is above the limit, not by one that is at it. */
static void losses_at_the_limit(void)
{
    static const float mine[NUMBERS] = {1, 2, 3}, limit[] = {1, 0x1.fffffep-1f};

    for (int i = 0; i < 2; i++) {
        judging j = open_judging(mine, limit[i]);
        wf_judged_part brought[PARTS];
        wf_exact_sum whole;

        make_parts(brought, mine, &whole);
        CU_ASSERT_EQUAL(judge(&j, brought).held, i);
        close_judging(&j);
    }
}

int main(void)
{
    static const wf_test tests[] = {{"no step is waited for", nothing_waits},
                                    {"over NCCL", over_nccl},
                                    {"skipped steps", skipped_steps},
                                    {"a bad step", a_bad_step},
                                    {"data that end", data_end},
                                    {"data that end, over NCCL", data_end_over_nccl},
                                    {"other sequences", other_sequences},
                                    {"another evaluation", another_evaluation},
                                    {"batches that grow", batches_that_grow},
                                    {"what is brought, word by word", words_of_parts},
                                    {"losses at the limit", losses_at_the_limit},
                                    {NULL, NULL}};

    return gpu_test_main("cuda_ahead_ranks", tests);
}

/*
 * tests/parallel/test_recovery_exchange.c - what processes have of a run that ended goes to
 * those that need it (parallel/recovery/exchange.c): threads act as processes, each with a
 * snapshot of its own, in which shards of an earlier step lie too.
 *
 * ctest: wraps wf_launcher_detected
 */
#include "mesh/transport/launcher.h"
#include "parallel/recovery/snapshot_internal.h"
#include "tests/parallel/parallel_harness.h"
#include <stdlib.h>

enum { RANKS = 4, LEFT = 2, STEPS = 4 };

wf_launcher __real_wf_launcher_detected(void);
wf_launcher __wrap_wf_launcher_detected(void);

static _Thread_local int process = -1; /* the one that a rank's thread stands for; -1: none */

wf_launcher __wrap_wf_launcher_detected(void)
{
    wf_launcher launcher = __real_wf_launcher_detected();

    if (process >= 0)
        launcher.process = process;
    return launcher;
}

typedef struct run {
    training t;
    wf_par_snapshot *of[RANKS];
} run;

static wf_status leave(part *p, wf_par_trainer *trainer)
{
    const run *r = p->arg;
    const wf_par_data data = {.read = count_up};
    wf_par_step result;
    wf_error error = {WF_OK, ""};

    GOOD(wf_par_snapshot_serves(trainer));
    for (int64_t step = 1; step <= LEFT; step++)
        GOOD(wf_par_train_step(trainer, step, &data, &result));
    CU_ASSERT_EQUAL(wf_par_snapshot_put(r->of[p->rank->index], trainer, &error), WF_OK);
    return WF_OK;
}

/* Each process has what another one needs. */
static wf_status take_up(part *p, wf_par_trainer *trainer)
{
    run *r = p->arg;
    const wf_par_data data = {.read = count_up};
    wf_par_step result;
    wf_error missing;
    int64_t step = 0;

    process = p->rank->index;
    CU_ASSERT_EQUAL(
        wf_par_snapshot_restore(r->of[RANKS - 1 - process], trainer, &step, &missing), WF_OK);
    process = -1;
    GOOD(wf_context_status(p->ctx));
    CU_ASSERT_EQUAL(step, LEFT);
    for (step++; step <= STEPS; step++)
        GOOD(wf_par_train_step(trainer, step, &data, &result));
    keep_digest(&r->t, p, trainer);
    return WF_OK;
}

static wf_status leaving_rank(wf_rank *rank, void *arg)
{
    return on_trainer(rank, &((run *)arg)->t, leave, arg);
}

static wf_status taking_rank(wf_rank *rank, void *arg)
{
    return on_trainer(rank, &((run *)arg)->t, take_up, arg);
}

/* A shard of the step before, with other numbers, or of the same step, with the same. */
static wf_kept copy_of(const wf_kept *last, bool earlier_step)
{
    wf_kept earlier = *last;
    size_t n = (size_t)wf_part_count(&last->part);

    earlier.path = strdup(last->path);
    earlier.step -= earlier_step;
    for (int kind = 0; kind < WF_PAR_BUDDY_KINDS; kind++)
        if (last->data[kind]) {
            earlier.data[kind] = malloc(n * sizeof(float));
            for (size_t j = 0; j < n; j++)
                earlier.data[kind][j] = earlier_step ? 7 : last->data[kind][j];
        }
    return earlier;
}

/* Adds earlier shards of all processes, and the last ones of a neighbour, to what each has,
   some in front of those of the last step. */
static void add_earlier(const run *r)
{
    int64_t count[RANKS];

    for (int p = 0; p < RANKS; p++)
        count[p] = r->of[p]->count;
    for (int p = 0; p < RANKS; p++)
        for (int to = 0; to < RANKS; to++)
            for (int64_t i = 0; i < count[p]; i++) {
                wf_kept earlier = copy_of(&r->of[p]->kept[i], true);

                CU_ASSERT_FATAL(wf_par_snapshot_append(r->of[to], &earlier));
            }
    for (int p = 0; p < RANKS; p++)
        for (int64_t i = 0; i < count[p]; i++) {
            wf_kept same = copy_of(&r->of[p]->kept[i], false);

            CU_ASSERT_FATAL(wf_par_snapshot_append(r->of[(p + 1) % RANKS], &same));
        }
    for (int p = 0; p < RANKS; p++)
        for (int64_t i = 0; i < count[p]; i += 2) {
            wf_par_snapshot *k = r->of[p];
            wf_kept *after = &k->kept[k->count - 1 - i], moved = *after;

            *after = k->kept[i];
            k->kept[i] = moved;
        }
}

static void the_last_step_is_exchanged(void)
{
    const wf_launch_options launch = {.ranks = RANKS};
    run r = {.t = new_training(GPT2, HEADS, 8)};
    wf_error error = {WF_OK, ""};
    uint64_t expected;

    r.t.layout = (wf_par_options){.tp = 1, .dp = RANKS, .strategy = "full_shard", .seed = 7};
    r.t.steps = STEPS;
    CU_ASSERT(train(&r.t));
    expected = r.t.digest;
    r.t.digest = 0;
    for (int i = 0; i < RANKS; i++)
        r.of[i] = wf_par_snapshot_open(&error);
    CU_ASSERT_EQUAL(wf_launch(&launch, leaving_rank, &r, &error), WF_OK);
    for (int i = 0; i < RANKS; i++)
        CU_ASSERT(r.of[i]->count > 0);
    add_earlier(&r);
    for (int i = 0; i < RANKS; i++)
        CU_ASSERT_EQUAL(wf_par_snapshot_seal(r.of[i]), LEFT);
    CU_ASSERT_EQUAL(wf_launch(&launch, taking_rank, &r, &error), WF_OK);
    CU_ASSERT_EQUAL(r.t.digest, expected);
    if (error.code != WF_OK)
        printf("\n    %s\n", error.text);
    for (int i = 0; i < RANKS; i++)
        wf_par_snapshot_close(r.of[i]);
}

int main(void)
{
    static const wf_test tests[] = {
        {"shards of the last step are exchanged", the_last_step_is_exchanged}, {NULL, NULL}};

    return wf_test_main("recovery exchange", tests);
}

/* tests/parallel/test_memory_timeline.c - the memory of a step: its peak is that of the plan in
   each kind, holders add up to it, and the picture of one rank is the plan's. */
#include "parallel/plan/plan.h"
#include "parallel/report/memory_timeline_internal.h"
#include "tests/harness.h"
#include "tests/parallel/parallel_harness.h"
#include <stdlib.h>
#include <string.h>

enum { STEPS = 2, RANKS = 4 };

/* The memory of the second step on each rank. */
typedef struct memory {
    training t;
    const char *picture; /* a file for rank 0's; NULL: none */
    size_t peak[RANKS], by_kind[RANKS][WF_MEMORY_KINDS], reported[RANKS];
    int64_t held[RANKS]; /* by blocks that were taken in the steps */
} memory;

static wf_status watch_steps(part *p, wf_par_trainer *trainer)
{
    memory *m = p->arg;
    const wf_par_data data = {.read = count_up};
    int rank = p->rank->index;
    wf_memory_timeline *t = wf_memory_timeline_open(wf_context_pool(p->ctx), &p->rank->error);
    wf_memory_holder *holder;
    wf_memory_report report;
    size_t n, bytes;

    if (!t)
        return p->rank->error.code;
    for (int step = 1; step <= STEPS; step++) {
        wf_par_step result;

        wf_pool_reset_peak(wf_context_pool(p->ctx));
        wf_memory_timeline_begin(t);
        wf_par_train_step(trainer, step, &data, &result);
        wf_memory_timeline_end(t);
    }
    wf_pool_report(wf_context_pool(p->ctx), &report);
    m->reported[rank] = report.peak;
    m->peak[rank] = wf_memory_timeline_peak(t, m->by_kind[rank]);
    holder =
        wf_memory_timeline_holders(t, wf_memory_timeline_top(t, m->by_kind[rank], &bytes), &n);
    for (size_t i = 0; holder && i < n; i++)
        m->held[rank] += holder[i].bytes;
    free(holder);
    if (m->picture && rank == 0)
        wf_memory_timeline_write(t, "a step", m->picture, &p->rank->error);
    wf_memory_timeline_close(t);
    return wf_context_status(p->ctx);
}

static wf_status memory_rank(wf_rank *rank, void *arg)
{
    memory *m = arg;

    return on_trainer(rank, &m->t, watch_steps, m);
}

static void run(memory *m, bool plan)
{
    wf_launch_options launch = {.ranks = (int)wf_par_ranks(&m->t.layout)};
    wf_error error = {WF_OK, ""};

    m->t.layout.plan = plan;
    for (int r = 0; r < (plan ? launch.ranks : 1); r++) {
        launch.transport = plan ? "fake" : NULL;
        launch.rank = r;
        wf_launch(&launch, memory_rank, m, &error);
        CU_ASSERT_STRING_EQUAL(error.text, "");
    }
}

static void a_plan_has_the_peak_of_the_run(void)
{
    memory ran = {.t = new_training(LLAMA, HEADS, 8)}, planned;

    ran.t.layout = (wf_par_options){.tp = 2, .dp = 2, .seed = 7};
    planned = ran;
    run(&ran, false);
    run(&planned, true);
    for (int r = 0; r < RANKS; r++) {
        CU_ASSERT(ran.peak[r] > 0 && ran.peak[r] == ran.reported[r]);
        CU_ASSERT(ran.held[r] > 0 && (size_t)ran.held[r] < ran.peak[r]);
        CU_ASSERT_EQUAL(ran.peak[r], planned.peak[r]);
        CU_ASSERT_EQUAL(memcmp(ran.by_kind[r], planned.by_kind[r], sizeof ran.by_kind[r]), 0);
    }
}

static char *read_text(const char *path)
{
    enum { MOST = 1 << 20 };
    FILE *file = fopen(path, "r");
    char *text = calloc(1, MOST);

    if (file && text)
        text[fread(text, 1, MOST - 1, file)] = 0;
    if (file)
        fclose(file);
    return text;
}

static void pictures_are_alike(void)
{
    char folder[WF_TEST_FOLDER], a[WF_TEST_FOLDER + 16], b[sizeof a], *run_text, *plan_text;
    memory ran = {.t = new_training(GPT2, HEADS, 4), .picture = a}, planned = {.picture = b};

    wf_test_new_folder(folder);
    snprintf(a, sizeof a, "%s/run.svg", folder);
    snprintf(b, sizeof b, "%s/plan.svg", folder);
    planned.t = ran.t;
    run(&ran, false);
    run(&planned, true);
    run_text = read_text(a);
    plan_text = read_text(b);
    CU_ASSERT_FATAL(run_text && plan_text);
    CU_ASSERT_STRING_EQUAL(run_text, plan_text);
    CU_ASSERT(strstr(run_text, "peak: ") && strstr(run_text, "optimizer state") &&
              strstr(run_text, "in block.*.") && strstr(run_text, "</svg>"));
    free(run_text);
    free(plan_text);
    remove(a);
    remove(b);
    remove(folder);
}

int main(void)
{
    static const wf_test tests[] = {
        {"a plan has the peak of the run", a_plan_has_the_peak_of_the_run},
        {"pictures are alike", pictures_are_alike},
        {NULL, NULL}};

    return wf_test_main("memory_timeline", tests);
}

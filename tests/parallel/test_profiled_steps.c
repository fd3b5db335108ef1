/* tests/parallel/test_profiled_steps.c - profiles of a training's steps: no time of a rank is
   left without a row, a processor has peaks in bf16, and a profile costs little. */
#include "parallel/report/profile_internal.h"
#include "tests/clock.h"
#include "tests/harness.h"
#include "tests/parallel/parallel_harness.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 4, STEPS = 200 };

/* The least of a step's time that no row has: a thread that loses the processor between two ops
   adds to it in that step, what no event is begun for adds to it in all. */
static const double rest = 0.03;

/* A rank's profiles of all steps. */
typedef struct profiled {
    double least; /* the least share of a step that no row had */
    char *text;   /* rank 0's table */
} profiled;

/* The training and its ranks' profiles. */
typedef struct profiling {
    training t;
    pthread_barrier_t step; /* all ranks have profiled one, or have read all others' */
    profiled of[RANKS];
} profiling;

static double neither_of(const wf_profile *p)
{
    const wf_profile_sums s = wf_profile_sum(p);

    return (double)(s.steps - s.ops - s.waits - s.host - s.launch) / (double)s.steps;
}

static wf_status profile_step(part *p, wf_par_trainer *trainer, int step, wf_trace *trace,
                              profiled *mine)
{
    wf_profile *profile = wf_profile_open(&p->rank->error);
    const wf_par_data data = {.read = count_up};
    wf_par_step result;
    int64_t begun;

    if (!profile)
        return p->rank->error.code;
    wf_mesh_trace(wf_par_mesh(p->par), trace);
    begun = wf_trace_now();
    wf_par_train_step(trainer, step, &data, &result);
    wf_mesh_trace(wf_par_mesh(p->par), NULL);
    wf_profile_add(profile, trace, 0, wf_trace_now() - begun, &p->rank->error);
    mine->least = fmin(mine->least, neither_of(profile));
    wf_profile_close(profile);
    wf_trace_clear(trace);
    return wf_context_status(wf_par_context(p->par));
}

/* Returns true once each rank has had a step of which no row lacks more than the rest. */
static bool all_accounted(profiling *all, int ranks)
{
    bool accounted = true;

    pthread_barrier_wait(&all->step);
    for (int r = 0; r < ranks; r++)
        accounted = accounted && all->of[r].least < rest;
    pthread_barrier_wait(&all->step);
    return accounted;
}

static wf_status profile_steps(part *p, wf_par_trainer *trainer)
{
    profiling *all = p->arg;
    profiled *mine = &all->of[p->rank->index];
    const wf_par_data data = {.read = count_up};
    wf_trace *trace = wf_trace_open(1 << 14, &p->rank->error);
    wf_par_step result;
    size_t size;
    int step;
    FILE *out = p->rank->index == 0 ? open_memstream(&mine->text, &size) : NULL;

    if (!trace)
        return p->rank->error.code;
    mine->least = 1;
    for (step = 1; step <= STEPS; step++) {
        GOOD(profile_step(p, trainer, step, trace, mine));
        if (all_accounted(all, p->rank->size))
            break;
    }
    wf_trace_close(trace);
    GOOD(wf_profile_step(trainer, step + 1, &data, &result, out, 5));
    if (out)
        fclose(out);
    return WF_OK;
}

static wf_status profiling_rank(wf_rank *rank, void *arg)
{
    profiling *p = arg;

    return on_trainer(rank, &p->t, profile_steps, p);
}

/* Ops, waits, work of the host and launches are a step's time on each rank; one call prints
   those of all ranks. */
static void nothing_is_left(void)
{
    profiling p = {.t = new_training(GPT2, HEADS, 32)};
    wf_error error = {WF_OK, ""};

    p.t.model.width = 96; /* kernels that take longer than what is between them */
    p.t.model.ffn = 4 * 96;
    p.t.layout = (wf_par_options){.tp = 2, .dp = 2, .seed = 7};
    pthread_barrier_init(&p.step, NULL, RANKS);
    wf_launch(&(wf_launch_options){.ranks = RANKS}, profiling_rank, &p, &error);
    pthread_barrier_destroy(&p.step);
    CU_ASSERT_STRING_EQUAL(error.text, "");
    for (int r = 0; r < RANKS; r++)
        CU_ASSERT(p.of[r].least >= 0 && p.of[r].least < rest);
    CU_ASSERT_PTR_NOT_NULL_FATAL(p.of[0].text);
    CU_ASSERT(strstr(p.of[0].text, "most ms of rank") && strstr(p.of[0].text, "of peak"));
    CU_ASSERT(strstr(p.of[0].text, "\n  3 ") != NULL); /* a line for each rank */
    free(p.of[0].text);
}

/* A CPU's peaks in bf16 are of tensors that it can't fill in bf16. */
static void bf16_has_peaks(void)
{
    profiling p = {.t = new_training(GPT2, HEADS, 2)};
    wf_error error = {WF_OK, ""};
    const char *at;
    double flops = 0, bytes = 0;

    p.t.layout = (wf_par_options){.seed = 7, .dtype = WF_BF16};
    pthread_barrier_init(&p.step, NULL, 1);
    wf_launch(&(wf_launch_options){.ranks = 1}, profiling_rank, &p, &error);
    pthread_barrier_destroy(&p.step);
    CU_ASSERT_STRING_EQUAL(error.text, "");
    CU_ASSERT_PTR_NOT_NULL_FATAL(p.of[0].text);
    at = strstr(p.of[0].text, "peaks of a rank, measured by all at once: ");
    CU_ASSERT_PTR_NOT_NULL_FATAL(at);
    CU_ASSERT_EQUAL(sscanf(strchr(at, ':'), ": %lf GFLOP/s of products, %lf", &flops, &bytes),
                    2);
    CU_ASSERT(flops > 0 && bytes > 0);
    free(p.of[0].text);
}

enum { PAIRS = UNDER_SANITIZER ? 2 : 30 };

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Makes two steps in turns, the second of each profiled, and takes the median of how much more
   of the processor that took. */
static wf_status compare_steps(part *p, wf_par_trainer *trainer)
{
    const wf_par_data data = {.read = count_up};
    wf_trace *trace = wf_trace_open(1 << 14, &p->rank->error);
    wf_profile *profile = wf_profile_open(&p->rank->error);
    double ratio[PAIRS];

    for (int k = 0; k < 2 * PAIRS && profile; k++) {
        double begun = wf_test_clock(CLOCK_THREAD_CPUTIME_ID), took;
        static double before;
        wf_par_step result;

        if (k % 2)
            wf_mesh_trace(wf_par_mesh(p->par), trace);
        GOOD(wf_par_train_step(trainer, k + 1, &data, &result));
        if (k % 2) {
            wf_mesh_trace(wf_par_mesh(p->par), NULL);
            wf_profile_add(profile, trace, 0, 1, &p->rank->error);
            wf_trace_clear(trace);
        }
        took = wf_test_clock(CLOCK_THREAD_CPUTIME_ID) - begun;
        if (k % 2)
            ratio[k / 2] = took / before - 1;
        before = took;
    }
    qsort(ratio, PAIRS, sizeof *ratio, by_size);
    *(double *)p->arg = ratio[PAIRS / 2];
    wf_profile_close(profile);
    wf_trace_close(trace);
    return WF_OK;
}

/* A training whose profile is weighed. */
typedef struct costly {
    training t;
    double ratio;
} costly;

static wf_status costly_rank(wf_rank *rank, void *arg)
{
    costly *c = arg;

    return on_trainer(rank, &c->t, compare_steps, &c->ratio);
}

/* On an idle machine it is below 2 %. */
static void it_costs_little(void)
{
    costly c = {.t = new_training(GPT2, HEADS, 32)};
    wf_error error = {WF_OK, ""};

    c.t.model.width = 96;
    c.t.model.ffn = 4 * 96;
    wf_launch(&(wf_launch_options){.ranks = 1, .threads = 1}, costly_rank, &c, &error);
    CU_ASSERT_STRING_EQUAL(error.text, "");
    printf("(%+.2f %% of the processor's time) ", 100 * c.ratio);
    CU_ASSERT(UNDER_SANITIZER || c.ratio < 0.1);
}

int main(void)
{
    static const wf_test tests[] = {{"nothing is left", nothing_is_left},
                                    {"bf16 has peaks", bf16_has_peaks},
                                    {"it costs little", it_costs_little},
                                    {NULL, NULL}};

    return wf_test_main("profiled_steps", tests);
}

/*
 * tests/bench/pipeline.c - bench pipeline: training steps over pipeline stages, schedule by
 * schedule, alternating with the same step on one rank, with one thread and with as many as a
 * pipeline has ranks.
 */
#include "tests/bench/models.h"
#include "tests/clock.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUNS = 16, LOSSES = 256, MICRO_BATCHES = 8 };

typedef struct run {
    char name[48];
    bench_model model;
    wf_par_options options;
    wf_par_pipeline_options how; /* the pipeline; its schedule is NULL for one rank */
    char schedule[32];
    wf_par_pipeline *pipeline;
    int ranks;
    bench_world *world;
    wf_error *error;
    /* reported by the ranks */
    size_t *peak; /* [ranks] */
    float loss[LOSSES];
    int64_t steps, asked; /* done; of the turn that runs */
    double processor;     /* seconds of it in all turns, and the steps in them */
    int64_t timed;
} run;

typedef struct bench {
    bench_model model;
    wf_error *error;
    int n;
    run run[RUNS];
} bench;

static wf_status open_rank(wf_rank *rank, void **own, void *arg)
{
    run *r = arg;

    *own = bench_trainee_open(rank, &r->options, &r->model, r->pipeline);
    return *own ? WF_OK : rank->error.code;
}

static wf_status step_rank(wf_rank *rank, void **own, void *arg)
{
    run *r = arg;
    bench_trainee *t = *own;
    wf_memory_report memory;
    float loss;

    for (int64_t i = 0; i < r->asked; i++) {
        if (bench_trainee_step(rank, t, &r->model, &loss) != WF_OK)
            return rank->error.code;
        if (rank->index == 0 && t->step <= LOSSES)
            r->loss[t->step - 1] = loss;
    }
    if (rank->index == 0)
        r->steps = t->step;
    wf_pool_report(wf_context_pool(wf_par_context(t->par)), &memory);
    r->peak[rank->index] = memory.peak;
    return WF_OK;
}

static wf_status close_rank(wf_rank *rank, void **own, void *arg)
{
    (void)rank, (void)arg;
    bench_trainee_close(*own);
    *own = NULL;
    return WF_OK;
}

static double take_turn(void *arg, int64_t repeat)
{
    run *r = arg;
    double start = wf_test_clock(CLOCK_MONOTONIC),
           processor = wf_test_clock(CLOCK_PROCESS_CPUTIME_ID);

    r->asked = repeat;
    if (bench_world_run(r->world, step_rank, r, r->error) != WF_OK)
        return NAN;
    r->processor += wf_test_clock(CLOCK_PROCESS_CPUTIME_ID) - processor;
    r->timed += repeat;
    return wf_test_clock(CLOCK_MONOTONIC) - start;
}

/* "zb-h1", "1f1b@8x2x2b" */
static wf_status add(bench *b, const char *word, int pp, int threads)
{
    run *r = &b->run[b->n];
    const char *at = strchr(word, '@');
    size_t n = at ? (size_t)(at - word) : strlen(word);
    int end = 0;

    if (b->n == RUNS || n >= sizeof r->schedule)
        return wf_error_set(b->error, WF_EINVAL, "more than %d schedules, or no name: %s", RUNS,
                            word);
    r->options = (wf_par_options){.pp = pp, .tp = 1, .dp = 1, .threads = threads, .seed = 1};
    if (at &&
        (sscanf(at, "@%dx%dx%d%n", &r->options.pp, &r->options.tp, &r->options.dp, &end) < 3 ||
         r->options.pp < 1 || r->options.tp < 1 || r->options.dp < 1 ||
         (at[end] && strcmp(at + end, "b") != 0)))
        return wf_error_set(b->error, WF_EINVAL, "%s is not SCHEDULE@PPxTPxDP, like 1f1b@8x2x2",
                            word);
    memcpy(r->schedule, word, n);
    snprintf(r->name, sizeof r->name, "%.40s", word);
    r->model = b->model;
    r->model.recompute = at && at[end] == 'b' ? "block" : NULL;
    r->error = b->error;
    r->ranks = r->options.pp * r->options.tp * r->options.dp;
    b->n++;
    return WF_OK;
}

static wf_status list_runs(bench *b, const bench_options *o)
{
    int ranks = o->cores > 1 ? o->cores < 8 ? o->cores : 8 : 2;
    const char *list = o->layouts ? o->layouts : "1f1b,zb-h1,interleaved,zb-v,gpipe";
    char word[48];

    if (add(b, "one thread", 1, 1) != WF_OK || add(b, "threads", 1, ranks) != WF_OK)
        return b->error->code;
    *b->run[0].schedule = *b->run[1].schedule = '\0';
    while (bench_next_word(&list, word, sizeof word))
        if (add(b, word, ranks, 1) != WF_OK)
            return b->error->code;
    return WF_OK;
}

static wf_status open_run(run *r)
{
    const wf_par_train_options training = bench_training(&r->model);

    r->how = (wf_par_pipeline_options){.model = bench_model_new,
                                       .arg = &r->model,
                                       .schedule = r->schedule,
                                       .input = "tokens",
                                       .head_loss = wf_par_gpt_head_loss};
    if (*r->schedule &&
        wf_par_pipeline_new(&r->options, &training, &r->how, &r->pipeline, r->error) != WF_OK)
        return r->error->code;
    r->peak = calloc((size_t)r->ranks, sizeof *r->peak);
    r->world = r->peak ? bench_world_open(r->ranks, r->options.threads, r->error) : NULL;
    if (!r->world)
        return wf_error_set(r->error, WF_ENOMEM, "no memory for %s", r->name);
    return bench_world_run(r->world, open_rank, r, r->error);
}

static void close_run(run *r)
{
    wf_error late = {WF_OK, ""};

    if (r->world && r->error->code == WF_OK)
        bench_world_run(r->world, close_rank, r, &late);
    bench_world_close(r->world);
    wf_par_pipeline_free(r->pipeline);
    free(r->peak);
}

/* Returns the share of the time that a schedule can use if nothing else costs any: its work
   over its makespan, where forward and both gradients of a stage take as long as each other. */
static double share_of_work(const run *r)
{
    static const wf_pipe_costs costs = {100, 100, 100, .message = 0};
    wf_pipe_timing timing;
    wf_error error = {WF_OK, ""};
    double share;

    if (!r->pipeline ||
        wf_pipe_simulate(wf_par_pipeline_table(r->pipeline), &costs, &timing, &error) != WF_OK)
        return 1;
    share = 1 - (double)timing.idle /
                    ((double)timing.makespan *
                     (double)wf_pipe_table_shape(wf_par_pipeline_table(r->pipeline)).ranks);
    wf_pipe_timing_free(&timing);
    return share;
}

static void report_run(const bench *b, bench_report *report, const run *r,
                       const bench_entrant *all, double seconds)
{
    double tokens = (double)(r->model.batch * r->model.seq), share = share_of_work(r);
    double of_threads = all[1].seconds / seconds, memory = 0;
    double perfect = all[0].seconds / (b->run[1].options.threads * seconds);
    int64_t both = r->steps < b->run[0].steps ? r->steps : b->run[0].steps;

    for (int i = 0; i < r->ranks; i++)
        memory = (double)r->peak[i] > memory ? (double)r->peak[i] : memory;
    both = both > LOSSES ? LOSSES : both;
    bench_row(report, (const bench_cell[]){
                          bench_text("schedule", r->name),
                          bench_number("ranks", r->ranks, 0),
                          bench_number("ms", seconds * 1e3, 2),
                          bench_number("tokens_per_s", tokens / seconds, 0),
                          bench_number("of_threads", of_threads, 3),
                          bench_number("limit", share, 3),
                          bench_number("of_limit", of_threads / share, 3),
                          bench_number("of_perfect", perfect / share, 3),
                          bench_number("processor",
                                       r->processor / (double)r->timed /
                                           (b->run[0].processor / (double)b->run[0].timed),
                                       2),
                          bench_number("peak_mb", memory * 1e-6, 1),
                          bench_text("same_losses", memcmp(r->loss, b->run[0].loss,
                                                           (size_t)both * sizeof *r->loss) == 0
                                                        ? "yes"
                                                        : "no"),
                          {.name = NULL}});
}

static wf_status race(bench *b, const bench_options *o, bench_report *report)
{
    bench_entrant entrants[RUNS];

    for (int i = 0; i < b->n; i++)
        entrants[i] = (bench_entrant){.run = take_turn, .arg = &b->run[i]};
    if (!bench_race(o, b->n, entrants))
        return wf_error_set(b->error, WF_EINTERNAL, "a schedule failed");
    for (int i = 0; i < b->n; i++)
        report_run(b, report, &b->run[i], entrants, entrants[i].seconds);
    return WF_OK;
}

static wf_status run_pipeline(const bench_options *o, bench_report *report, wf_error *error)
{
    static bench b;
    const char *name = o->model ? o->model : o->quick ? "tiny" : "small";
    const bench_model *model = bench_model_find(name, error);

    if (!model)
        return error->code;
    b = (bench){.model = *model, .error = error};
    b.model.batch = MICRO_BATCHES;
    b.model.micro = 1;
    if (list_runs(&b, o) == WF_OK) {
        bench_note(report, "%s: %d layers, %d wide; %d micro-batches of %d tokens", name,
                   (int)model->config.layers, (int)model->config.width, MICRO_BATCHES,
                   (int)model->seq);
        for (int i = 0; i < b.n && error->code == WF_OK; i++)
            open_run(&b.run[i]);
        if (error->code == WF_OK)
            race(&b, o, report);
    }
    for (int i = 0; i < b.n; i++)
        close_run(&b.run[i]);
    return error->code;
}

const bench_command bench_pipeline = {
    .name = "pipeline",
    .summary = "training steps over pipeline stages, beside one rank with as many threads",
    .more = "Training steps of a GPT-2 of 8 micro-batches through pipeline stages, schedule by "
            "schedule, in\n"
            "turns with one rank of one thread and with one rank of as many threads as there "
            "are pipeline\n"
            "ranks. limit is what the schedule's bubble leaves of their rate where nothing "
            "else costs time,\n"
            "of_limit what was reached of that, of_perfect the same beside so many times the "
            "rate of one\n"
            "thread; processor is the processor time of a step "
            "beside that of\n"
            "one thread: ranks that wait should not take any. peak_mb is that of the fullest "
            "rank.\n\n"
            "  bench pipeline --schedules 1f1b,zb-h1,zb-v --seconds 60\n"
            "  bench pipeline --schedules 1f1b@8x2x2,1f1b@2x1x1,zb-h1@2x1x1b",
    .run = run_pipeline};

/*
 * tests/bench/step.c - bench step: whole training steps of a model under several layouts,
 * alternating, beside the peak of multiply-add of the cores that a layout can keep busy.
 *
 * Steps of exact layouts have to have the same losses, bit for bit; that is checked here too.
 */
#include "tests/bench/blas.h"
#include "tests/bench/models.h"
#include "tests/clock.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYOUTS = 16, LOSSES = 256 };

typedef struct layout {
    char name[32];
    wf_par_options options;
    int ranks, busy; /* busy: threads that can work at once */
    int clock;       /* the most of all layouts' busy: they are timed alike */
    const bench_model *model;
    bench_world *world;
    wf_error *error;
    /* reported by the ranks */
    bool exact;
    size_t *peak;            /* [ranks] */
    wf_memory_report memory; /* rank 0's memory */
    float loss[LOSSES];
    int64_t steps, asked; /* done; of the turn that runs */
    double seconds;
    double processor; /* seconds of it in all turns but the first, and the steps in them */
    int64_t turns, timed;
} layout;

typedef struct bench {
    const bench_options *o;
    const bench_model *model;
    wf_error *error;
    int n;
    layout layout[LAYOUTS];
    bench_workers
        *peak[LAYOUTS]; /* one for each layout's busy threads; layouts with as many share it */
    bench_ceiling *ceiling; /* NULL: without libraries */
} bench;

static wf_status open_rank(wf_rank *rank, void **own, void *arg)
{
    layout *l = arg;
    bench_trainee *t = bench_trainee_open(rank, &l->options, l->model, NULL);

    *own = t;
    if (t && rank->index == 0)
        l->exact = wf_par_inexact(t->par) == NULL;
    return t ? WF_OK : rank->error.code;
}

static wf_status step_rank(wf_rank *rank, void **own, void *arg)
{
    layout *l = arg;
    bench_trainee *t = *own;
    wf_memory_report memory;
    double start;
    float loss;

    if (wf_barrier(rank->world, &rank->error) != WF_OK)
        return rank->error.code;
    start = bench_now(l->clock);
    for (int64_t i = 0; i < l->asked; i++) {
        if (bench_trainee_step(rank, t, l->model, &loss) != WF_OK)
            return rank->error.code;
        if (rank->index == 0 && t->step <= LOSSES)
            l->loss[t->step - 1] = loss;
    }
    if (wf_barrier(rank->world, &rank->error) != WF_OK)
        return rank->error.code;
    if (rank->index == 0) {
        l->seconds = bench_now(l->clock) - start;
        l->steps = t->step;
    }
    wf_pool_report(wf_context_pool(wf_par_context(t->par)), &memory);
    l->peak[rank->index] = memory.peak;
    if (rank->index == 0)
        l->memory = memory;
    return WF_OK;
}

static wf_status close_rank(wf_rank *rank, void **own, void *arg)
{
    (void)rank, (void)arg;
    bench_trainee_close(*own);
    *own = NULL;
    return WF_OK;
}

static double run(void *arg, int64_t repeat)
{
    layout *l = arg;
    double start = wf_test_clock(CLOCK_PROCESS_CPUTIME_ID);

    l->asked = repeat;
    if (bench_world_run(l->world, step_rank, l, l->error) != WF_OK)
        return NAN;
    if (l->turns++ > 0) {
        l->processor += wf_test_clock(CLOCK_PROCESS_CPUTIME_ID) - start;
        l->timed += repeat;
    }
    return l->seconds;
}

/* "8x4t2spoff" */
static wf_status parse(bench *b, const char *word)
{
    layout *l = &b->layout[b->n];
    wf_par_options *p = &l->options;
    int at = 0, more = 0;

    if (b->n == LAYOUTS)
        return wf_error_set(b->error, WF_EINVAL, "more than %d layouts", LAYOUTS);
    p->seed = 1;
    p->threads = b->o->threads ? (int)b->o->threads : 1;
    if (sscanf(word, "%dx%d%n", &p->tp, &p->dp, &at) < 2 || p->tp < 1 || p->dp < 1 ||
        (int64_t)p->tp * p->dp > WF_MAX_RANKS)
        return wf_error_set(b->error, WF_EINVAL, "layout %s is not TPxDP, like 8x4", word);
    p->sequence_parallel = b->o->sequence_parallel && p->tp > 1;
    if (sscanf(word + at, "t%d%n", &p->threads, &more) == 1)
        at += more;
    if (strncmp(word + at, "sp", 2) == 0) {
        p->sequence_parallel = true;
        at += 2;
    }
    if (strncmp(word + at, "off", 3) == 0) {
        p->exact_off = true;
        at += 3;
    }
    if (word[at] || p->threads < 1)
        return wf_error_set(b->error, WF_EINVAL,
                            "layout %s: after TPxDP come any of tN, sp and off, in this order",
                            word);
    l->ranks = p->tp * p->dp;
    l->busy = l->ranks * p->threads < b->o->cores ? l->ranks * p->threads : b->o->cores;
    l->model = b->model;
    l->error = b->error;
    snprintf(l->name, sizeof l->name, "%s", word);
    b->n++;
    return WF_OK;
}

/* A word of the list, under --exact. */
static wf_status add(bench *b, const char *word)
{
    const char *exact = b->o->exact ? b->o->exact : "on";
    bool both = strcmp(exact, "both") == 0, off = strcmp(exact, "off") == 0;
    size_t length = strlen(word);
    char other[40];

    if (!both && !off && strcmp(exact, "on") != 0)
        return wf_error_set(b->error, WF_EINVAL, "--exact %s is none of on, off and both",
                            exact);
    if (length >= 3 && strcmp(word + length - 3, "off") == 0)
        return parse(b, word);
    snprintf(other, sizeof other, "%soff", word);
    if (!off && parse(b, word) != WF_OK)
        return b->error->code;
    return both || off ? parse(b, other) : WF_OK;
}

static wf_status list_layouts(bench *b)
{
    const bench_options *o = b->o;
    char standard[64], word[32];
    const char *list = o->layouts;

    snprintf(standard, sizeof standard,
             o->cores > 1 ? "1x1,1x1off,1x1t%d,2x1,1x2" : "1x1,1x1off", o->cores);
    if (!list)
        list = o->tp || o->dp ? "" : standard;
    while (bench_next_word(&list, word, sizeof word)) {
        if (add(b, word) != WF_OK)
            return b->error->code;
    }
    if (o->tp || o->dp) {
        snprintf(word, sizeof word, "%dx%d", o->tp ? (int)o->tp : 1, o->dp ? (int)o->dp : 1);
        add(b, word);
    }
    return b->error->code;
}

static wf_status open_layouts(bench *b)
{
    int clock = 1;

    for (int i = 0; i < b->n; i++)
        clock = b->layout[i].busy > clock ? b->layout[i].busy : clock;
    for (int i = 0; i < b->n; i++) {
        layout *l = &b->layout[i];
        bool shared = false;

        l->clock = clock;
        for (int j = 0; j < i && !shared; j++) {
            shared = b->layout[j].busy == l->busy;
            b->peak[i] = shared ? b->peak[j] : NULL;
        }
        if (!shared)
            b->peak[i] = bench_workers_open(l->busy, b->error);
        l->peak = calloc((size_t)l->ranks, sizeof *l->peak);
        l->world = b->peak[i] && l->peak
                       ? bench_world_open(l->ranks, l->options.threads, b->error)
                       : NULL;
        if (!l->world)
            return wf_error_set(b->error, WF_ENOMEM, "no memory for layout %s", l->name);
        if (bench_world_run(l->world, open_rank, l, b->error) != WF_OK)
            return b->error->code;
    }
    return WF_OK;
}

static void close_layouts(bench *b)
{
    for (int i = 0; i < b->n; i++) {
        layout *l = &b->layout[i];
        bool shared = false;
        wf_error late = {WF_OK, ""};

        if (l->world && b->error->code == WF_OK)
            bench_world_run(l->world, close_rank, l, &late);
        bench_world_close(l->world);
        free(l->peak);
        for (int j = 0; j < i; j++)
            shared |= b->peak[j] == b->peak[i];
        if (!shared)
            bench_workers_close(b->peak[i]);
    }
}

/* "yes" and "no" of the losses of all steps that both have made, bit for bit. */
static const char *same(const layout *l, const layout *first)
{
    int64_t steps = l->steps < first->steps ? l->steps : first->steps;

    if (!l->exact || !first->exact)
        return "-";
    if (steps > LOSSES)
        steps = LOSSES;
    return memcmp(l->loss, first->loss, (size_t)steps * sizeof *l->loss) == 0 ? "yes" : "no";
}

static void report_layout(const bench *b, bench_report *report, const layout *l, double seconds,
                          double first, double peak, double products)
{
    double tokens = (double)(b->model->batch * b->model->seq), memory = 0;
    double rate = tokens * bench_model_flops(b->model) * 1e-9 / seconds;

    for (int i = 0; i < l->ranks; i++)
        memory += (double)l->peak[i];
    bench_row(report, (const bench_cell[]){
                          bench_text("model", b->model->name),
                          bench_text("layout", l->name),
                          bench_number("ms", seconds * 1e3, 2),
                          bench_number("tokens_per_s", tokens / seconds, 0),
                          bench_number("gflops", rate, 1),
                          bench_number("fma_peak", peak, 1),
                          bench_number("of_peak", rate / peak, 3),
                          bench_number("products", products, 1),
                          bench_number("of_products", rate / products, 3),
                          bench_number("times_first", seconds / first, 3),
                          bench_number("cpu_ms", l->processor / (double)l->timed * 1e3, 1),
                          bench_number("memory_mb", memory * 1e-6, 1),
                          bench_text("same_losses", same(l, &b->layout[0])),
                          {.name = NULL}});
}

/* Notes the kinds of rank 0's memory at its peak, and the size of its pool. */
static void note_memory(bench_report *report, const layout *l)
{
    const wf_memory_report *m = &l->memory;
    char text[256];
    size_t n = 0;

    for (int k = 0; k < WF_MEMORY_KINDS; k++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s %.1f %s", k ? "," : "",
                              (double)m->at_peak[k] * 1e-6,
                              wf_memory_kind_name((wf_memory_kind)k));
    bench_note(report, "%s: rank 0's peak, in MB:%s; its pool holds %.1f", l->name, text,
               (double)(m->in_use + m->cached) * 1e-6);
}

/* The layouts, and for each number of busy threads the limits. */
static wf_status race(bench *b, bench_report *report)
{
    bench_entrant entrants[BENCH_ENTRANTS];
    int peak[LAYOUTS], count = b->n, limits = b->ceiling ? 1 + BENCH_BLAS : 1;

    for (int i = 0; i < b->n; i++) {
        entrants[i] = (bench_entrant){.run = run, .arg = &b->layout[i]};
        peak[i] = -1;
        for (int j = 0; j < i; j++)
            peak[i] = b->peak[j] == b->peak[i] ? peak[j] : peak[i];
        if (peak[i] >= 0)
            continue;
        if (count + limits > BENCH_ENTRANTS)
            return wf_error_set(b->error, WF_EINVAL,
                                "too many layouts of different numbers of threads");
        peak[i] = count;
        entrants[count++] = bench_fma(b->peak[i]);
        if (b->ceiling)
            count += bench_ceiling_entrants(b->ceiling, b->layout[i].busy, entrants + count);
    }
    if (!bench_race(b->o, count, entrants))
        return wf_error_set(b->error, WF_EINTERNAL, "a layout failed");
    for (int i = 0; i < b->n; i++) {
        const bench_entrant *limit = entrants + peak[i];

        report_layout(b, report, &b->layout[i], entrants[i].seconds, entrants[0].seconds,
                      bench_fma_flops(b->peak[i]) * 1e-9 / limit->seconds,
                      b->ceiling ? bench_ceiling_gflops(b->ceiling, limit + 1) : NAN);
    }
    for (int i = 0; i < b->n; i++)
        note_memory(report, &b->layout[i]);
    for (int i = 0; i < b->n; i++) {
        if (strcmp(same(&b->layout[i], &b->layout[0]), "no") == 0)
            return wf_error_set(b->error, WF_EINTERNAL,
                                "%s and %s are exact, but their losses differ",
                                b->layout[0].name, b->layout[i].name);
    }
    return WF_OK;
}

static wf_status run_step(const bench_options *o, bench_report *report, wf_error *error)
{
    static bench b;
    const char *name = o->model ? o->model : o->quick ? "tiny" : "small";

    b = (bench){.o = o, .error = error, .model = bench_model_find(name, error)};
    if (!b.model || list_layouts(&b) != WF_OK)
        return error->code;
    bench_note(report, "%s: %d layers, %d wide, vocabulary %d, %d x %d tokens, %.1f MFLOP each",
               name, (int)b.model->config.layers, (int)b.model->config.width,
               (int)b.model->config.vocabulary, (int)b.model->batch, (int)b.model->seq,
               bench_model_flops(b.model) * 1e-6);
    if (o->libraries)
        b.ceiling = bench_ceiling_open(b.model, report, error);
    if (error->code == WF_OK && open_layouts(&b) == WF_OK)
        race(&b, report);
    close_layouts(&b);
    bench_ceiling_close(b.ceiling);
    return error->code;
}

const bench_command bench_step = {
    .name = "step",
    .summary = "whole training steps under several layouts, beside the FMA peak",
    .more = "Training steps of a GPT-2 (forward, backward, clipping, AdamW) under layouts that "
            "take\n"
            "turns in one process. The limit is the peak of multiply-adds of the cores that a "
            "layout\n"
            "can keep busy; the work is 6 operations per weight and token, and half of "
            "attention's\n"
            "scores. With --libraries, products and of_products compare with the fastest\n"
            "library's products of such a step, which no step can do without. times_first "
            "compares with the first layout; cpu_ms is the processor time of all threads in a "
            "step. Below the table: what the "
            "memory of\n"
            "rank 0 was used for when it was fullest. Losses of exact layouts must be\n"
            "equal, else the run fails.\n\n"
            "  bench step --model demo --layouts 1x1t2,2x1,1x2,8x4,8x4sp\n"
            "  bench step --model gpt2-1024 --layouts 1x1,1x1off --seconds 60\n"
            "  bench step --tp 2 --exact both",
    .run = run_step};

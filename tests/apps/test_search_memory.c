/*
 * tests/apps/test_search_memory.c - every layout of a small model, planned: no bound or estimate of the search is above what a
 * plan says, so no layout that fits is left out; and the search's list is the fastest of those that fit.
 */
#include "apps/gpt_train/search.h"
#include "tests/harness.h"
#include <stdlib.h>
#include <string.h>

enum { RANKS = 4, FLAGS = 40, EACH_RANK = 16 };

/* What is fixed of a model of 8 blocks; the rest is free. */
static const char *const rows[][FLAGS] = {
    {"--tp", "1", "--dtype", "fp32", "--micro-batch-size", "1", "--recompute", "none", NULL},
    {"--tp", "2", "--dtype", "bf16", "--micro-batch-size", "2", "--arch", "llama", NULL},
    {"--pp", "2", "--tp", "1", "--dtype", "bf16", "--strategy", "full_shard", NULL},
    {"--pp", "4", "--dtype", "fp32", "--micro-batch-size", "1", NULL},
};

enum { ROWS = sizeof rows / sizeof *rows };

typedef struct layout {
    double seconds;
    size_t peak;
} layout;

static bool parse(int row, app_options *options)
{
    const char *argv[FLAGS + 20] = {
        "gpt_train",  "--plan",       "--search", "--machine",
        WEFT_MACHINE, "--n-layer",    "8",        "--n-embd",
        "64",         "--n-head",     "4",        "--seq-len",
        "32",         "--vocab-size", "512",      "--global-batch-size",
        "16"};
    wf_error error = {WF_OK, ""};
    int n = 17;

    for (int i = 0; rows[row][i]; i++)
        argv[n++] = rows[row][i];
    if (app_options_parse(n, (char **)(uintptr_t)argv, options, &error) == WF_OK)
        return true;
    printf("\n    %s", error.text);
    return false;
}

/* The fullest of all ranks, each with a plan of its own. */
static size_t plan_each(const app_options *o)
{
    app_options one = *o;
    size_t peak = 0;

    for (int64_t pp = 0; pp < o->pp; pp++) {
        wf_error error = {WF_OK, ""};
        wf_plan run;

        one.rank = (pp + 1) * (RANKS / o->pp) - 1;
        if (dry_run_step(&one, &run, &error) == WF_OK && run.report.memory.peak > peak)
            peak = run.report.memory.peak;
    }
    return peak;
}

static void name_candidate(const search_candidate *c, const char *what, double said,
                           size_t peak)
{
    printf("\n    %s %.0f, planned %zu: pp %d tp %d shard %d replicate %d %s %s %s %s micro %d "
           "of %d %s",
           what, said, peak, c->pp, c->tp, c->shard, c->replicate, search_schedule(c).name,
           search_strategy(c)->name, search_recompute[c->recompute],
           search_accumulate[c->accumulate], c->micro, c->micros,
           wf_dtype_word((wf_dtype)c->dtype));
}

/* Whether no bound of its memory is above its plan; and its plan in `l`. */
static bool bounds_hold(search *s, const search_candidate *c, bool each, layout *l)
{
    app_options o = search_options(s, c);
    wf_error error = {WF_OK, ""};
    search_found found;
    wf_plan_peak peak;
    double least, bound = search_memory_bound(s, c);

    if (!search_simulate(s, c, 0, &found))
        return true;
    least = search_least_memory(s, c);
    if (dry_run_peaks(&o, 0, &peak, &error) != WF_OK) {
        printf("\n    %s", error.text);
        return false;
    }
    *l = (layout){found.seconds, peak.bytes};
    if ((double)c->bound > found.seconds * (1 + 1e-6)) /* a float */
        printf("\n    no step below %.9g s, simulated %.9g s", (double)c->bound, found.seconds);
    else if (each && plan_each(&o) != peak.bytes)
        name_candidate(c, "replayed", (double)peak.bytes, plan_each(&o));
    else if (bound > (double)peak.bytes)
        name_candidate(c, "bound", bound, peak.bytes);
    else if (!search_may_fit_in(least, peak.bytes))
        name_candidate(c, "least", least, peak.bytes);
    else if (!search_may_fit_in(found.estimate, peak.bytes))
        name_candidate(c, "estimate", found.estimate, peak.bytes);
    else
        return true;
    return false;
}

static int by_time(const void *a, const void *b)
{
    const layout *x = a, *y = b;

    return x->seconds < y->seconds ? -1 : x->seconds > y->seconds;
}

static int by_peak(const void *a, const void *b)
{
    const layout *x = a, *y = b;

    return x->peak < y->peak ? -1 : x->peak > y->peak;
}

/* The list of a search within a limit is the fastest ones of all that fit. */
static void list_is_best(app_options *o, const layout *all, int64_t count, size_t limit)
{
    wf_error error = {WF_OK, ""};
    search *s;
    int64_t at = 0;
    int k = 0;

    o->device_memory = (int64_t)limit;
    s = search_open(o, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    s->ranks = RANKS;
    search_go(s, &error);
    CU_ASSERT_EQUAL(error.code, WF_OK);
    for (; at < count && k < SEARCH_TOP; at++) {
        if (all[at].peak > limit)
            continue;
        CU_ASSERT(k < s->n_top && s->top[k].seconds == all[at].seconds &&
                  s->top[k].peak <= limit);
        if (k >= s->n_top || s->top[k].seconds != all[at].seconds)
            printf("\n    within %zu bytes line %d takes %.9g s, and %.9g is there", limit,
                   k + 1, k < s->n_top ? s->top[k].seconds : 0, all[at].seconds);
        k++;
    }
    CU_ASSERT_EQUAL(k, s->n_top);
    search_close(s);
}

static void check_row(int row)
{
    app_options o;
    wf_error error = {WF_OK, ""};
    layout *all;
    search *s;
    int64_t count = 0, wrong = 0;
    size_t limits[3];

    if (!parse(row, &o)) {
        CU_FAIL("options");
        return;
    }
    o.device_memory = INT64_C(1) << 50; /* estimates are made, and leave nothing out */
    s = search_open(&o, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    s->ranks = RANKS;
    CU_ASSERT_EQUAL(search_enumerate(s, &error), WF_OK);
    all = calloc((size_t)s->count + 1, sizeof *all);
    CU_ASSERT_PTR_NOT_NULL_FATAL(all);
    for (int64_t i = 0; i < s->count; i++) {
        wrong += !bounds_hold(s, &s->candidate[i], i % EACH_RANK == 0, &all[count]);
        count += all[count].peak > 0;
    }
    CU_ASSERT_EQUAL(wrong, 0);
    search_close(s);
    printf("\n    %lld layouts", (long long)count);
    qsort(all, (size_t)count, sizeof *all, by_peak);
    for (int i = 0; i < 3; i++)
        limits[i] = all[count * (2 * i + 1) / 8].peak;
    qsort(all, (size_t)count, sizeof *all, by_time);
    for (int i = 0; i < 3; i++)
        list_is_best(&o, all, count, limits[i]);
    free(all);
    app_options_free(&o);
}

static void all_layouts(void)
{
    for (int row = 0; row < ROWS; row++)
        check_row(row);
}

int main(void)
{
    static const wf_test tests[] = {
        {"no layout that fits is left out, and the list is the fastest of them", all_layouts},
        {NULL, NULL},
    };

    return wf_test_main("memory in the search", tests);
}

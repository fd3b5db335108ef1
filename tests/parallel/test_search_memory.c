/*
 * tests/parallel/test_search_memory.c - every layout of a small model, planned: no bound or
 * estimate of the search is above what a plan says, so no layout that fits is left out; and the
 * search's list is the fastest of those that fit.
 *
 * ctest: builds plain
 */
#include "parallel/plan/request_internal.h"
#include "parallel/plan/search_internal.h"
#include "tests/harness.h"
#include "tests/parallel/gpt_request.h"
#include <stdlib.h>
#include <string.h>

enum { RANKS = 4, BLOCKS = 8, TOKENS = 32, EACH_RANK = 16 };

/* The fixed options of a model of 8 blocks; the others are free. */
typedef struct fixed {
    const char *family, *dtype, *recompute, *strategy;
    int64_t pp, tp, micro, cp;
} fixed;

static const fixed rows[] = {
    {"gpt2", "fp32", "none", NULL, 0, 1, 1, 1},
    {"llama", "bf16", NULL, NULL, 0, 2, 2, 1},
    {"gpt2", "bf16", NULL, "full_shard", 2, 1, 0, 1},
    {"gpt2", "fp32", NULL, NULL, 4, 0, 1, 1},
    {"mixtral", "fp32", "none", NULL, 1, 1, 1, 1}, /* ep 1, 2 and 4 */
    {"mixtral", "bf16", "block", "full_shard", 0, 0, 2, 1},
    {"llama", "bf16", NULL, "full_shard", 1, 0, 2, 2}, /* in both forms */
};

enum { ROWS = sizeof rows / sizeof *rows };

typedef struct layout {
    double seconds;
    size_t peak;
} layout;

static void set_word(wf_plan_request *r, wf_setting setting, wf_setting_WORD word,
                     const char *value)
{
    r->given[setting] = value != NULL;
    if (value)
        snprintf(word, WF_WORD, "%s", value);
}

static void set_count(wf_plan_request *r, wf_setting setting, int64_t *count, int64_t value)
{
    r->given[setting] = value > 0;
    if (value)
        *count = value;
}

static wf_plan_request *ask(const fixed *row, gpt_request *a)
{
    wf_plan_request *r = gpt_request_make(row->family, BLOCKS, 64, TOKENS, 16, a);

    set_word(r, WF_SETTING_dtype, r->dtype, row->dtype);
    set_word(r, WF_SETTING_recompute, r->recompute, row->recompute);
    set_word(r, WF_SETTING_strategy, r->strategy, row->strategy);
    set_count(r, WF_SETTING_pp, &r->pp, row->pp);
    set_count(r, WF_SETTING_tp, &r->tp, row->tp);
    set_count(r, WF_SETTING_cp, &r->cp, row->cp);
    r->job.mesh.exact_off = row->cp > 1; /* sequences are short here */
    set_count(r, WF_SETTING_micro_batch_size, &r->micro_batch_size, row->micro);
    return r;
}

/* The fullest of all ranks, each with a plan of its own. */
static size_t plan_each(const wf_plan_request *o)
{
    wf_plan_request one = *o;
    size_t peak = 0;

    for (int64_t pp = 0; pp < o->pp; pp++) {
        wf_error error = {WF_OK, ""};
        wf_plan run;

        one.rank = (pp + 1) * (RANKS / o->pp) - 1;
        if (wf_plan_request_step(&one, &run, &error) == WF_OK && run.report.memory.peak > peak)
            peak = run.report.memory.peak;
    }
    return peak;
}

static void name_candidate(const wf_search_candidate *c, const char *what, double said,
                           size_t peak)
{
    printf("\n    %s %.0f, planned %zu: pp %d tp %d shard %d ep %d replicate %d %s %s %s %s "
           "micro %d "
           "of %d %s",
           what, said, peak, c->pp, c->tp, c->shard, c->ep, c->replicate,
           wf_search_schedule(c).name, wf_search_strategy(c)->name,
           wf_search_recompute[c->recompute], wf_search_accumulate[c->accumulate], c->micro,
           c->micros, wf_dtype_word((wf_dtype)c->dtype));
}

/* Checks that no bound of its memory is above its plan, which is then in `l`. */
static bool bounds_hold(wf_search *s, const wf_search_candidate *c, bool each, layout *l)
{
    wf_plan_request o = wf_search_options(s, c);
    wf_error error = {WF_OK, ""};
    wf_search_found found;
    wf_plan_peak peak;
    double least, bound = wf_search_memory_bound(s, c);

    if (!wf_search_simulate(s, c, 0, &found))
        return true;
    least = wf_search_least_memory(s, c);
    if (wf_plan_request_peaks(&o, 0, &peak, &error) != WF_OK) {
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
    else if (!wf_search_may_fit_in(least, peak.bytes))
        name_candidate(c, "least", least, peak.bytes);
    else if (!wf_search_may_fit_in(found.estimate, peak.bytes))
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
static void list_is_best(wf_plan_request *o, const layout *all, int64_t count, size_t limit)
{
    wf_error error = {WF_OK, ""};
    wf_search *s;
    int64_t at = 0;
    int k = 0;

    o->device_memory = (int64_t)limit;
    s = wf_search_open(o, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    s->ranks = RANKS;
    wf_search_go(s, &error);
    CU_ASSERT_EQUAL(error.code, WF_OK);
    for (; at < count && k < WF_SEARCH_TOP; at++) {
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
    wf_search_close(s);
}

static void check_row(int row)
{
    gpt_request a;
    wf_plan_request *o = ask(&rows[row], &a);
    wf_error error = {WF_OK, ""};
    layout *all;
    wf_search *s;
    int64_t count = 0, wrong = 0;
    size_t limits[3];

    o->device_memory = INT64_C(1) << 50; /* estimates are made, and leave nothing out */
    s = wf_search_open(o, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    s->ranks = RANKS;
    CU_ASSERT_EQUAL(wf_search_enumerate(s, &error), WF_OK);
    all = calloc((size_t)s->count + 1, sizeof *all);
    CU_ASSERT_PTR_NOT_NULL_FATAL(all);
    for (int64_t i = 0; i < s->count; i++) {
        wrong += !bounds_hold(s, &s->candidate[i], i % EACH_RANK == 0, &all[count]);
        count += all[count].peak > 0;
    }
    CU_ASSERT_EQUAL(wrong, 0);
    wf_search_close(s);
    printf("\n    %lld layouts", (long long)count);
    qsort(all, (size_t)count, sizeof *all, by_peak);
    for (int i = 0; i < 3; i++)
        limits[i] = all[count * (2 * i + 1) / 8].peak;
    qsort(all, (size_t)count, sizeof *all, by_time);
    for (int i = 0; i < 3; i++)
        list_is_best(o, all, count, limits[i]);
    free(all);
}

static void all_layouts(void)
{
    for (int row = 0; row < ROWS; row += wf_test_one_in(2))
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

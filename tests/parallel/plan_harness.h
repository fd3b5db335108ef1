/* tests/parallel/plan_harness.h - plans of a training run, and whether the run's report is the
   same to the byte. */
#ifndef WF_TESTS_PARALLEL_PLAN_HARNESS_H
#define WF_TESTS_PARALLEL_PLAN_HARNESS_H

#include "parallel/train/report.h"
#include "tests/parallel/parallel_harness.h"

enum { MAX_RANKS = 16 };

typedef struct reports {
    wf_par_report of[MAX_RANKS];
} reports;

/* Reports the second step, as gpt_train does. */
static inline wf_status report_step(training *t, wf_rank *rank, wf_par *par, wf_nn_gpt *model,
                                    int step)
{
    reports *all = t->arg;
    wf_par_report *r = &all->of[rank->index];

    if (step == 1)
        wf_par_report_begin(par, r);
    if (step == 2)
        wf_par_report_end(par, (wf_nn_module *)model, r);
    return WF_OK;
}

static inline bool plan(training *t)
{
    int ranks = (int)wf_par_ranks(&t->layout);
    wf_error error = {WF_OK, ""};
    wf_par_pipeline *pipeline = pipeline_of(t, &error);

    t->layout.plan = true;
    t->options.pipeline = pipeline;
    for (int rank = 0; rank < ranks && error.code == WF_OK; rank++) {
        wf_launch_options launch = {.ranks = ranks, .transport = "fake", .rank = rank};

        wf_launch(&launch, training_rank, t, &error);
        if (error.code != WF_OK)
            printf("\n    plan of rank %d: %s\n", rank, error.text);
    }
    CU_ASSERT_EQUAL(error.code, WF_OK);
    t->options.pipeline = NULL;
    wf_par_pipeline_free(pipeline);
    return error.code == WF_OK;
}

/* Checks that four ranks train with as much memory as the plan says of the one that takes most,
   and with a byte less do not. */
static inline void peak_is_enough(training t)
{
    static reports planned;
    wf_error error = {WF_OK, ""};

    t.steps = 2;
    t.watch = report_step;
    t.arg = &planned;
    if (!plan(&t))
        return;
    t.layout.plan = false;
    t.watch = NULL;
    for (int rank = 0; rank < 4; rank++)
        if (planned.of[rank].memory.peak > t.layout.memory_limit)
            t.layout.memory_limit = planned.of[rank].memory.peak;
    CU_ASSERT(train(&t));
    t.layout.memory_limit--;
    CU_ASSERT_EQUAL(wf_launch(&(wf_launch_options){.ranks = 4}, training_rank, &t, &error),
                    WF_ENOMEM);
}

static inline bool same(const char *what, int rank, double planned, double ran)
{
    if (planned == ran)
        return true;
    printf("\n    rank %d, %s: planned %.0f, but %.0f in the run", rank, what, planned, ran);
    return false;
}

static inline bool same_memory(int rank, const wf_memory_report *p, const wf_memory_report *r)
{
    bool alike = same("peak", rank, (double)p->peak, (double)r->peak);
    char what[64];

    for (int k = 0; k < WF_MEMORY_KINDS; k++) {
        const char *kind = wf_memory_kind_name((wf_memory_kind)k);

        snprintf(what, sizeof what, "%s at the peak", kind);
        alike &= same(what, rank, (double)p->at_peak[k], (double)r->at_peak[k]);
        snprintf(what, sizeof what, "most %s", kind);
        alike &= same(what, rank, (double)p->most[k], (double)r->most[k]);
        alike &= same(kind, rank, (double)p->now[k], (double)r->now[k]);
    }
    if (strcmp(p->phase, r->phase) == 0 && strcmp(p->module, r->module) == 0 && *p->phase)
        return alike;
    printf("\n    rank %d: peak planned in %s %s, but in %s %s of the run", rank, p->phase,
           p->module, r->phase, r->module);
    return false;
}

/* Says how tokens come to experts: all rows are gathered; or those are exchanged that tokens
   choose, of which a plan knows no more than how many it expects; or any, where all choose
   alike. */
typedef enum routing { GATHERED, EXPECTED, ANY } routing;

/* Returns whether bytes are as planned: half of them to twice as many where tokens are
   exchanged. */
static inline bool same_bytes(wf_collective_kind kind, int rank, int64_t p, int64_t r,
                              routing how)
{
    bool routed = how != GATHERED && (kind == WF_ALL_TO_ALL || kind == WF_REDUCE_SCATTER);

    return routed ? how == ANY || (r >= p / 2 && r <= 2 * p)
                  : same(wf_collective_name(kind), rank, (double)p, (double)r);
}

static inline bool same_traffic(int rank, const wf_par_report *p, const wf_par_report *r,
                                routing how)
{
    bool alike = same("groups", rank, p->n_traffic, r->n_traffic);

    for (int i = 0; i < p->n_traffic && alike; i++) {
        alike = strcmp(p->traffic[i].axis, r->traffic[i].axis) == 0 &&
                p->traffic[i].ranks == r->traffic[i].ranks;
        for (int k = 0; k < WF_COLLECTIVE_KINDS; k++) {
            const char *kind = wf_collective_name((wf_collective_kind)k);

            alike &= same(kind, rank, (double)p->traffic[i].counters.of[k].calls,
                          (double)r->traffic[i].counters.of[k].calls);
            alike &= same_bytes((wf_collective_kind)k, rank, p->traffic[i].counters.of[k].bytes,
                                r->traffic[i].counters.of[k].bytes, how);
        }
    }
    return alike;
}

/* all_alike: all tokens choose the same experts. */
static inline void compare_with(const char *name, training t, bool all_alike)
{
    const bool exchanges = t.layout.dispatch == WF_PAR_DISPATCH_EXCHANGE;
    static reports planned, ran;
    bool alike = true;
    double work = 0;

    planned = ran = (reports){0};
    t.steps = 2;
    t.watch = report_step;
    t.arg = &ran;
    if (!train(&t))
        return;
    t.arg = &planned;
    if (!plan(&t))
        return;
    for (int rank = 0; rank < (int)wf_par_ranks(&t.layout); rank++) {
        const wf_par_report *p = &planned.of[rank], *r = &ran.of[rank];

        alike &= same_memory(rank, &p->memory, &r->memory);
        alike &= same_traffic(rank, p, r, !exchanges ? GATHERED : all_alike ? ANY : EXPECTED);
        alike &= same("flops", rank, p->flops, r->flops);
        alike &= same("parameters", rank, (double)p->parameters, (double)r->parameters);
        alike &= same("share", rank, (double)p->share, (double)r->share);
        work += r->flops;
        alike &= r->memory.peak > 0; /* something was counted at all */
    }
    alike &= work > 0;
    CU_ASSERT(alike);
    if (!alike)
        printf("\n    %s\n", name);
}

static inline void compare(const char *name, training t)
{
    compare_with(name, t, false);
}

#endif

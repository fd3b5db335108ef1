/*
 * parallel/plan/advice_internal.h - what would make a plan fit that does not: every candidate
 * is a dry run of its own, nothing is guessed.
 *
 * Single changes that keep numbers and ranks are tried first, in the order of
 * wf_plan_tunables.h. Where none is enough, such changes are added up, each as far as it goes,
 * until all together fit; then those that are not needed are taken back or made milder, the
 * dearest first. Single changes of the numbers follow. Where nothing has fitted so far, changes
 * are added up with other numbers, and with more ranks. With a machine each has the time of its
 * step, and they are printed in the order of time.
 */
#ifndef WF_PARALLEL_PLAN_ADVICE_INTERNAL_H
#define WF_PARALLEL_PLAN_ADVICE_INTERNAL_H

#include "parallel/plan/request.h"
#include "parallel/plan/tunables_internal.h"
#include <jansson.h>

enum { WF_PLAN_ADVICE_LINES = 8, WF_PLAN_FLAGS = 400 };

/* The time for an error's advice: an error is not to be held up for long. */
#define WF_PLAN_EXPLAIN_SECONDS 0.5

typedef struct wf_plan_advice_line {
    char flags[WF_PLAN_FLAGS]; /* the change */
    char cost[240];            /* in words */
    int64_t ranks;
    double peak, flops, traffic; /* bytes and FLOPs of a rank in a step */
    double seconds;              /* the step on --machine; 0: not asked for */
} wf_plan_advice_line;

typedef struct wf_plan_advice_limits {
    double room;     /* bytes of a rank */
    bool start;      /* compare what --memory-check does: also an evaluation and a sample */
    bool more_ranks; /* propose more ranks than those of the options, too */
    double seconds;  /* the sum over the whole search */
    bool progress;   /* report on stderr that it takes long */
} wf_plan_advice_limits;

typedef struct wf_plan_advice {
    int n;
    /* combinations that fit, the cheapest first */
    wf_plan_advice_line line[WF_PLAN_ADVICE_LINES];
    bool together; /* no single change is enough that keeps numbers and ranks */
    /* the combination of all that saves memory, where none fits */
    wf_plan_advice_line smallest;
    int planned;
    bool stopped; /* the time was over before all was planned */
} wf_plan_advice;

/* Look for changes that make the options' plan, which is `base`, fit. */
void wf_plan_advice_find(const wf_plan_request *options, const wf_plan *base,
                         const wf_plan_advice_limits *limits, wf_plan_advice *advice);

/* "FLOPs +33 %, " */
size_t wf_plan_advice_share(char *text, size_t size, const char *what, double before,
                            double after);

/* The fastest first. */
void wf_plan_advice_sort(wf_plan_advice *advice);

/* The advice as lines; as one phrase of an error; as a list of a JSON report. */
void wf_plan_advice_print(FILE *out, const wf_plan_advice *advice,
                          const wf_plan_advice_limits *limits);
void wf_plan_advice_phrase(char *text, size_t size, const wf_plan_advice *advice,
                           const wf_plan_advice_limits *limits);
json_t *wf_plan_advice_json(const wf_plan_advice *advice);

#endif

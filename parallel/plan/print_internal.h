/* parallel/plan/print_internal.h - a plan as it is printed: what a step takes and moves on one
   rank of any world. */
#ifndef WF_PARALLEL_PLAN_PRINT_INTERNAL_H
#define WF_PARALLEL_PLAN_PRINT_INTERNAL_H

#include "parallel/plan/advice_internal.h"
#include "parallel/plan/search_internal.h"
#include "parallel/plan/stages_internal.h"

enum { WF_PLAN_STRATEGIES = 64 };

/* The same step under another strategy, with what else a run of that strategy chooses by
   itself. */
typedef struct wf_plan_strategy {
    const char *name;
    wf_plan run;
    size_t peak;      /* including what follows the steps */
    wf_error refused; /* WF_OK, or why such a run is refused: then `run` is empty */
} wf_plan_strategy;

/* A plan as it is printed. */
typedef struct wf_plan_report {
    const wf_plan_request *options;
    /* rank --rank's; without it, in a pipeline, that of the rank which takes most */
    wf_plan run;
    wf_plan whole; /* run, and work after its steps; empty if there is none */
    /* one rank's for each coordinate on axis pp, where there is a pipeline */
    wf_plan_ranks_of stages;
    int n_strategies; /* all others; none where there is no data parallelism */
    wf_plan_strategy strategy[WF_PLAN_STRATEGIES];
    wf_search_found time; /* the step on --machine; 0 s: not asked for */
    char machine[WF_SIM_NAME];
    wf_plan_advice_limits limits;
    wf_plan_advice advice; /* empty where the plan fits */
} wf_plan_report;

/* Returns the peak of the steps and of what follows them; and what device_memory leaves beside
   it, below 0 where it does not fit. */
size_t wf_plan_run_peak(const wf_plan_report *report);
double wf_plan_room(const wf_plan_report *report);

/* Prints what follows the steps takes, and whether all fits. */
void wf_plan_print_fit(FILE *out, const wf_plan_report *report);

/* Returns whether a peak fits in device_memory, which may be any. */
bool wf_plan_fits(const wf_plan_request *options, size_t peak);

/* Writes a plan as text and as JSON (print_report.c). Errors: WF_EIO, WF_ENOMEM */
wf_status wf_plan_report_write(const wf_plan_report *report, FILE *out, wf_error *error);

/* Returns the kind of memory of which there is most at the peak. */
wf_memory_kind wf_plan_largest_kind(const wf_memory_report *memory);

#endif

/* apps/gpt_train/plan.h - gpt_train --plan: what a step takes and moves on one rank of any world. */
#ifndef WF_APPS_PLAN_H
#define WF_APPS_PLAN_H

#include "apps/gpt_train/plan_advice.h"
#include "apps/gpt_train/search.h"
#include "apps/gpt_train/stage_report.h"

enum { PLAN_STRATEGIES = 16 };

/* The same step under another strategy, with what else a run of that strategy chooses by itself. */
typedef struct plan_strategy {
    const char *name;
    wf_plan run;
    wf_error refused; /* WF_OK, or why such a run is refused: then `run` is empty */
} plan_strategy;

/* A plan as it is printed. */
typedef struct plan_report {
    const app_options *options;
    wf_plan
        run; /* rank --rank's; without it, in a pipeline, that of the rank which takes most */
    app_stage_plans
        stages;       /* one rank's for each coordinate on axis pp, where there is a pipeline */
    int n_strategies; /* all others; none where there is no data parallelism */
    plan_strategy strategy[PLAN_STRATEGIES];
    search_found time; /* the step on --machine; 0 s: nobody asks */
    char machine[WF_SIM_NAME];
    plan_advice_limits limits;
    plan_advice advice; /* empty where the plan fits */
} plan_report;

/*
 * Plan what the flags say; print it, and write it where --json says. With --find-batch the
 * micro-batch is looked for first. What a run chooses by itself (app_choose_sums) is chosen here.
 */
wf_status plan_run(const app_options *options, FILE *out, wf_error *error);

/* A run went out of memory under --device-memory: add to its error what would fit. */
void plan_explain(const app_options *options, wf_error *error);

/* Whether a dry run fits in --device-memory, which may be any. */
bool plan_fits(const app_options *options, const wf_plan *run);

/* A plan as text and as JSON (plan_report.c). Errors: WF_EIO, WF_ENOMEM */
wf_status plan_report_write(const plan_report *report, FILE *out, wf_error *error);

/* The kind of memory of which there is most at the peak. */
wf_memory_kind plan_largest_kind(const wf_memory_report *memory);

#endif

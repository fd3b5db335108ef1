/* apps/gpt_train/dry_run.h - plans of what the flags describe: parallel/plan/request.h with the
   flags' job. */
#ifndef WF_APPS_DRY_RUN_H
#define WF_APPS_DRY_RUN_H

#include "apps/gpt_train/setup.h"

/* A request, and what its job points to. */
typedef struct app_plan {
    wf_plan_request request;
    app_setup_job setup;
    char name[64], facts[512];
} app_plan;

/* Fills in what the flags ask to plan, and returns it; the options outlive it. */
wf_plan_request *app_plan_of(const app_options *options, app_plan *plan);

/* Makes the pipeline that the flags ask for, of a run or a plan; NULL where they ask for none,
   and on errors. The options outlive it. Owner: caller. */
wf_status app_setup_pipeline(const app_options *options, wf_par_pipeline **pipeline,
                             wf_error *error);

/* The second step of a run, as its rank --rank reports it, with what the first one leaves. */
wf_status dry_run_step(const app_options *options, wf_plan *plan, wf_error *error);

/* Sets --accumulate and --micro-batch-size where the run chooses them; a line for each on
   stdout where `say` is true. */
void app_choose_sums(app_options *options, bool say);

/* Checks that a run fits into the limits of its process, unless --memory-check is off. Errors:
   WF_ENOMEM */
wf_status app_memory_check(const app_options *options, const wf_launcher *launcher,
                           wf_error *error);

/* Adds what would fit to the error of a run that went out of memory. */
void app_plan_explain(const app_options *options, wf_error *error);

/* Lists the mesh's axes, outermost first, with what a rank receives over each in a step;
   returns how many there are, 0 on errors. */
int dry_run_axes(const app_options *options, wf_place_axis axis[WF_MAX_AXES], wf_error *error);

#endif

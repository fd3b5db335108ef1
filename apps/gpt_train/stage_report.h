/* apps/gpt_train/stage_report.h - the stages of a pipeline, printed: what each has, and what its ranks take. */
#ifndef WF_APPS_STAGE_REPORT_H
#define WF_APPS_STAGE_REPORT_H

#include "apps/gpt_train/dry_run.h"

/* Plans of one rank for each coordinate on axis pp. */
typedef struct app_stage_plans {
    int count;    /* 0: there is no pipeline */
    int fullest;  /* the one that takes most */
    wf_plan *run; /* [count] */
} app_stage_plans;

/* The other coordinates of rank --rank stay. Owner: caller, app_stage_plans_close (also of a failed one).
   Errors: WF_ENOMEM, those of the plan */
wf_status app_stage_plans_make(const app_options *options, app_stage_plans *plans,
                               wf_error *error);
void app_stage_plans_close(app_stage_plans *plans);

/* A line per coordinate: what it takes at its peak, by kind, and when. */
void app_stage_plans_print(FILE *out, const app_options *options, const app_stage_plans *plans);

/* The same as a list of objects; NULL where memory ran out. Owner: the caller. */
json_t *app_stage_plans_json(const app_stage_plans *plans);

#endif

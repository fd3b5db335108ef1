/* parallel/plan/stages_internal.h - the stages of a pipeline, printed: what each has, and what
   its ranks take. */
#ifndef WF_PARALLEL_PLAN_STAGES_INTERNAL_H
#define WF_PARALLEL_PLAN_STAGES_INTERNAL_H

#include "parallel/plan/request.h"
#include <jansson.h>

/* Plans of one rank for each coordinate on axis pp. */
typedef struct wf_stage_plans {
    int count;    /* 0: there is no pipeline */
    int fullest;  /* the one that takes most */
    wf_plan *run; /* [count] */
} wf_stage_plans;

/* The other coordinates of rank --rank stay. Owner: caller, wf_stage_plans_close (also of a
   failed one). Errors: WF_ENOMEM, those of the plan */
wf_status wf_stage_plans_make(const wf_plan_request *options, wf_stage_plans *plans,
                              wf_error *error);
void wf_stage_plans_close(wf_stage_plans *plans);

/* A line per coordinate: what it takes at its peak, by kind, and when. */
void wf_stage_plans_print(FILE *out, const wf_plan_request *options,
                          const wf_stage_plans *plans);

/* The same as a list of objects; NULL where memory ran out. Owner: the caller. */
json_t *wf_stage_plans_json(const wf_stage_plans *plans);

#endif

/* parallel/plan/stages_internal.h - the stages of a pipeline, printed: what each has, and what
   its ranks take. */
#ifndef WF_PARALLEL_PLAN_STAGES_INTERNAL_H
#define WF_PARALLEL_PLAN_STAGES_INTERNAL_H

#include "parallel/plan/plan_internal.h"
#include "parallel/plan/request.h"
#include <jansson.h>

/* A rank of each coordinate on axis pp; none where there is no pipeline. The other coordinates
   of rank --rank stay. The fullest is planned whole. Owner: caller, wf_plan_ranks_close (also
   of a failed one). Errors: WF_ENOMEM, those of the plan */
wf_status wf_stage_plans_make(const wf_plan_request *options, wf_plan_ranks_of *plans,
                              wf_error *error);

/* A line per coordinate: what it takes at its peak, by kind, and when. */
void wf_stage_plans_print(FILE *out, const wf_plan_request *options,
                          const wf_plan_ranks_of *plans);

/* The same as a list of objects; NULL where memory ran out. Owner: the caller. */
json_t *wf_stage_plans_json(const wf_plan_ranks_of *plans);

#endif

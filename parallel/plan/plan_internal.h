/* parallel/plan/plan_internal.h - a rank that is planned. */
#ifndef WF_PARALLEL_PLAN_PLAN_INTERNAL_H
#define WF_PARALLEL_PLAN_PLAN_INTERNAL_H

#include "parallel/plan/plan.h"
#include "parallel/stages/profile.h"

typedef struct wf_planned {
    const wf_par_job *job;
    int64_t steps; /* the last one is reported; 0: none is made */
    wf_plan_options options;
    wf_par_pipeline *pipeline;
    wf_par_profile *profile;           /* NULL, or what writes down what actions take */
    struct wf_memory_timeline *memory; /* NULL, or what draws the last step's */
    wf_plan *plan;
} wf_planned;

/* Returns how many steps are planned where not the start alone is asked for. */
int64_t wf_planned_steps(const wf_par_job *job);

/* Plans a rank, of a pipeline that is there, or of none. */
wf_status wf_planned_rank(wf_planned *p, int rank, wf_error *error);

#endif

/* parallel/plan/plan_internal.h - a rank that is planned. */
#ifndef WF_PARALLEL_PLAN_PLAN_INTERNAL_H
#define WF_PARALLEL_PLAN_PLAN_INTERNAL_H

#include "parallel/plan/plan.h"
#include "parallel/stages/profile_internal.h"

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

/* Takes away the number of the rank that was planned: what is refused is refused of every
   rank. */
void wf_planned_drop_rank(wf_error *error);

/* Plans a rank, of a pipeline that is there, or of none. */
wf_status wf_planned_rank(wf_planned *p, int rank, wf_error *error);

/* A rank of each coordinate of a pipeline. */
typedef struct wf_plan_ranks_of {
    int count;
    int fullest;      /* the first of those that take most */
    int member;       /* their index among a coordinate's ranks */
    int64_t planned;  /* plans that were made */
    bool *is_planned; /* [count]; false: the plan of a rank that is alike gave this one .. */
    /* [count] .. of which only this is reported: parameters, share, operations, and of memory
       the peak by kind and where it is */
    wf_plan *run;
    size_t *after; /* [count] peaks of what follows the steps; 0 where they are not planned */
} wf_plan_ranks_of;

/* Plans one rank for each coordinate of a job's pipeline, by plans of as few of them as
   determine the others to the byte.

   member  of a coordinate's ranks; -1: its last
   limit   of bytes; 0: none
   whole   the fullest is planned in any case: all of it is reported

   Owner:  wf_plan_ranks_close, after errors too
   Errors: those of wf_plan_step; WF_ENOMEM: a rank takes more than `limit` bytes */
wf_status wf_plan_ranks_make(const wf_par_job *job, int64_t member, size_t limit, bool whole,
                             wf_plan_ranks_of *of, wf_error *error);
void wf_plan_ranks_close(wf_plan_ranks_of *of);

#endif

/* parallel/plan/choose_internal.h - how gradients of micro-steps are summed where that is left
   open. */
#ifndef WF_PARALLEL_PLAN_CHOOSE_INTERNAL_H
#define WF_PARALLEL_PLAN_CHOOSE_INTERNAL_H

#include "parallel/plan/request.h"

enum { WF_PLAN_CHOICE = 400 };

/* Sets `accumulate` auto as wf_plan_choose_sums says, by dry runs of every pipeline rank:
   local, then groups, the largest first, then reduced. Where none fits, or nothing limits, it
   stays auto. Writes a line about it; "" where it stays. */
void wf_plan_choose_accumulate(wf_plan_request *request, char line[WF_PLAN_CHOICE]);

#endif

/* parallel/plan/strategy_order_internal.h - the strategies of strategies.def, in the orders
   that searches and plans try them in. */
#ifndef WF_PARALLEL_PLAN_STRATEGY_ORDER_INTERNAL_H
#define WF_PARALLEL_PLAN_STRATEGY_ORDER_INTERNAL_H

#include "parallel/run.h"

enum { WF_STRATEGY_MOST = 64 };

/* The i-th of those that differ in what they split and when, for searches: without groups
   first, and of each kind the one first that holds most. NULL after the last. */
const wf_par_strategy *wf_strategy_to_search(int i);

/* Returns the index there of a name, or of its alias; -1: none. */
int wf_strategy_index(const char *name);

/* The i-th of all, the one first that holds most of parameters, gradients and state; NULL after
   the last. */
const wf_par_strategy *wf_strategy_by_memory(int i);

#endif

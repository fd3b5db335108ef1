/* apps/gpt_train/strategy_order.h - the strategies of strategies.def, in the orders that searches and plans try them in. */
#ifndef WF_APPS_STRATEGY_ORDER_H
#define WF_APPS_STRATEGY_ORDER_H

#include <weft/weft.h>

enum { STRATEGY_MOST = 64 };

/* The i-th of those that differ in what they split and when, for searches: without groups first, and of each kind the one
   first that holds most. NULL after the last. */
const wf_par_strategy *strategy_to_search(int i);

/* The place there of a name, or of one that is the same by another name; -1: none. */
int strategy_place(const char *name);

/* The i-th of all, the one first that holds most of parameters, gradients and state; NULL after the last. */
const wf_par_strategy *strategy_by_memory(int i);

#endif

/* parallel/plan/tunables_internal.h - the flags that change what a rank needs, the cheapest
   first. */
#ifndef WF_PARALLEL_PLAN_TUNABLES_INTERNAL_H
#define WF_PARALLEL_PLAN_TUNABLES_INTERNAL_H

#include "parallel/plan/request.h"

/* The price of a tunable beside FLOPs and traffic, which its plan has. */
typedef enum wf_plan_price {
    WF_PLAN_FREE, /* no number changes, on the same ranks */
    /* another optimizer or dtype, or sums in another order: the losses differ */
    WF_PLAN_NUMBERS,
    WF_PLAN_RANKS, /* more ranks */
    WF_PLAN_PRICES
} wf_plan_price;

typedef enum wf_plan_set {
    WF_PLAN_SET,
    WF_PLAN_SKIP, /* the options have this setting already, or cannot have it */
    WF_PLAN_END,  /* there are no further settings */
} wf_plan_set;

typedef struct wf_plan_tunable {
    wf_plan_price price;
    const char *cost; /* in words, or NULL */
    /* Change the options to setting i, counted from 0; a later one saves more memory. */
    wf_plan_set (*set)(wf_plan_request *options, int i);
} wf_plan_tunable;

enum { WF_PLAN_TUNABLES = 19 };

extern const wf_plan_tunable wf_plan_tunables[WF_PLAN_TUNABLES];

/* Another strategy, with its groups of ranks if it has any. False where it cannot lay out
   these. */
bool wf_plan_set_strategy(wf_plan_request *options, const char *name);

/* Returns the most stages that a model's chain can be cut into; those of an unknown one are
   many. */
int64_t wf_plan_most_pp(const wf_plan_request *request);

#endif

/* apps/gpt_train/plan_knobs.h - the flags that change what a rank needs, the cheapest first. */
#ifndef WF_APPS_PLAN_KNOBS_H
#define WF_APPS_PLAN_KNOBS_H

#include "apps/options/options.h"

/* What a knob costs beside FLOPs and traffic, which its plan tells. */
typedef enum plan_price {
    PLAN_FREE,    /* no number changes, on the same ranks */
    PLAN_NUMBERS, /* another optimizer or dtype, or sums in another order: the losses differ */
    PLAN_RANKS,   /* more ranks */
    PLAN_PRICES
} plan_price;

typedef enum plan_set {
    PLAN_SET,
    PLAN_SKIP, /* the options have this setting already, or cannot have it */
    PLAN_END,  /* there are no further settings */
} plan_set;

typedef struct plan_knob {
    plan_price price;
    const char *cost; /* in words, or NULL */
    /* Change the options to setting i, counted from 0; a later one saves more memory. */
    plan_set (*set)(app_options *options, int i);
} plan_knob;

enum { PLAN_KNOBS = 17 };

extern const plan_knob plan_knobs[PLAN_KNOBS];

/* Another strategy, with its groups of ranks if it has any. False where it cannot lay out these. */
bool plan_set_strategy(app_options *options, const char *name);

/* The flags that make `other` out of `from`, as a user types them; cut where text is too short. */
void plan_flags(const app_options *from, const app_options *other, char *text, size_t size);

#endif

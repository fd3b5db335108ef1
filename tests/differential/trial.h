/* tests/differential/trial.h - cases in children of their own, so that one which crashes or
 * hangs is named and the others still run. */
#ifndef WF_TESTS_DIFFERENTIAL_TRIAL_H
#define WF_TESTS_DIFFERENTIAL_TRIAL_H

#include "tests/differential/program.h"

typedef struct campaign {
    selection what;
    bool show;   /* print a program that ran well, too */
    bool shrink; /* make cases that fail smaller */
    int64_t failures;
    board *b;
} campaign;

/* Runs all cases; those that fail are printed as they are found. False where nothing could
   run. */
bool run_campaign(campaign *c);

#endif

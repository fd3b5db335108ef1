/* tests/clock.h - the clock of tests. */
#ifndef WF_TESTS_CLOCK_H
#define WF_TESTS_CLOCK_H

#include <time.h>

/* Returns the seconds of a clock: CLOCK_MONOTONIC's, or those that the process has computed
   (CLOCK_PROCESS_CPUTIME_ID). */
static inline double wf_test_clock(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif

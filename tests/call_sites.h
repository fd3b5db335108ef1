/*
 * tests/call_sites.h - which of many calls a test makes fail, one at a time. Calls are alike
 * where the functions that led to them are: what follows a failure is the same code then. Of
 * those that are alike the first and the last are chosen; with WEFT_EVERY_CALL in the
 * environment all are.
 */
#ifndef WF_TESTS_CALL_SITES_H
#define WF_TESTS_CALL_SITES_H

#include <execinfo.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

enum { MOST_CALLS = 1 << 16, MOST_FRAMES = 32 };

static uint64_t site_of[MOST_CALLS];
static bool chosen[MOST_CALLS];

/* Writes down where call number k comes from. */
static void record_call(int64_t k)
{
    void *frame[MOST_FRAMES];
    int n = backtrace(frame, MOST_FRAMES);
    uint64_t hash = 0;

    for (int i = 0; i < n; i++)
        hash = (hash ^ (uintptr_t)frame[i]) * 0x9e3779b97f4a7c15u;
    if (k < MOST_CALLS)
        site_of[k] = hash;
}

/* Chooses among a number of calls; returns how many are chosen. */
static int64_t choose_calls(int64_t calls)
{
    bool every = getenv("WEFT_EVERY_CALL") != NULL;
    int64_t count = 0;

    for (int64_t k = 0; k < calls && k < MOST_CALLS; k++) {
        bool before = false, after = false;

        for (int64_t i = 0; i < calls && i < MOST_CALLS && !every; i++) {
            before |= i < k && site_of[i] == site_of[k];
            after |= i > k && site_of[i] == site_of[k];
        }
        chosen[k] = every || !before || !after;
        count += chosen[k];
    }
    return count;
}

#endif

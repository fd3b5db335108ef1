/*
 * apps/gpt_train/memory_limits.h - what keeps this process from taking memory: limits of its control group and
 * of the groups above (cgroup versions 1 and 2), RLIMIT_AS and RLIMIT_DATA, and what the machine has.
 */
#ifndef WF_APPS_MEMORY_LIMITS_H
#define WF_APPS_MEMORY_LIMITS_H

#include <stdbool.h>

typedef struct app_memory_limit {
    char name[512]; /* "memory.max of control group /a/b" */
    double most;    /* bytes; of the machine: all that is available */
    double room;    /* what is left of them for this process, page cache counted as free */
    bool shared;    /* all processes that a launcher has started here take from it */
    bool reserved;  /* addresses count, also those where nothing lies yet */
} app_memory_limit;

enum { APP_MEMORY_LIMITS = 64 };

/*
 * The limits that there are, at most APP_MEMORY_LIMITS; returns how many. Those that cannot be read
 * are none.
 * root: "" for this machine's /proc and control groups, or a folder that has others, for tests
 */
int app_memory_limits(const char *root, app_memory_limit limit[APP_MEMORY_LIMITS]);

#endif

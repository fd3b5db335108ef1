/*
 * parallel/report/memory_limits.h - the limits of this process's memory: those of its control
 * group and of the groups above (cgroup versions 1 and 2), RLIMIT_AS and RLIMIT_DATA, and the
 * machine's memory.
 */
#ifndef WF_PARALLEL_REPORT_MEMORY_LIMITS_H
#define WF_PARALLEL_REPORT_MEMORY_LIMITS_H

#include "core/export.h"
#include <stdbool.h>

WF_BEGIN_DECLS

typedef struct wf_memory_limit {
    char name[512]; /* "memory.max of control group /a/b" */
    double most;    /* bytes; of the machine: all that is available */
    double room;    /* bytes of it left for this process, page cache counted as free */
    bool shared;    /* all processes that a launcher has started here take from it */
    bool reserved;  /* addresses count, also those without memory yet */
} wf_memory_limit;

enum { WF_MEMORY_LIMITS = 64 };

/**
 * wf_memory_limits - fills in the limits of this process, at most WF_MEMORY_LIMITS; unreadable
 * ones are left out
 *
 * @param root  "" for this machine's /proc and control groups, or a folder that has others, for
 *              tests
 * Returns:     their number
 */
WF_API int wf_memory_limits(const char *root, wf_memory_limit limit[WF_MEMORY_LIMITS]);

WF_END_DECLS

#endif

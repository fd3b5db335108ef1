/* core/status_internal.h - what wf_fail knows of a context. Not installed. */
#ifndef WF_CORE_STATUS_INTERNAL_H
#define WF_CORE_STATUS_INTERNAL_H

#include "core/status.h"

/* The first failure of a context, and what its text begins with. It is the first member of
   struct wf_context, so that status.c, which all of core calls, includes nothing of what calls
   it. */
typedef struct wf_failure {
    wf_error error;
    const char *path; /* the module that runs; NULL: none does */
    int rank;
} wf_failure;

#endif

/* parallel/report/profile_internal.h - the rows of a profile. Not installed. */
#ifndef WF_PARALLEL_REPORT_PROFILE_INTERNAL_H
#define WF_PARALLEL_REPORT_PROFILE_INTERNAL_H

#include "core/device.h"
#include "parallel/report/profile.h"

enum { WF_PROFILE_NAME = 40, WF_PROFILE_MODULE = 96, WF_PROFILE_CACHE = 1024 };

/* All events of a name in modules that are alike. */
typedef struct wf_profile_row {
    char name[WF_PROFILE_NAME], module[WF_PROFILE_MODULE];
    wf_trace_kind kind;
    int most_rank; /* the rank that spent most in it */
    int64_t calls, time, bytes, most;
    double flops;
} wf_profile_row;

/* The row that events with these pointers have. */
typedef struct wf_profile_cached {
    const char *name, *module;
    int64_t row;
} wf_profile_cached;

struct wf_profile {
    wf_profile_row *row;
    int64_t n, room, steps;
    int64_t launches, launch;             /* the trace's, when it was added last */
    wf_device_counts device, device_seen; /* likewise */
    int64_t count;                        /* steps that were added */
    int ranks;
    wf_profile_cached cache[WF_PROFILE_CACHE];
};

/* Adds a row of a rank. Errors: WF_ENOMEM */
wf_status wf_profile_put(wf_profile *profile, const wf_profile_row *row, wf_error *error);

/* Measures the peaks of this rank's device, by a product and a sum of large tensors. Errors: in
   the context */
wf_profile_peak wf_profile_measure(wf_par *par);

#endif

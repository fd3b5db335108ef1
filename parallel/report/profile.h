/*
 * parallel/report/profile.h - where the time of traced steps went: ops by module, waits, and
 * what is neither, as a table.
 *
 *     wf_trace *trace = wf_trace_open(1 << 17, &error);
 *     wf_mesh_trace(wf_par_mesh(par), trace);
 *     begin = wf_trace_now(); wf_par_train_step(trainer, 2, &data, &result); ns =
 *     wf_trace_now() - begin; wf_mesh_trace(wf_par_mesh(par), NULL);
 *     wf_profile_print(stdout, trace, ns, 0, 20);
 *
 * --trace prints it behind the timeline's summary. On a GPU an op's time is that of its launch.
 */
#ifndef WF_PARALLEL_REPORT_PROFILE_H
#define WF_PARALLEL_REPORT_PROFILE_H

#include "core/trace.h"
#include <stdio.h>

WF_BEGIN_DECLS

/** wf_profile_sums - the nanoseconds of a rank's traced steps, and its operations. */
typedef struct wf_profile_sums {
    int64_t steps; /* all of it */
    int64_t ops, waits;
    double flops;
} wf_profile_sums;

/** wf_profile_sum - returns the sums of a trace whose steps took `steps` nanoseconds. */
WF_API wf_profile_sums wf_profile_sum(const wf_trace *trace, int64_t steps);

/**
 * wf_profile_print - prints the dearest ops of a trace, by op and module (numbers of modules as
 * *, so that layers are one row), then the others, waits, and the rest of the steps' time, in
 * which the rank did neither: what these add up to is the steps' time
 *
 * @param steps  nanoseconds that the traced steps took
 * @param peak   FLOP/s that the device reaches at best, for a column of the share of it; 0:
 *               unknown, no column
 * @param rows   ops to print, at most
 * Errors:       WF_ENOMEM
 */
WF_API wf_status wf_profile_print(FILE *out, const wf_trace *trace, int64_t steps, double peak,
                                  int rows, wf_error *error);

/** wf_profile_print_ranks - prints what parts of the steps' time ranks spent in ops and in
 * waits: of the mean, and of the ranks that have most of each. */
WF_API void wf_profile_print_ranks(FILE *out, const wf_profile_sums *sums, int ranks);

WF_END_DECLS

#endif

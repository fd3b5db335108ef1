/*
 * parallel/report/profile.h - where the time of steps went, over all ranks: ops by module,
 * waits, what the host did beside ops, and launches, dearest first, as a table. --profile N
 * prints it; in a program of your own one call does, instead of wf_par_train_step:
 *
 *     wf_profile_step(trainer, step, &data, &result, stdout, 20);
 *
 * A loop of its own parts records by itself:
 *
 *     trace = wf_trace_open(1 << 17, &error);
 *     wf_mesh_trace(wf_par_mesh(par), trace); ..; wf_mesh_trace(wf_par_mesh(par), NULL);
 *     wf_profile_add(profile, trace, 0, ns, &error);
 *     wf_profile_report(profile, par, stdout, 20);
 *
 * On a GPU an op's time is that of its launch, unless the trace waits for ops
 * (wf_trace_wait_for_ops), as --profile and wf_profile_step have it.
 */
#ifndef WF_PARALLEL_REPORT_PROFILE_H
#define WF_PARALLEL_REPORT_PROFILE_H

#include "core/trace.h"
#include "parallel/train/train.h"
#include <stdio.h>

WF_BEGIN_DECLS

typedef struct wf_profile wf_profile; /* one rank's, or the sum of several */

/** wf_profile_sums - nanoseconds of profiled steps, over the ranks of a profile. */
typedef struct wf_profile_sums {
    int64_t steps; /* the whole, of which the others are parts */
    int64_t ops, waits, host, launch;
    double flops;         /* operations of these ops */
    int64_t calls, bytes; /* kernels of these ops, and what they read and write at least */
    /* number of steps, and the work and waits of a device with a queue (wf_device_counts) */
    int64_t count, launches, syncs, late_waits;
} wf_profile_sums;

/** wf_profile_peak - rates that a rank's device reaches at best; 0: unknown. */
typedef struct wf_profile_peak {
    double flops, bytes; /* a second */
} wf_profile_peak;

/** wf_profile_open - opens an empty profile. Owner: caller; wf_profile_close (NULL is allowed).
 * Errors: WF_ENOMEM; result is then NULL */
WF_API wf_profile *wf_profile_open(wf_error *error);
WF_API void wf_profile_close(wf_profile *profile);

/** wf_profile_add - adds the events of a trace from number `first` on, of steps that took
 * `steps` nanoseconds. Errors: WF_ENOMEM */
WF_API wf_status wf_profile_add(wf_profile *profile, const wf_trace *trace, int64_t first,
                                int64_t steps, wf_error *error);

/** wf_profile_sum - returns the sums of a profile. */
WF_API wf_profile_sums wf_profile_sum(const wf_profile *profile);

/**
 * wf_profile_print - prints the dearest rows of a profile, by name and module (numbers of
 * modules as *, so that layers are one row), then the others, and sums
 *
 * Times are means over the ranks of a profile. What all rows and "neither" add up to is the
 * steps' time.
 *
 * @param peak  for a column: operations a second of ops that declare theirs, bytes a second of
 *              others, as parts of these; NULL: no column
 * @param rows  to print, at most
 */
WF_API void wf_profile_print(FILE *out, wf_profile *profile, const wf_profile_peak *peak,
                             int rows);

/**
 * wf_profile_report - measures the device's peaks, on all ranks at once; adds up the profiles
 * of all ranks, and prints them on rank 0, with a line for each rank
 *
 * @param out  on rank 0; NULL prints nothing
 * Collective:  over the world. Errors: in the context, returned
 */
WF_API wf_status wf_profile_report(const wf_profile *profile, wf_par *par, FILE *out, int rows);

/** wf_profile_step - runs wf_par_train_step, and prints its profile on rank 0. Collective.
 * Errors: its own, and those of wf_profile_report */
WF_API wf_status wf_profile_step(wf_par_trainer *trainer, int64_t step, const wf_par_data *data,
                                 wf_par_step *result, FILE *out, int rows);

WF_END_DECLS

#endif

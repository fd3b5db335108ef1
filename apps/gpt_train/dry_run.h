/*
 * apps/gpt_train/dry_run.h - a training step as it would be, on one rank of any world.
 *
 * A dry run is the run itself on the fake device and the fake transport: the same calls, no memory,
 * no arithmetic. It takes milliseconds, and a model of 405 billion parameters a quarter of a second.
 */
#ifndef WF_APPS_DRY_RUN_H
#define WF_APPS_DRY_RUN_H

#include "apps/options/options.h"
#include <weft/weft.h>

typedef struct dry_run {
    wf_par_report report;     /* what the last step took */
    char inexact[WF_INEXACT]; /* the first place where the layout shows in the numbers, or "" */
} dry_run;

/* The second step of a run, as its rank --rank reports it, with what the first one leaves. */
wf_status dry_run_step(const app_options *options, dry_run *run, wf_error *error);

/* Whether that goes well, and the layout does not show in the numbers, unless --exact is off. */
bool dry_run_serves(const app_options *options, dry_run *run);

/* The same of any rank, whose ops, collectives and messages of that step are written down. */
wf_status dry_run_journal(const app_options *options, int rank, const wf_journal *journal,
                          dry_run *run, wf_error *error);

/* The first step of a run, and the memory of an evaluation and of a sample too where the run has any:
   what --memory-check compares. */
wf_status dry_run_start(const app_options *options, int rank, dry_run *run, wf_error *error);

/* Either of the two, of the rank --rank, that fails with WF_ENOMEM as soon as it takes more than
   `limit` bytes: faster where it does not fit. */
wf_status dry_run_within(const app_options *options, bool start, size_t limit, dry_run *run,
                         wf_error *error);

/* The fullest pipeline rank of two steps, to the byte. */
typedef struct dry_run_peak {
    size_t bytes;
    int rank;
    int64_t
        planned; /* so many ranks were planned; the unit profiles of these told the others' */
} dry_run_peak;

/* Errors: WF_ENOMEM: a rank takes more than `limit` bytes, of which 0 is none */
wf_status dry_run_peaks(const app_options *options, size_t limit, dry_run_peak *peak,
                        wf_error *error);

enum { DRY_RUN_AXES = 4 };

/* The mesh's axes, outermost first, with what a rank receives over each in a step. */
wf_status dry_run_axes(const app_options *options, wf_place_axis axis[DRY_RUN_AXES],
                       wf_error *error);

/* Bytes that the rank receives in the step, over all axes. */
double dry_run_traffic(const dry_run *run);

#endif

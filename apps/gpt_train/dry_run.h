/* apps/gpt_train/dry_run.h - plans of what the flags describe: parallel/plan/plan.h with the flags' job. */
#ifndef WF_APPS_DRY_RUN_H
#define WF_APPS_DRY_RUN_H

#include "apps/options/options.h"
#include <weft/weft.h>

/* The second step of a run, as its rank --rank reports it, with what the first one leaves. */
wf_status dry_run_step(const app_options *options, wf_plan *plan, wf_error *error);

/* Whether that goes well, and the layout does not show in the numbers, unless --exact is off. */
bool dry_run_serves(const app_options *options, wf_plan *plan);

/* The same of any rank, whose ops, collectives and messages of that step are written down. */
wf_status dry_run_journal(const app_options *options, int rank, const wf_journal *journal,
                          wf_plan *plan, wf_error *error);

/* The first step of a run, and the memory of an evaluation and of a sample too where the run has any:
   what --memory-check compares. */
wf_status dry_run_start(const app_options *options, int rank, wf_plan *plan, wf_error *error);

/* Either of the two, of the rank --rank, that fails with WF_ENOMEM as soon as it takes more than
   `limit` bytes: faster where it does not fit. */
wf_status dry_run_within(const app_options *options, bool start, size_t limit, wf_plan *plan,
                         wf_error *error);

/* The fullest pipeline rank. Errors: WF_ENOMEM: a rank takes more than `limit` bytes, of which 0 is none */
wf_status dry_run_peaks(const app_options *options, size_t limit, wf_plan_peak *peak,
                        wf_error *error);

enum { DRY_RUN_AXES = 4 };

/* The mesh's axes, outermost first, with what a rank receives over each in a step. */
wf_status dry_run_axes(const app_options *options, wf_place_axis axis[DRY_RUN_AXES],
                       wf_error *error);

#endif

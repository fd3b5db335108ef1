/*
 * apps/timeline.h - the timeline of a run as a Chrome trace: JSON that https://ui.perfetto.dev and
 * chrome://tracing open, also while it still lacks its end. A rank is a process there, with a row
 * for what it computes and waits for, and one for what is communicated meanwhile.
 */
#ifndef WF_APPS_TIMELINE_H
#define WF_APPS_TIMELINE_H

#include <stdio.h>
#include <weft/weft.h>

typedef struct wf_timeline wf_timeline; /* one for all ranks of the process */

/**
 * wf_timeline_open - opens the file, so that a run does not begin whose timeline cannot be kept.
 *
 * Owner:   the caller, wf_timeline_close
 * Errors:  WF_EIO with path and reason, WF_ENOMEM; *timeline is then NULL
 */
wf_status wf_timeline_open(const char *path, wf_timeline **timeline, wf_error *error);

/**
 * wf_timeline_add - what one rank did; ranks may call at the same time.
 *
 * Errors:  WF_EIO with path and reason, WF_ENOMEM
 */
wf_status wf_timeline_add(wf_timeline *timeline, int rank, const wf_trace *trace,
                          wf_error *error);

/**
 * wf_timeline_close - ends and closes the file; NULL is allowed.
 *
 * Errors:  WF_EIO where the file's last bytes could not be kept
 */
wf_status wf_timeline_close(wf_timeline *timeline, wf_error *error);

/** wf_timeline_summary - how long collectives took by axis and kind, how much of that passed while
 * kernels ran, and how long the rank stood still for them. */
void wf_timeline_summary(FILE *out, const wf_trace *trace);

#endif

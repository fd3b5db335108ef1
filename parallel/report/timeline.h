/*
 * parallel/report/timeline.h - the timeline of a run as a Chrome trace: JSON that
 * https://ui.perfetto.dev and chrome://tracing open. A rank is a process there, with a row for
 * what it computes and waits for, and one for what is communicated meanwhile. The file is valid
 * JSON whenever it is read: an empty list until the rows of all ranks are there, which then
 * replace it, rank by rank; of a run that fails, the rows that have come.
 */
#ifndef WF_PARALLEL_REPORT_TIMELINE_H
#define WF_PARALLEL_REPORT_TIMELINE_H

#include "core/trace.h"
#include <stdio.h>

WF_BEGIN_DECLS

typedef struct wf_timeline wf_timeline; /* one for all ranks, where rank 0 runs */

/**
 * wf_timeline_open - makes the file, so that a run does not begin whose timeline cannot be
 * kept.
 *
 * @param ranks  how many will put rows
 * Owner:   the caller, wf_timeline_close
 * Errors:  WF_EIO with path and reason, WF_ENOMEM; *timeline is then NULL
 */
WF_API wf_status wf_timeline_open(const char *path, int ranks, wf_timeline **timeline,
                                  wf_error *error);

/** wf_timeline_begin - replaces the file by a timeline of nothing, which is whole; before it
 * nothing is written. Errors: WF_EIO with path and reason */
WF_API wf_status wf_timeline_begin(wf_timeline *timeline, wf_error *error);

/** wf_timeline_clock - nanoseconds since 1970: what the hosts of a run have in common. */
WF_API int64_t wf_timeline_clock(void);

/**
 * wf_timeline_text - what one rank did, as rows of the file, which another process may put
 * there.
 *
 * @param zero  when the timeline begins, by wf_timeline_clock
 * Owner:       the caller, free; NULL on failure
 * Errors:      WF_ENOMEM
 */
WF_API wf_status wf_timeline_text(int rank, const wf_trace *trace, int64_t zero, char **text,
                                  size_t *bytes, wf_error *error);

/**
 * wf_timeline_put - the rows of a rank, once for each; with the last ones the file is written.
 * Ranks may call at the same time. What cannot be written is tried again, and told, when the
 * timeline closes: a run is worth more.
 *
 * @param text  from wf_timeline_text; the timeline's from now on
 */
WF_API void wf_timeline_put(wf_timeline *timeline, int rank, char *text, size_t bytes);

/**
 * wf_timeline_close - writes what has come since, and frees the timeline; NULL is allowed.
 *
 * Errors:  WF_EIO with path and reason
 */
WF_API wf_status wf_timeline_close(wf_timeline *timeline, wf_error *error);

/** wf_timeline_summary - how long collectives took by axis and kind, how much of that passed
 * while kernels ran, and how long the rank stood still for them. */
WF_API void wf_timeline_summary(FILE *out, const wf_trace *trace);

WF_END_DECLS

#endif

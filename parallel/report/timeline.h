/*
 * parallel/report/timeline.h - the timeline of a run as a Chrome trace: JSON that
 * https://ui.perfetto.dev and chrome://tracing open. A rank is a process there, with a row for
 * computing and waiting, and one for concurrent communication. The file is valid JSON at any
 * time: an empty list until the rows of all ranks are there, which then replace it, rank by
 * rank; of a run that fails, the rows that have come.
 */
#ifndef WF_PARALLEL_REPORT_TIMELINE_H
#define WF_PARALLEL_REPORT_TIMELINE_H

#include "core/trace.h"
#include <stdio.h>

WF_BEGIN_DECLS

typedef struct wf_timeline wf_timeline; /* one for all ranks, where rank 0 runs */

/**
 * wf_timeline_open - makes the file, so that a run whose timeline cannot be written does not
 * begin.
 *
 * @param ranks  how many will put rows
 * Owner:   the caller, wf_timeline_close
 * Errors:  WF_EIO with path and reason, WF_ENOMEM; *timeline is then NULL
 */
WF_API wf_status wf_timeline_open(const char *path, int ranks, wf_timeline **timeline,
                                  wf_error *error);

/** wf_timeline_begin - replaces the file by an empty timeline; before it nothing is written.
 * Errors: WF_EIO with path and reason */
WF_API wf_status wf_timeline_begin(wf_timeline *timeline, wf_error *error);

/** wf_timeline_clock - returns nanoseconds since 1970, which the hosts of a run have in
 * common. */
WF_API int64_t wf_timeline_clock(void);

/**
 * wf_timeline_text - writes a rank's events as rows of the file, which another process may put
 * there.
 *
 * @param zero  the beginning of the timeline, by wf_timeline_clock
 * Owner:       the caller, free; NULL on failure
 * Errors:      WF_ENOMEM
 */
WF_API wf_status wf_timeline_text(int rank, const wf_trace *trace, int64_t zero, char **text,
                                  size_t *bytes, wf_error *error);

/**
 * wf_timeline_put - adds the rows of a rank, once for each; with the last ones the file is
 * written. Ranks may call at the same time. A failed write is repeated, and reported, when the
 * timeline closes: it does not stop the run.
 *
 * @param text  from wf_timeline_text; the timeline's from now on
 */
WF_API void wf_timeline_put(wf_timeline *timeline, int rank, char *text, size_t bytes);

/**
 * wf_timeline_close - writes the rows since the last write, and frees the timeline; NULL is
 * allowed.
 *
 * Errors:  WF_EIO with path and reason
 */
WF_API wf_status wf_timeline_close(wf_timeline *timeline, wf_error *error);

/** wf_timeline_summary - prints the time of collectives by axis and kind, the part of it that
 * passed while kernels ran, and the time that the rank waited for them. */
WF_API void wf_timeline_summary(FILE *out, const wf_trace *trace);

WF_END_DECLS

#endif

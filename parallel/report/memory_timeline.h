/*
 * parallel/report/memory_timeline.h - what memory a rank has in use over a step, and what holds
 * it at the peak, as a picture (SVG). It counts what the pool counts, change by change in the
 * program's order, so that a plan and a run have one peak, to the byte in each kind; of one
 * rank they have one picture. Ranks of a process that share memory take other blocks than a
 * plan.
 *
 *     timeline = wf_memory_timeline_open(wf_context_pool(ctx), &error);  // before the model
 *     wf_memory_timeline_begin(timeline);
 *     wf_par_train_step(trainer, 2, &data, &result);
 *     wf_memory_timeline_end(timeline);
 *     wf_memory_timeline_write(timeline, "rank 0, step 2", "memory.svg", &error);
 */
#ifndef WF_PARALLEL_REPORT_MEMORY_TIMELINE_H
#define WF_PARALLEL_REPORT_MEMORY_TIMELINE_H

#include "core/memory/memory.h"

WF_BEGIN_DECLS

typedef struct wf_memory_timeline wf_memory_timeline;

/**
 * wf_memory_timeline_open - watches a pool from now on, to know which module took each block
 *
 * Owner:   caller; wf_memory_timeline_close (NULL is allowed), before the pool is closed
 * Errors:  WF_ENOMEM; result is then NULL
 */
WF_API wf_memory_timeline *wf_memory_timeline_open(wf_pool *pool, wf_error *error);
WF_API void wf_memory_timeline_close(wf_memory_timeline *timeline);

/** wf_memory_timeline_begin - begins a step, and forgets the one before;
 * wf_memory_timeline_end - ends it. */
WF_API void wf_memory_timeline_begin(wf_memory_timeline *timeline);
WF_API void wf_memory_timeline_end(wf_memory_timeline *timeline);

/** wf_memory_timeline_peak - returns the most bytes that were in use in the step; by_kind is
 * filled with their kinds. */
WF_API size_t wf_memory_timeline_peak(const wf_memory_timeline *timeline,
                                      size_t by_kind[WF_MEMORY_KINDS]);

enum { WF_MEMORY_TITLE = 64 };

/** wf_memory_timeline_title - writes the title of a rank's picture, of a plan and of a run;
 * returns it. */
WF_API const char *wf_memory_timeline_title(int rank, char title[WF_MEMORY_TITLE]);

/**
 * wf_memory_timeline_write - draws the step: bytes by kind, its phases, the peak, and the
 * modules that hold most of it
 *
 * @param title  what it is of
 * Errors:       WF_ENOMEM, also where there was none to note a change; WF_EIO
 */
WF_API wf_status wf_memory_timeline_write(const wf_memory_timeline *timeline, const char *title,
                                          const char *path, wf_error *error);

WF_END_DECLS

#endif

/* parallel/report/rank_trace.h - the part of one rank in a run's timeline: it records the
   events of some steps, and hands them in. */
#ifndef WF_PARALLEL_REPORT_RANK_TRACE_H
#define WF_PARALLEL_REPORT_RANK_TRACE_H

#include "parallel/report/timeline.h"
#include "parallel/train/train.h"

WF_BEGIN_DECLS

typedef struct wf_rank_trace {
    wf_rank *rank;
    wf_par *par;
    bool traced;           /* false: all below do nothing but train */
    int64_t first, last;   /* steps */
    wf_timeline *timeline; /* in rank 0's process; else NULL */
    FILE *out;             /* for this rank's summary; NULL: none */
    wf_trace *trace;       /* NULL: none is kept, or it is written already */
    int64_t zero;          /* the common time 0 of all ranks */
    int64_t spent;         /* nanoseconds of traced steps */
} wf_rank_trace;

/** wf_rank_trace_open - begins to count from rank 0's clock. Collective over the world. Errors:
 * in the context */
WF_API wf_status wf_rank_trace_open(wf_rank_trace *t);

/** wf_rank_trace_step - runs wf_par_train_step, and traces the steps that are asked for.
 * Collective. */
WF_API wf_status wf_rank_trace_step(wf_rank_trace *t, wf_par_trainer *trainer, int64_t step,
                                    const wf_par_data *data, wf_par_step *result);

/**
 * wf_rank_trace_close - hands the rows in and prints the summary, when the last traced step is
 * done or the run ends
 *
 * Of a failed run, rank 0's process alone hands in. Collective. Errors: in the context
 */
WF_API wf_status wf_rank_trace_close(wf_rank_trace *t);

WF_END_DECLS

#endif

/* parallel/report/rank_trace.h - the part of one rank in a run's timeline and profile: it
   records the events of some steps, and hands them in. */
#ifndef WF_PARALLEL_REPORT_RANK_TRACE_H
#define WF_PARALLEL_REPORT_RANK_TRACE_H

#include "parallel/report/profile.h"
#include "parallel/report/timeline.h"
#include "parallel/train/train.h"

WF_BEGIN_DECLS

typedef struct wf_rank_trace {
    wf_rank *rank;
    wf_par *par;
    bool traced;           /* has a timeline */
    int profile;           /* rows of a profile; 0: none, and without both all below train */
    int64_t first, last;   /* steps */
    wf_timeline *timeline; /* in rank 0's process; else NULL */
    FILE *out;             /* rank 0 prints the profile to it */
    FILE *summary;         /* for this rank's summary of the timeline; NULL: none */
    wf_trace *trace;       /* NULL: none is kept, or it is written already */
    wf_profile *dearest;   /* likewise, with `profile` */
    int64_t zero;          /* the common time 0 of all ranks */
    int64_t spent;         /* nanoseconds of the last step, if it was traced */
    int64_t seen;          /* events that the profile has */
    int64_t lost;          /* events that found no room */
} wf_rank_trace;

/** wf_rank_trace_open - begins to count from rank 0's clock. Collective over the world. Errors:
 * in the context */
WF_API wf_status wf_rank_trace_open(wf_rank_trace *t);

/** wf_rank_trace_launch, wf_rank_trace_finish - run wf_par_train_launch and
 * wf_par_train_finish, and trace the steps that are asked for; wf_rank_trace_end_step - does
 * what is due after such a step: it takes its events into the profile, and after the last one
 * closes. Collective. Errors: in the context */
WF_API wf_status wf_rank_trace_launch(wf_rank_trace *t, wf_par_trainer *trainer, int64_t step,
                                      const wf_par_data *data);
WF_API wf_status wf_rank_trace_finish(wf_rank_trace *t, wf_par_trainer *trainer, int64_t step,
                                      wf_par_step *result);
WF_API wf_status wf_rank_trace_end_step(wf_rank_trace *t, int64_t step);

/** wf_rank_trace_may_follow - returns true where the step after this one may be launched before
 * it is finished: not where tracing begins or ends in between. */
WF_API bool wf_rank_trace_may_follow(const wf_rank_trace *t, int64_t step);

/**
 * wf_rank_trace_close - hands the rows in and prints the summary, when the last traced step is
 * done or the run ends
 *
 * Of a failed run, rank 0's process alone hands in. Collective. Errors: in the context
 */
WF_API wf_status wf_rank_trace_close(wf_rank_trace *t);

WF_END_DECLS

#endif

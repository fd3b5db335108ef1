/* apps/gpt_train/rank_trace.h - the part of one rank in the timeline of --trace. */
#ifndef WF_APPS_RANK_TRACE_H
#define WF_APPS_RANK_TRACE_H

#include "parallel/report/timeline.h"
#include "apps/options/options.h"
#include <weft/weft.h>

typedef struct rank_trace {
    wf_rank *rank;
    wf_par *par;
    const app_options *options;
    wf_timeline *timeline; /* where rank 0 runs; else NULL */
    wf_trace *trace;       /* NULL: none is kept, or it is written already */
    int64_t zero;          /* where all ranks count from */
} rank_trace;

/* Begin to count from rank 0's clock, where there is a --trace. Collective. Errors: in the context. */
wf_status rank_trace_open(rank_trace *t);

/* wf_par_train_step, of which the trace keeps the steps that are asked for. Collective. */
wf_status rank_trace_step(rank_trace *t, wf_par_trainer *trainer, int64_t step,
                          const wf_par_data *data, wf_par_step *result);

/* Hand the rows in and print the summary, when the last traced step is done or the run ends; of a run
   that has failed, rank 0's process alone hands in. Collective. Errors: in the context. */
wf_status rank_trace_close(rank_trace *t);

#endif

/* parallel/pipeline/lower_internal.h - passes: each is a function of a table, and makes a new
   one. */
#ifndef WF_PARALLEL_PIPELINE_LOWER_INTERNAL_H
#define WF_PARALLEL_PIPELINE_LOWER_INTERNAL_H

#include "parallel/pipeline/lower.h"
#include "parallel/pipeline/table_internal.h"

/* Fills the rows of `out`, whose shape, ranks of stages and facts are those of `in`; errors
   stay with `out`. */
typedef wf_status wf_pipe_pass(const wf_pipe_table *in, const wf_pipe_lowering *how,
                               wf_pipe_table *out);

wf_pipe_pass wf_pipe_pass_recompute, wf_pipe_pass_join, wf_pipe_pass_unshard,
    wf_pipe_pass_reduce, wf_pipe_pass_messages, wf_pipe_pass_finish;

/* Returns how many actions from i on stay together: two that may overlap, else one. */
static inline int wf_pipe_together(const wf_pipe_row *row, int64_t i)
{
    return row->action[i].with_next && i + 1 < row->n ? 2 : 1;
}

/* The stage on another rank that a compute action sends to, or takes from; -1: none. */
int wf_pipe_sends_to(const wf_pipe_table *t, const wf_pipe_action *a);
int wf_pipe_takes_from(const wf_pipe_table *t, const wf_pipe_action *a);

/* Returns the index of the message out of, or into, an action in arrays of 2 * stages *
   micro-batches: forward messages by the stage that they go to, then gradients likewise. */
int64_t wf_pipe_message_at(const wf_pipe_table *t, bool forward, int to_stage, int micro);

#endif

/* parallel/pipeline/prove_internal.h - what is looked at in rows one by one, and in messages by
   pairs. */
#ifndef WF_PARALLEL_PIPELINE_PROVE_INTERNAL_H
#define WF_PARALLEL_PIPELINE_PROVE_INTERNAL_H

#include "parallel/pipeline/lower_internal.h"

/* The state of a row while it is read: what has been done of each (stage, micro-batch), a bit
   for a kind (B sets those of I and W), and of each stage. */
typedef struct wf_pipe_reading {
    const wf_pipe_table *table;
    wf_error *error;
    uint32_t *done; /* [stages * micro-batches] bits 1 << kind */
    struct wf_pipe_stage_state {
        int weights, covered; /* micro-batches with W; those whose gradients are in a REDUCE */
        int open, last;       /* the micro-batches of the REDUCE that has not ended; -1: none */
        bool resident, updated;
    } * stage; /* [stages] */
    int rank, n_resident;
    int64_t action; /* the one that is read, from 0 */
    bool tied, normed;
} wf_pipe_reading;

/* Reads all rows: actions are on the rank of their stage, once, after what they need, and none
   is left out. */
wf_status wf_pipe_prove_rows(const wf_pipe_table *table, wf_error *error);

/* The actions that are not of one (stage, micro-batch): gathers, reductions, the end of a
   step. */
wf_status wf_pipe_prove_stage_action(wf_pipe_reading *p, const wf_pipe_action *a);

/* Refuses the action that is read: "rank 1, action 5 of 96, I2.0: ...". */
wf_status wf_pipe_prove_refuse(const wf_pipe_reading *p, const char *format, ...)
    WF_PRINTF(2, 3);

/* Proves of a lowered table whose rows are right: messages of each pair of ranks are received
   in the order in which they are sent, and not too many are in flight. */
wf_status wf_pipe_prove_messages(const wf_pipe_table *table, wf_pipe_proof *proof,
                                 wf_error *error);

#endif

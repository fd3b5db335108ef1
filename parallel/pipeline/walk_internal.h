/*
 * parallel/pipeline/walk_internal.h - rows walked as ranks would do them: each continues until
 * it waits for another one. Programs make no choices, so one order of walking represents all:
 * it reaches the end, or stops where every execution does.
 */
#ifndef WF_PARALLEL_PIPELINE_WALK_INTERNAL_H
#define WF_PARALLEL_PIPELINE_WALK_INTERNAL_H

#include "parallel/pipeline/table_internal.h"

typedef struct wf_pipe_walk {
    const wf_pipe_table *table;
    const wf_pipe_costs *costs;
    wf_pipe_timing *timing;     /* filled in as actions begin and end; NULL: not asked for */
    int64_t *forward, *inputs;  /* [stages * micro-batches] when F and I ended; -1: not yet */
    int64_t *sent, *received;   /* [2 * stages * micro-batches] when messages began and ended */
    int64_t *next, *clock;      /* [ranks] the next action of a row, and when it may begin */
    int64_t meeting[2];         /* the last clock at TIE and at NORM */
    bool *met[2];               /* [ranks] the ranks that have reached them */
    int *ready, *waiter, *then; /* [ranks] a stack; who waits for a rank, first and next one */
} wf_pipe_walk;

/* Walks to the end. Errors: WF_EINVAL: it stops before the end, reported as the chain of ranks
   that wait for each other; WF_ENOMEM. */
wf_status wf_pipe_walk_run(const wf_pipe_table *table, const wf_pipe_costs *costs,
                           wf_pipe_timing *timing, wf_error *error);

/* The stage that a message of SEND or SENT out of this stage goes to; of RECV and RECVD: comes
   from. */
int wf_pipe_peer_stage(const wf_pipe_action *action);

/* Returns true where a kind is one of the four of forward messages. */
bool wf_pipe_forward_message(int kind);

#endif

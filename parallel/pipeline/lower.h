/*
 * parallel/pipeline/lower.h - lowering: adds messages, gathers and reductions to a table of
 * compute actions, as ranks run it; and the proof that the whole of it can run.
 *
 *     wf_pipe_lowering how = {.depth = 1, .ahead = 1};
 *
 *     wf_pipe_lower(table, &how, &lowered, &error);
 *     wf_pipe_prove(lowered, &proof, &error);
 */
#ifndef WF_PARALLEL_PIPELINE_LOWER_H
#define WF_PARALLEL_PIPELINE_LOWER_H

#include "parallel/pipeline/schedule.h"

WF_BEGIN_DECLS

/* Messages from one rank to another that transports keep in flight, at most. */
enum { WF_PIPE_MOST_IN_FLIGHT = 32 };

/* Micro-batches of which one product makes gradients of weights, at most. */
enum { WF_PIPE_MOST_JOINED = 4 };

/** wf_pipe_lowering - the options of lowering. */
typedef struct wf_pipe_lowering {
    /* messages to one rank that are begun before the first of them has to end; 0: each ends
       where it began */
    int depth;
    int ahead;      /* receives from one rank that are begun before they are needed */
    bool recompute; /* R before each I or B */
    /* micro-batches whose gradients are reduced together: 0 none, else a power of two */
    int group;
    int resident; /* most stages of a rank that are gathered at a time; 0: no gathers */
    int prefetch; /* compute actions before the first use at which a gather begins */
    /* stages at the beginning without trained parameters: no gradient is sent to them */
    int frozen;
    bool tied; /* the first and the last stage share a parameter */
} wf_pipe_lowering;

/**
 * wf_pipe_lower - lowers a table of compute actions: adds the other actions of ranks
 *
 * The passes, in order: R; W of one stage that follow each other become one, Ws.a-b, where
 * these micro-batches are a node of the tree of sums; UNSHARD and RESHARD, where the stage
 * whose next use is the farthest is resharded; REDUCE after the last W or B of its
 * micro-batches, REDUCED before the next one of the stage or at the end; messages; TIE, NORM
 * and OPT. SEND follows its compute action directly, the SENT of a rank's i-th message to
 * another comes before its (i + depth)-th SEND, and the others at the end. Receives from a rank
 * are in the order in which it sends. Stages of one rank need no message.
 *
 * @param lowered  the new table, the caller's: wf_pipe_table_free; NULL on errors
 * Errors:         WF_EINVAL: the table is lowered already or not valid by wf_pipe_prove, or a
 *                 number is out of range; WF_ENOMEM
 */
WF_API wf_status wf_pipe_lower(const wf_pipe_table *table, const wf_pipe_lowering *how,
                               wf_pipe_table **lowered, wf_error *error);

/** wf_pipe_proof - properties of a table that can run. */
typedef struct wf_pipe_proof {
    int64_t compute,
        messages;  /* actions that compute, Ws.a-b as many as it has micro-batches; messages */
    int in_flight; /* most messages from one rank to another that are begun and not ended */
    int peak;      /* most live activations of a rank, in stages */
} wf_pipe_proof;

/**
 * wf_pipe_prove - proves that a table ends, on every execution, with every gradient there once
 *
 * Each stage is placed, and each (stage, micro-batch) has one F and one B, or one I and one W,
 * on its rank and after the actions that they need. Of a lowered table also: the k-th message
 * that a rank sends to another is the k-th that the other receives; at most 32 are in flight;
 * sends end though they end only when received; stages are gathered where they are used;
 * reductions cover each micro-batch once and cut no group; NORM comes after all gradients and
 * OPT after NORM. Takes time in proportion to the actions.
 *
 * @param proof  filled in; NULL: none
 * Errors:       WF_EINVAL with a sentence that names the rank, the action and the cause; of a
 *               deadlock, the cycle of ranks that wait. WF_ENOMEM
 */
WF_API wf_status wf_pipe_prove(const wf_pipe_table *table, wf_pipe_proof *proof,
                               wf_error *error);

/**
 * wf_pipe_proof_text - writes a proof in a line; returns text.
 * 
 *     schedule zb-v: 8 ranks, 16 stages, 32 micro-batches, 1536 actions, 896 messages, at most
 *     2 in flight; no deadlock; peak 16 activations
 *
 *     schedule zb-v: 8 ranks, 16 stages, 32 micro-batches, 1536 actions, 896 messages, at most
 *     2 in flight; no deadlock; peak 16 activations
 */
WF_API char *wf_pipe_proof_text(const char *name, const wf_pipe_table *table,
                                const wf_pipe_proof *proof, char *text, size_t size);

/** wf_pipe_depths - the message depths of a table of compute actions. */
typedef struct wf_pipe_depths {
    int least;        /* the smallest without a deadlock, at least 1 */
    int fastest;      /* the smallest that costs no time */
    int64_t makespan; /* ticks at the fastest */
} wf_pipe_depths;

/**
 * wf_pipe_find_depths - finds the depths by trying them
 *
 * @param how    the other options of lowering; its depth is not read
 * @param costs  in which time is counted
 * Errors:       those of wf_pipe_lower
 */
WF_API wf_status wf_pipe_find_depths(const wf_pipe_table *table, const wf_pipe_lowering *how,
                                     const wf_pipe_costs *costs, wf_pipe_depths *depths,
                                     wf_error *error);

WF_END_DECLS

#endif

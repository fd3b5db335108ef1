/*
 * parallel/simulate/simulate.h - simulates a lowered table, with costs of each stage: makespan,
 * work and waits of each rank, the critical path, and the worth of one percent more of
 * anything.
 *
 *     wf_sim_costs costs = {.stage = stage, .background = true};
 *
 *     wf_sim_run(table, &costs, WF_SIM_PATH, &result, &error);
 *     printf("%g s, of which %g s tensor-parallel\
 * ", result.makespan,
 *            result.path.of[WF_SIM_TENSOR]);
 *     wf_sim_result_free(&result);
 *
 * Ranks run their rows, as soon as they can. A message begins where both its ends are posted
 * and the link from one rank to the other is free; gathers and reductions of a rank follow each
 * other on one lane. Nothing is rounded: costs that are whole numbers give whole numbers.
 */
#ifndef WF_PARALLEL_SIMULATE_SIMULATE_H
#define WF_PARALLEL_SIMULATE_SIMULATE_H

#include "parallel/pipeline/schedule.h"

WF_BEGIN_DECLS

/** wf_sim_term - the categories of time: the rows of parallel/simulate/terms.def. */
typedef enum wf_sim_term {
#define TERM(name, words) WF_SIM_##name,
#include "parallel/simulate/terms.def"
#undef TERM
    WF_SIM_TERMS
} wf_sim_term;

/** wf_sim_term_name - returns "matrix products", .. Owner: static string. */
WF_API const char *wf_sim_term_name(wf_sim_term term);

/** wf_sim_cost - seconds, or any unit, by category. */
typedef struct wf_sim_cost {
    double of[WF_SIM_TERMS];
} wf_sim_cost;

/** wf_sim_total - returns the sum of a cost. */
WF_API double wf_sim_total(const wf_sim_cost *cost);

/** wf_sim_stage - the costs of a stage. */
typedef struct wf_sim_stage {
    wf_sim_cost forward, inputs,
        weights; /* F (and R), I, W of a micro-batch; B is I and W .. */
    /* .. and this, which may be below 0: work that runs concurrently with one of them */
    wf_sim_cost joined;
    /* the W or B that completes a group of this many micro-batches takes `sum`, or
       `sum_joined`, more; 0: none does */
    int group;
    double sum, sum_joined,
        /* or that, where a W is of several micro-batches: their sums begin after its
           products */
        sum_after;
    double gather, reduce, update; /* UNSHARD, REDUCE, OPT */
    double units,
        /* the number of last gathers of UNSHARD, of `unit` seconds each, that are waited for
           one by one, as the action that needs them computes; 0: all of them are waited for
           first */
        unit;
    /* number of parts of REDUCE: the next one begins when the one before it was waited for,
       after an action that computes; 0: all of it progresses by itself */
    int buckets;
    double send_forward, send_backward; /* the messages out of it, without their latency */
    /* the parts of `forward` and `inputs` that wait for exchanges of experts' tokens */
    double exchange_forward, exchange_back;
} wf_sim_stage;

/** wf_sim_costs - the costs of a table. */
typedef struct wf_sim_costs {
    const wf_sim_stage *stage; /* [stages] */
    double latency;            /* in front of the bytes of a message */
    double tie, norm;          /* TIE, and NORM for all ranks */
    /* transfers that were begun progress while ranks compute; else they run where a rank ends
       them, as between ranks that are threads */
    bool background;
    bool blocks; /* actions that may overlap begin when both can and end together */
    /* those of wf_pipe_runs_beside do, and the exchanges of one are hidden by what the other
       computes */
    bool beside;
    /* ranks that compute at a time, more share them evenly; 0: each has its own */
    int cores;
} wf_sim_costs;

/** wf_sim_rank - the time of a rank in a step. */
typedef struct wf_sim_rank {
    wf_sim_cost spent; /* computing, by term */
    double messages;   /* waiting for a message, or for one to be taken */
    double gathers;    /* waiting for a gather */
    double reductions; /* waiting for a reduction */
    double others;     /* waiting for all ranks, at TIE and NORM */
    double fill,
        /* parts of `messages` and `others`: before its first and after its last F, I, W or B */
        drain;
    double begin, end; /* its first and last F, I, W or B */
    double busy;       /* in these */
} wf_sim_rank;

/** wf_sim_action - an action on the critical path. */
typedef struct wf_sim_action {
    int rank;
    int64_t index; /* in its row */
    double begin, end;
} wf_sim_action;

/** wf_sim_result - a step in time. */
typedef struct wf_sim_result {
    double makespan;
    /* idle time of all ranks over makespan times ranks; time in F, I, W and B is not idle */
    double bubble;
    wf_sim_rank *rank; /* [ranks] */
    int ranks;
    /* the makespan by term, along the critical path: 1 % less of a term makes the step 1 % of
       this shorter */
    wf_sim_cost path;
    wf_sim_action *action; /* [actions] on that path, from the begin of the step to its end */
    int64_t actions;
    double **start, **end; /* [ranks][actions of the row]; NULL without WF_SIM_PATH */
} wf_sim_result;

/** WF_SIM_PATH - finds the critical path, and keeps when each action begins and ends. */
enum { WF_SIM_PATH = 1 };

/**
 * wf_sim_run - computes when each action of a lowered table begins and ends
 *
 * @param flags   0, or WF_SIM_PATH
 * @param result  the caller's; wf_sim_result_free
 * Collective:    no
 * Errors:        WF_EINVAL: the table is not lowered, or cannot end (wf_pipe_prove says why);
 *                WF_ENOMEM
 */
WF_API wf_status wf_sim_run(const wf_pipe_table *table, const wf_sim_costs *costs, int flags,
                            wf_sim_result *result, wf_error *error);
WF_API void wf_sim_result_free(wf_sim_result *result);

WF_END_DECLS

#endif

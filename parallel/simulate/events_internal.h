/* parallel/simulate/events_internal.h - the state of a simulation, and an action's three
   moments. Not installed. */
#ifndef WF_PARALLEL_SIMULATE_EVENTS_INTERNAL_H
#define WF_PARALLEL_SIMULATE_EVENTS_INTERNAL_H

#include "parallel/simulate/simulate.h"

enum { WF_SIM_NOT_YET = -1 };

/* The last dependency of an action: the cause of the time before it. */
typedef struct wf_sim_cause {
    int rank; /* waited for; -1: it began when its row reached it */
    int64_t index;
    /* category of the time between that action's end and this one's begin */
    wf_sim_term term;
    double gathers, reductions; /* beside what it computes it waits for these */
} wf_sim_cause;

/* A message: the posts of both ends, and when it is there; -1: not yet. */
typedef struct wf_sim_message {
    double sent, received, arrives;
    int64_t send, recv; /* the actions, in the rows of the two ranks */
} wf_sim_message;

/* The state of a (stage, micro-batch). */
typedef struct wf_sim_node {
    double forward, inputs;
    int64_t forward_at, inputs_at; /* the actions */
} wf_sim_node;

typedef struct wf_sim_state {
    const wf_pipe_table *table;
    const wf_sim_costs *costs;
    wf_pipe_shape shape;
    wf_pipe_facts facts;
    wf_sim_result *result;
    const wf_pipe_action **row;
    int64_t *n, *next; /* [ranks] */
    double *clock;     /* [ranks] */
    double *lane;      /* [ranks] when gathers and reductions are done */
    double *link;      /* [ranks * ranks] when the link from one to another is free */
    double *gathered;  /* [stages] when its parameters are there */
    double *reduced;   /* [stages] likewise */
    int64_t *gather_at, *reduce_at; /* [stages] the actions that began it */
    bool *unpaid;                   /* [stages] of a gather that has not been waited for yet */
    int *left;         /* [stages] buckets of a reduction that has not been waited for yet */
    wf_sim_node *node; /* [stages * micro] */
    wf_sim_message *message; /* [2 * stages * micro] */
    int *rank_of;            /* [stages] */
    wf_sim_cause **cause;    /* [ranks][actions]; NULL: not asked for */
    double meeting[2];       /* the latest arrival at TIE, at NORM */
    int latest[2];           /* who that was */
    int64_t latest_at[2];    /* after which of its actions */
    int come[2];             /* number of ranks that have arrived */
    bool *met[2];            /* [ranks] */
} wf_sim_state;

/* The action of a rank as it can begin. */
typedef struct wf_sim_turn {
    double begin;     /* -1: it waits for another rank */
    int awaits;       /* for that rank, or -1: any */
    wf_sim_cost cost; /* from its begin to its end */
    double duration;  /* all of that */
    double waits;     /* from when its row reached it until it begins */
    /* counts also the part of `cost` that waits for gathers and reductions */
    wf_sim_cause cause;
    int count; /* actions that begin and end together: 1, or 2 of a block */
} wf_sim_turn;

/* Returns whether action i of a rank and the next one begin and end together. */
bool wf_sim_is_block(const wf_sim_state *s, int rank, int64_t i);

/* The next action of a rank, if it can begin. */
wf_sim_turn wf_sim_look(wf_sim_state *s, int rank);

/* It has been done, until `end`. */
void wf_sim_commit(wf_sim_state *s, int rank, const wf_sim_turn *turn, double end);

/* Returns the cost of a compute action by itself. */
wf_sim_cost wf_sim_cost_of(const wf_sim_state *s, const wf_pipe_action *a);

/* Returns the time of exchanges of this action and the next one that is hidden where they
   alternate: those of one by what the other computes. */
double wf_sim_hidden(const wf_sim_state *s, const wf_pipe_action *a);

/* All rows with as many cores as ranks, and with fewer. False where ranks stand still. */
bool wf_sim_walk(wf_sim_state *s);
bool wf_sim_share(wf_sim_state *s);

/* The critical path, backwards from the last action. */
wf_status wf_sim_path(wf_sim_state *s, wf_error *error);

#endif

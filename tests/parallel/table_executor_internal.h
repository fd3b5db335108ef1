/* tests/parallel/table_executor_internal.h - what ranks have while a table is executed. */
#ifndef WF_TESTS_PARALLEL_TABLE_EXECUTOR_INTERNAL_H
#define WF_TESTS_PARALLEL_TABLE_EXECUTOR_INTERNAL_H

#include "tests/parallel/table_executor.h"

enum {
    RANKS = EXECUTOR_RANKS,
    STAGES = EXECUTOR_STAGES,
    MICRO = EXECUTOR_MICRO,
    MESSAGES = 2 * STAGES * MICRO,
    ROOM = 32 /* messages that a transport keeps */
};

typedef enum outcome { DONE, WAITS, WRONG } outcome;

/* What there is of a (stage, micro-batch). Numbers are 0 until they are made. */
typedef struct node {
    bool input, above; /* what comes from the stages before and behind it has come by message */
    bool forward, again, inputs, weights, taken; /* taken: its gradient, by a reduction */
    uint64_t x, h, y, dy, dx, dw; /* h: what F keeps for I and W, and R makes again */
} node;

typedef struct message {
    bool forward;
    int to, micro;
    uint64_t value;
} message;

/* From one rank to another: what was sent, and what was asked for, in order. */
typedef struct queue {
    int n_sent, n_closed, n_asked, n_taken;
    bool closed[MESSAGES]; /* the sender has ended it */
    message sent[MESSAGES], asked[MESSAGES];
} queue;

/* What compute actions change. */
typedef struct activations {
    node node[STAGES][MICRO];
    int live[RANKS], peak;
} activations;

typedef struct machine {
    const wf_pipe_table *table;
    wf_pipe_shape shape;
    wf_pipe_facts facts;
    execution told;
    int64_t next[RANKS];
    activations has;
    struct {
        bool gathered, reducing, updated;
        int first, last;              /* micro-batches of the reduction that has begun */
        uint64_t on_the_way, reduced; /* its sum; those of all that have ended */
        uint64_t tied;                /* what the other end of a tie adds */
        uint64_t update;
    } stage[STAGES];
    bool at_tie[RANKS], tied[RANKS], at_norm[RANKS], normed[RANKS];
    uint64_t norm; /* over all ranks that have come to NORM */
    queue queue[RANKS][RANKS];
} machine;

/* A number that says from which two it was made, and which was the first. */
static inline uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t z = a * 0x9e3779b97f4a7c15u + b * 0xc2b2ae3d27d4eb4fu + 1;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    return z ^ z >> 27;
}

static inline int rank_of(const machine *m, int stage)
{
    return wf_pipe_table_rank(m->table, stage);
}

/* Begins or ends a message. */
outcome executor_communicate(machine *m, int rank, const wf_pipe_action *a);

/* Gathers, reductions and the end of a step. */
outcome executor_stage_action(machine *m, int rank, const wf_pipe_action *a);

/* Whether the end is the one that a rank alone comes to. */
bool executor_ends_right(const machine *m);

#endif

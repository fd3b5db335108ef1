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

/* The values of a (stage, micro-batch). Numbers are 0 until they are made. */
typedef struct node {
    bool input, above; /* the messages of the stages before and after it have come */
    bool forward, again, inputs, weights, taken; /* taken: its gradient, by a reduction */
    uint64_t x, h, y, dy, dx, dw; /* h: what F keeps for I and W, and R recomputes */
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

/* The state that compute actions change. */
typedef struct activations {
    node node[STAGES][MICRO];
    int live[RANKS], peak;
} activations;

typedef struct machine machine;

/* Does an action for which ranks meet: messages, TIE and NORM. */
typedef outcome executor_meeting(machine *m, int rank, const wf_pipe_action *a);

struct machine {
    const wf_pipe_table *table;
    wf_pipe_shape shape;
    wf_pipe_facts facts;
    executor_meeting *meet;
    void *meeting; /* the own state of `meet` */
    execution reported;
    int64_t next[RANKS];
    activations has, before;
    struct {
        bool gathered, reducing, updated;
        int first, last;              /* micro-batches of the reduction that has begun */
        uint64_t on_the_way, reduced; /* its sum; those of all that have ended */
        uint64_t tied;                /* the sum that the other end of a tie adds */
        uint64_t update;
    } stage[STAGES];
    bool at_tie[RANKS], tied[RANKS], at_norm[RANKS], normed[RANKS];
    uint64_t norm; /* over all ranks that have reached NORM */
    queue queue[RANKS][RANKS];
};

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

/* At the begin of a table. */
void executor_begin(machine *m, const wf_pipe_table *table, executor_meeting *meet);

/* The next action of a rank, or the next two; a rank at its end waits for good. */
outcome executor_go_on(machine *m, int rank);

/* Meetings by the queues of one machine, in which all ranks are. */
outcome executor_meet(machine *m, int rank, const wf_pipe_action *a);

/* The message that an action begins or ends, and its ranks; false: there cannot be such a
   one. */
typedef struct delivery {
    message what;
    int from, to; /* ranks */
    int step;     /* 0 send, 1 sent, 2 receive, 3 received */
} delivery;

bool executor_delivery(const machine *m, int rank, const wf_pipe_action *a, delivery *d);
bool executor_same_message(const message *a, const message *b);

/* Gathers, reductions, and the update of a stage. */
outcome executor_stage_action(machine *m, int rank, const wf_pipe_action *a);

/* A stage's gradient so far; whether a rank has a tied one; what a rank brings to the norm. */
uint64_t executor_gradient(const machine *m, int stage);
bool executor_has_tie(const machine *m, int rank);
uint64_t executor_norm_of(const machine *m, int rank);

/* Returns true where the stages of a rank (-1: of all) have the values that a single rank
   computes. */
bool executor_stages_end_right(const machine *m, int rank);

#endif

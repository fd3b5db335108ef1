/* tests/mesh/comm_outcome.h - what became of each rank of a launch in which something goes
   wrong. */
#ifndef WF_TESTS_MESH_COMM_OUTCOME_H
#define WF_TESTS_MESH_COMM_OUTCOME_H

#include "tests/mesh/ranks.h"
#include "tests/clock.h"

enum { MOST = 32 };

/* The error of each rank, and of the launch. */
typedef struct outcome {
    const wf_transport *transport;
    int variant;
    wf_error of[MOST];
    wf_error launch;
    double seconds;
    double cpu[MOST];
} outcome;

static inline void run(outcome *o, int ranks, wf_status (*work)(wf_rank *, void *))
{
    wf_launch_options options = {.ranks = ranks};
    double start = wf_test_clock(CLOCK_MONOTONIC);

    wf_launch(&options, work, o, &o->launch);
    o->seconds = wf_test_clock(CLOCK_MONOTONIC) - start;
}

static inline wf_comm *enter(wf_rank *rank, const outcome *o)
{
    wf_comm_set_reduce(rank->world, &test_ops);
    if (o->transport)
        rank->world->transport = o->transport;
    return rank->world;
}

static inline wf_status leave(wf_rank *rank, outcome *o, wf_status status)
{
    o->of[rank->index] = rank->error;
    return status;
}

#endif

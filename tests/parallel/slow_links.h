/* tests/parallel/slow_links.h - a machine on which moves alone take time, so that a
 * step's seconds are its bytes. */
#ifndef WF_TESTS_PARALLEL_SLOW_LINKS_H
#define WF_TESTS_PARALLEL_SLOW_LINKS_H

#include "parallel/simulate/cost.h"

/* A byte takes a second between two ranks, and nothing else takes time. */
static const wf_sim_machine slow_links = {.name = "of the test",
                                          .memory = 1e9,
                                          .rate[WF_BF16] = 1e300,
                                          .rate[WF_F32] = 1e300,
                                          .products = 1,
                                          .attention = 1,
                                          .bandwidth = 1e300,
                                          .devices = 64,
                                          .inside = {1, 0},
                                          .network = {1, 0}};

/* Returns what a term of a stage takes, forward and backward. */
static inline double seconds_of(const wf_sim_stage *s, wf_sim_term term)
{
    return s->forward.of[term] + s->inputs.of[term] + s->weights.of[term];
}

#endif

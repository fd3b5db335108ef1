/*
 * tests/parallel/part.h - one rank's part of a test with a model: opened, handed to the test's
 * body, and closed, with one reason where something failed.
 */
#ifndef WF_TESTS_PARALLEL_PART_H
#define WF_TESTS_PARALLEL_PART_H

#include "nn/models/gpt/gpt.h"
#include "parallel/shard/sharding_plan.h"
#include "tests/mesh/ranks.h"

typedef struct part {
    wf_rank *rank;
    wf_par *par;
    wf_context *ctx;
    wf_nn_gpt *gpt; /* fake, and not planned yet */
    wf_nn_module *model;
    void *arg;
} part;

typedef struct part_test {
    wf_par_options options;
    const wf_nn_gpt_config *config;
    const wf_par_rule *plan; /* made before the body runs; NULL: none */
    wf_status (*body)(part *);
    void *arg;
} part_test;

static inline wf_status part_rank(wf_rank *rank, void *arg)
{
    const part_test *test = arg;
    part p = {.rank = rank, .arg = test->arg};
    wf_status status;

    p.par = wf_par_open(rank, &test->options, &rank->error);
    if (!p.par)
        return rank->error.code;
    p.ctx = wf_par_context(p.par);
    p.gpt = wf_nn_gpt_new(p.ctx, test->config);
    p.model = (wf_nn_module *)p.gpt;
    status = wf_context_status(p.ctx);
    if (status == WF_OK && test->plan)
        status = wf_par_plan(p.par, p.model, test->plan);
    if (status == WF_OK)
        status = test->body(&p);
    status = came_to(rank, p.ctx, status);
    wf_nn_free(p.model);
    wf_par_close(p.par);
    return status;
}

/* On all ranks of the mesh, every one of which shall succeed. */
static inline void run_parts(part_test test)
{
    run_ranks((int)wf_par_ranks(&test.options), part_rank, &test);
}

#endif

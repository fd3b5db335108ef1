/*
 * tests/nn/model_ranks.h - a model on a mesh of ranks, for the tests of modules: launched,
 * planned and materialised, so that a test is what one rank does with it.
 *
 * CUnit's assertions are for the main thread; a rank says NEED(condition) of
 * tests/mesh/ranks.h.
 */
#ifndef WF_TESTS_NN_MODEL_RANKS_H
#define WF_TESTS_NN_MODEL_RANKS_H

#include "nn/gpt.h"
#include "parallel/plan.h"
#include "tests/mesh/ranks.h"

typedef struct model_rank {
    wf_rank *rank;
    wf_par *par;
    wf_context *ctx;
    wf_nn_gpt *model;
    int64_t count;
    wf_nn_parameter **parameter; /* ties once */
} model_rank;

typedef struct model_test {
    wf_par_options options;
    wf_nn_gpt_config config;
    wf_status (*body)(model_rank *r, void *arg);
    void *arg;
} model_test;

/* Run the body on all tp x dp ranks; every one shall succeed. */
void on_model_ranks(const model_test *test);

/* Where element i of this rank's part is in the whole tensor, row by row. */
int64_t whole_index(const wf_tensor *t, int64_t i);

#endif

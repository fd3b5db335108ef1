/*
 * tests/nn/model_ranks.h - a model on a mesh of ranks, for the tests of modules: launched,
 * planned and materialised, so that a test is what one rank does with it.
 *
 * CUnit's assertions are for the main thread; a rank says NEED(condition) of
 * tests/mesh/ranks.h.
 */
#ifndef WF_TESTS_NN_MODEL_RANKS_H
#define WF_TESTS_NN_MODEL_RANKS_H

#include "nn/models/gpt/gpt.h"
#include "parallel/shard/materialize.h"
#include "parallel/shard/sharding_plan.h"
#include "tests/mesh/mesh_harness.h"

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

/* A context on the CPU, for what needs no mesh; NULL (and a failed assertion) without memory.
 */
wf_context *lone_context(uint64_t seed);

/* A parameter's vector of three elements of one value; and the first element of a vector, -1 of
   none. */
wf_tensor *three_of(wf_context *ctx, float value);
float first_of(const wf_tensor *t);

/* Close it; `status` is what shall have become of it. */
void close_lone(wf_context *ctx, wf_status status);

/* Returns a parameter of three numbers of this value. */
wf_nn_parameter *gain_of(wf_context *ctx, float value);

#endif

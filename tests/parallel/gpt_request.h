/* tests/parallel/gpt_request.h - a small GPT as a job of the library alone, for tests of plans
   and searches. */
#ifndef WF_TESTS_PARALLEL_GPT_REQUEST_H
#define WF_TESTS_PARALLEL_GPT_REQUEST_H

#include "parallel/models/gpt/gpt.h"
#include "parallel/plan/request.h"

/* A request with all that it points to. */
typedef struct gpt_request {
    wf_plan_request request;
    wf_nn_gpt_config config;
    wf_sim_model sizes;
    wf_par_pipeline_options pipeline;
    int64_t tokens;
} gpt_request;

/* Fills in a request of a family's model of these sizes, for sequences of a number of tokens,
   on the machine WEFT_MACHINE. */
wf_plan_request *gpt_request_make(const char *family, int64_t blocks, int64_t width,
                                  int64_t tokens, int64_t batch, gpt_request *made);

#endif

/* apps/gpt_eval/perplexity.h - gpt_eval perplexity: how well a model predicts a text. */
#ifndef WF_APPS_GPT_EVAL_PERPLEXITY_H
#define WF_APPS_GPT_EVAL_PERPLEXITY_H

#include "apps/model/model_run.h"
#include "parallel/generate/tokens.h"

typedef struct app_perplexity_request {
    app_model_run run;
    const char *data;
    int64_t seq_length, stride; /* 0: the standard */
    int64_t batch;              /* windows at once, of each copy of the model */
    bool json;
} app_perplexity_request;

/* Evaluates, and prints the losses' mean. Errors: those of wf_launch and of the files */
wf_status app_perplexity(app_perplexity_request *request, wf_error *error);

#endif

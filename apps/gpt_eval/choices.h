/* apps/gpt_eval/choices.h - gpt_eval choices: which of several answers a model finds
   likeliest. */
#ifndef WF_APPS_GPT_EVAL_CHOICES_H
#define WF_APPS_GPT_EVAL_CHOICES_H

#include "apps/model/model_run.h"

typedef struct app_choices_request {
    app_model_run run;
    const char *requests; /* a file of lines: see requests.h */
    int64_t batch;        /* questions at once, of each copy of the model; 0: the standard */
    bool json;
} app_choices_request;

/* Evaluate, and print what came out. Errors: as of wf_gen_requests_read, wf_gen_model_open, a
   launch. */
wf_status app_choices(app_choices_request *request, wf_error *error);

#endif

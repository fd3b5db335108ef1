/* apps/gpt_generate/flags.h - what gpt_generate is asked for. */
#ifndef WF_APPS_GPT_GENERATE_FLAGS_H
#define WF_APPS_GPT_GENERATE_FLAGS_H

#include "parallel/generate/sampling.h"
#include "apps/model/model_run.h"
#include <stdbool.h>
#include <weft/weft.h>

enum { APP_GENERATE_STOPS = 16, APP_GENERATE_MOST_TOP = 100 };

typedef struct app_generate_request {
    app_model_run run;
    const char *prompt, *prompts; /* one text, or a file of them */
    const char *system,
        *chat_template; /* the system's message in a chat; NULL, or a template by name */
    const char *chat_variables, *ignored_fields;  /* for a chat; NULL: none */
    const char *cuda_graph;                       /* "on", "off"; NULL: where it can be */
    const char *stop, *stops[APP_GENERATE_STOPS]; /* stop: that of the flag which is read */
    int64_t n_stops;
    /* logprobs: number of likeliest tokens with their own too; -1: none */
    int64_t most, n, seed, logprobs;
    int64_t batch, chunk;
    wf_gen_sampling sampling;
    bool chat; /* prompts are what a user says, and texts what the model answers */
    bool json, echo, ignore_eos, plan, help;
} app_generate_request;

extern const char *const app_generate_help[]; /* in parts; NULL ends them */

/* Reads the command line, whose arguments are brought in another order. Errors: WF_EINVAL. */
wf_status app_generate_parse(int argc, char **argv, app_generate_request *request,
                             wf_error *error);

#endif

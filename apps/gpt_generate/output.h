/* apps/gpt_generate/output.h - texts as they are printed: in the order of their prompts, each as soon as it and
   those before it are whole; a single one while it comes. */
#ifndef WF_APPS_GPT_GENERATE_OUTPUT_H
#define WF_APPS_GPT_GENERATE_OUTPUT_H

#include "parallel/generate/batch.h"
#include "apps/gpt_generate/flags.h"
#include "apps/gpt_generate/prompts.h"
#include <pthread.h>
#include <stdio.h>

typedef struct app_output {
    const app_generate_request *request;
    const app_prompts *prompts;
    const wf_gen_options *options;
    FILE *out;         /* NULL: texts are kept, for app_gather_texts */
    wf_gen_text *text; /* [count], zeros where one is not whole */
    int64_t count, printed, tokens;
    int64_t full; /* texts that ended as the model's context was full */
    size_t shown; /* bytes of a single text */
    wf_error error;
    pthread_mutex_t lock;
} app_output;

/* Zero what is not given above. Errors: WF_ENOMEM. */
wf_status app_output_open(app_output *o, wf_error *error);
void app_output_close(app_output *o);

/* Events of wf_gen_run, for the ranks whose texts are printed; arg is the app_output. Any thread calls them. */
void app_output_token(void *arg, const wf_gen_text *t);
void app_output_finished(void *arg, wf_gen_text *t);

#endif

/* apps/gpt_generate/prompts.h - what texts begin with, as token ids. */
#ifndef WF_APPS_GPT_GENERATE_PROMPTS_H
#define WF_APPS_GPT_GENERATE_PROMPTS_H

#include "apps/gpt_generate/flags.h"
#include "nn/text/tokenizer/tokenizer.h"

typedef struct app_prompts {
    wf_tok_ids *ids; /* [count] */
    int64_t count, room;
    int64_t longest;      /* tokens */
    int64_t longest_line; /* its line in --prompts; 0: it is of no file */
} app_prompts;

/* The prompts of a request. tokenizer_path: where a chat template is looked for; vocabulary:
   ids are below. Owner: caller, app_prompts_free, also after an error. Errors: WF_EIO, WF_EDATA
   (file and line), WF_EINVAL (a prompt without a token), WF_ENOMEM. */
wf_status app_prompts_read(const app_generate_request *q, const wf_tok *tokenizer,
                           const char *tokenizer_path, int64_t vocabulary, app_prompts *prompts,
                           wf_error *error);
void app_prompts_free(app_prompts *prompts);

#endif

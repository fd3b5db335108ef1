/* apps/gpt_eval/perplexity.h - gpt_eval perplexity: how well a model foretells a text. */
#ifndef WF_APPS_GPT_EVAL_PERPLEXITY_H
#define WF_APPS_GPT_EVAL_PERPLEXITY_H

#include "apps/model/model_run.h"

typedef struct app_perplexity_request {
    app_model_run run;
    const char *data;
    int64_t seq_length, stride; /* 0: the standard */
    int64_t batch;              /* windows at once, of each copy of the model */
    bool json;
} app_perplexity_request;

/* The tokens that a model is to foretell. */
typedef struct app_perplexity_data {
    int32_t *ids;     /* [tokens] */
    int32_t *counted; /* [tokens], 1 or 0; NULL: all count */
    int64_t tokens;
    int64_t bytes; /* as many as the text of what counts has; 0: no tokenizer is known */
} app_perplexity_data;

/* Read --data: ids, or text, which becomes ids by the tokenizer (NULL: there is none). Owner:
   caller, app_perplexity_data_free, also after an error. Errors: WF_EIO, WF_EDATA, WF_EINVAL,
   WF_ENOMEM. */
wf_status app_perplexity_data_read(const char *path, const wf_tok *tokenizer,
                                   int64_t vocabulary, app_perplexity_data *data,
                                   wf_error *error);
void app_perplexity_data_free(app_perplexity_data *data);

/* Evaluate, and print what came out. */
wf_status app_perplexity(app_perplexity_request *request, wf_error *error);

#endif

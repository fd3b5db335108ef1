/* apps/gpt_train/sample_text.h - a sample's prompt as token ids, and its ids as text. */
#ifndef WF_APPS_SAMPLE_TEXT_H
#define WF_APPS_SAMPLE_TEXT_H

#include "apps/options/options.h"
#include "nn/text/tokenizer/tokenizer.h"
#include <stdio.h>

typedef struct app_sample_prompt {
    wf_tok *tokenizer;
    wf_tok_ids ids; /* the prompt's */
    int64_t ends;   /* the id that ends a text; -1: none */
    int64_t size;   /* number of ids, in the model and in the tokenizer */
} app_sample_prompt;

/*
 * The tokenizer of --tokenizer; where none is given and the model has not the 256 ids of bytes,
 * the one beside the model that the run begins, or began, with; else bytes.
 * flag:    what needs it, for errors
 * Owner:   caller, wf_tok_close
 * Errors:  WF_EINVAL: no tokenizer is known, or it has more ids than the model; those of the
 *          tokenizer
 */
wf_status app_train_tokenizer_open(const app_options *options, bool data_are_text,
                                   const char *flag, wf_tok **tokenizer, wf_error *error);

/*
 * A prompt of a sample, by that tokenizer. Nothing where no sample is asked for.
 * Owner:   caller, app_sample_prompt_close (also of a failed one)
 * Errors:  those of the tokenizer; WF_EINVAL: a prompt without ids
 */
wf_status app_sample_prompt_open(const app_options *options, bool data_are_text,
                                 app_sample_prompt *prompt, wf_error *error);
void app_sample_prompt_close(app_sample_prompt *prompt);

/* Prints ids as text. WF_EINVAL, WF_ENOMEM. */
wf_status app_sample_print(const app_sample_prompt *prompt, const int32_t *ids, int64_t count,
                           FILE *out, wf_error *error);

#endif

/* apps/gpt_data/flags.h - what gpt_data is asked for. */
#ifndef WF_APPS_GPT_DATA_FLAGS_H
#define WF_APPS_GPT_DATA_FLAGS_H

#include "core/status.h"
#include <stdbool.h>
#include <stdint.h>

enum { APP_GPT_DATA_MOST_THREADS = 256 };

typedef struct app_gpt_data_request {
    const char *command, *tokenizer, *output;
    const char *key;                             /* NULL: "text" */
    const char *on_bad_row;                      /* NULL: "stop" */
    const char *chat_template, *train;           /* NULL: the tokenizer's; "assistant" */
    const char *chat_variables, *ignored_fields; /* NULL: none */
    char **files;                                /* FILES, or PREFIX */
    int64_t file_count, document;                /* document -1: none */
    int64_t vocabulary, seq_len;                 /* 0: not given */
    int threads;
    bool append_eod, special_tokens, cuts, skips, help;
    const char *longer; /* treatment of documents that are longer than a window; NULL: refuse */
} app_gpt_data_request;

extern const char app_gpt_data_help[];

/* Reads the command line, whose arguments are brought in another order. Errors: WF_EINVAL. */
wf_status app_gpt_data_parse(int argc, char **argv, app_gpt_data_request *request,
                             wf_error *error);

#endif

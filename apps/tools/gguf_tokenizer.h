/*
 * apps/tools/gguf_tokenizer.h - the tokenizer that a GGUF file has, as the files that a folder
 * of Hugging Face has for it: tokenizer.json, tokenizer_config.json, generation_config.json and
 * the chat template.
 */
#ifndef WF_APPS_TOOLS_GGUF_TOKENIZER_H
#define WF_APPS_TOOLS_GGUF_TOKENIZER_H

#include "nn/text/tokenizer/vocabulary.h"
#include "parallel/models/gpt/pretrained.h"

enum { APP_GGUF_IDS = 6, APP_GGUF_FILES = 4 };

/* A file of the folder. */
typedef struct app_gguf_file {
    const char *name, *text;
    size_t bytes;
} app_gguf_file;

/* A file's tokenizer: its vocabulary and special ids. */
typedef struct app_gguf_tokenizer {
    app_gguf_file file[APP_GGUF_FILES];
    int file_count;
    /* First, last, padding, unknown token, end of a turn, of a message; -1: none. */
    int64_t id[APP_GGUF_IDS];
    wf_tok_vocabulary v;
    char model[64], pre[64];
    wf_tok_bytes tokenizer;
    char *tokenizer_config, *generation_config;
} app_gguf_tokenizer;

/**
 * app_gguf_tokenizer_open - reads it
 *
 * @param path    the file's, for errors
 * @param config  of its model
 * Owner:   the caller, app_gguf_tokenizer_close in any case, before the file is closed
 * Errors:  WF_EDATA, WF_EUNSUPPORTED (file and key), WF_ENOMEM
 */
wf_status app_gguf_tokenizer_open(app_gguf_tokenizer *t, const wf_par_gguf *gguf,
                                  const char *path, const wf_nn_gpt_config *config,
                                  wf_error *error);
void app_gguf_tokenizer_close(app_gguf_tokenizer *t);

#endif

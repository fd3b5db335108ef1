/* apps/tools/gguf_export.h - gpt_export --gguf: a model and its tokenizer as one file for
   llama.cpp. */
#ifndef WF_APPS_TOOLS_GGUF_EXPORT_H
#define WF_APPS_TOOLS_GGUF_EXPORT_H

#include "parallel/generate/model.h"

typedef struct app_gguf_export {
    const char *file;      /* NULL: none is written */
    const char *type;      /* "f32", "f16", "q8_0"; NULL: as the weights are stored */
    const char *tokenizer; /* a folder or a file; "none"; NULL: what lies beside the model */
    bool overwrite;        /* a GGUF file that is there */
} app_gguf_export;

/* WF_EINVAL where the flags cannot be, or a file is there that may not be replaced. */
wf_status app_gguf_export_check(const app_gguf_export *e, wf_error *error);

/* Not collective: one rank does it. Errors as of wf_tok_open, wf_tok_vocabulary_open and
   wf_par_pretrained_save_gguf. */
wf_status app_gguf_export_write(const app_gguf_export *e, const wf_gen_model *source,
                                wf_context *ctx, wf_error *error);

#endif

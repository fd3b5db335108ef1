/* apps/gpt_data/encoded.h - the token ids of a block's documents (documents.h). */
#ifndef WF_APPS_GPT_DATA_ENCODED_H
#define WF_APPS_GPT_DATA_ENCODED_H

#include "nn/text/tokenizer/tokenizer.h"

typedef struct app_encoded {
    wf_tok_ids ids;
    wf_tok_ids trained; /* a 1 for each id that is trained, in conversations */
    int64_t ones;       /* ids that are trained */
    size_t *ends;       /* ends; the last document may continue in the next block */
    size_t count, room;
    int64_t at, at_mask; /* offsets in both outputs */
} app_encoded;

/* Allocates an empty result of app_document_work; NULL: no memory. `arg` is not read. */
void *app_encoded_new(void *arg);

/* Frees a result. */
void app_encoded_free(void *result);

/* Ends a document after the ids so far. Errors: WF_ENOMEM. */
wf_status app_encoded_end(app_encoded *e, wf_error *error);

/* Empties a result, keeping its memory for the next block. */
void app_encoded_clear(app_encoded *e);

#endif

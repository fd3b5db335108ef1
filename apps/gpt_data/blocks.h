/* apps/gpt_data/blocks.h - files, one after the other, in blocks. */
#ifndef WF_APPS_GPT_DATA_BLOCKS_H
#define WF_APPS_GPT_DATA_BLOCKS_H

#include "apps/tokenizer/tokenizer.h"

typedef struct app_block {
    const char *file;
    char *text; /* its bytes and a NUL; used again for the next block */
    size_t bytes, room;
    bool lines;   /* lines of JSON; else a part of a document */
    bool ends;    /* the document ends with this part */
    int64_t line; /* the number of the first one, from 1 on */
} app_block;

typedef struct app_block_reader app_block_reader;

/* NULL: out of memory. `tokenizer` says where a text may be cut. */
app_block_reader *app_block_open(char *const *files, int64_t count,
                                 const app_tokenizer *tokenizer);
void app_block_close(app_block_reader *reader);

/* The next block; false behind the last one, or where there was an error: WF_EIO, WF_ENOMEM. */
bool app_block_read(app_block_reader *reader, app_block *block, wf_error *error);

#endif

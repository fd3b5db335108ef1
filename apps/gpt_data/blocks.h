/*
 * apps/gpt_data/blocks.h - files, one after the other, in blocks: one thread at a time says
 * which part of a file comes next, and any number of threads read their parts.
 */
#ifndef WF_APPS_GPT_DATA_BLOCKS_H
#define WF_APPS_GPT_DATA_BLOCKS_H

#include "nn/text/tokenizer/tokenizer.h"

typedef struct app_block_file app_block_file;

typedef struct app_block {
    app_block_file *from; /* open as long as a block is of it */
    const char *file;     /* its name */
    int64_t begin;        /* its first byte in the file */
    char *text;           /* its bytes and a NUL; reused for the next block */
    size_t bytes, room;
    size_t known; /* number of its last bytes that have been read already */
    bool lines;   /* lines of JSON; else a part of a document */
    bool ends;    /* the document ends with this part */
} app_block;

typedef struct app_block_reader app_block_reader;

/* NULL: out of memory. `tokenizer` says where a text may be cut. */
app_block_reader *app_block_open(char *const *files, int64_t count, const wf_tok *tokenizer);
void app_block_close(app_block_reader *reader);

/* Finds the next block of the part that a file had when it was opened; false after the last
   one, or after an error: WF_EIO, WF_ENOMEM. One thread at a time. */
bool app_block_next(app_block_reader *reader, app_block *block, wf_error *error);

/* Its text. Errors: WF_EIO, WF_ENOMEM. */
wf_status app_block_read(app_block *block, wf_error *error);

/* The number of the line that begins at this byte of a block that was read, from 1 on; 0: the
   file can no longer be read. */
int64_t app_block_line(const app_block *block, size_t byte);

/* The block is not needed any more, but for its room. One thread at a time, as
   app_block_next. */
void app_block_release(app_block *block);

#endif

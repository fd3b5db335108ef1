/*
 * apps/gpt_data/documents.h - documents of files, in blocks that threads read, work on and
 * finish, whose results are put in the order of the files.
 *
 * A block has whole lines of a .jsonl file, or a part of another file, which ends where a
 * tokenizer may cut it (wf_tok_cut), or with the file.
 */
#ifndef WF_APPS_GPT_DATA_DOCUMENTS_H
#define WF_APPS_GPT_DATA_DOCUMENTS_H

#include "nn/text/tokenizer/tokenizer.h"

/* Rows of .jsonl that are no good, and were left out. */
typedef struct app_bad_rows {
    int64_t count;
    char first[512]; /* the first one's location and error */
} app_bad_rows;

typedef struct app_document_work {
    char *const *files;
    int64_t file_count;
    const char *key;         /* a line's text lies under it; NULL: the line is the text */
    const wf_tok *tokenizer; /* says where a text may be cut */
    int threads;
    /* NULL: the first bad row is an error; else they are left out, and counted here */
    app_bad_rows *bad;
    /* A worker's own, made before and freed after. */
    void *(*open)(void *arg, wf_error *error);
    void (*close)(void *own);
    /* A text, where it comes from, and whether its document ends with it. A row that fails
       leaves the result as it was. */
    wf_status (*work)(void *own, const char *name, const char *text, size_t bytes, bool ends,
                      void *result, wf_error *error);
    /* Makes the result of a block, once for each of a few blocks that are under way. `order`
       gets them in the order of the files, one at a time, and is soon done, since threads wait
       for it; then `done` gets and empties them, in any order and by several threads. All may
       be NULL. */
    void *(*result)(void *arg);
    wf_status (*order)(void *arg, void *result, wf_error *error);
    wf_status (*done)(void *arg, void *result, wf_error *error);
    void (*free_result)(void *result);
    void *arg;
} app_document_work;

/* Says on stderr how many rows were left out, and why the first one was; nothing where there
   are none. */
void app_bad_rows_report(const app_bad_rows *bad);

/* Reads all files. Errors: WF_EIO, WF_EDATA (file and line), WF_ENOMEM, and those of the calls;
   the first in the order of the files. */
wf_status app_documents_run(const app_document_work *work, wf_error *error);

#endif

/* apps/python/bridge/bridge_internal.h - a run, shared by the files of the bridge. */
#ifndef WF_APPS_PYTHON_BRIDGE_INTERNAL_H
#define WF_APPS_PYTHON_BRIDGE_INTERNAL_H

#include "apps/gpt_train/job.h"
#include "apps/python/bridge/bridge.h"
#include "nn/text/tokenizer/tokenizer.h"
#include "parallel/program/session.h"

/* A run stays where it is: its process, job and options refer to each other. */
struct weft_python_run {
    app_options options;
    app_job job;
    wf_process process;
    wf_session *session;
    wf_tok *tokenizer; /* opened when it is first needed */
    wf_par_data own, validation;
    bool weighted; /* batches have a weight for each token's loss */
    FILE *out;     /* nothing is read from it; NULL: stdout */
    struct weft_python_lent *lent;
};

/* Returns memory that the ranks of a call use: `bytes` of a copy of `from`, or zeros where that
   is NULL. What is the caller's goes away with the call, and a rank that hangs would use it
   still. Owner: the run, weft_python_return. NULL: no memory, or an error that was there */
void *weft_python_lend(weft_python_run *run, const void *from, size_t bytes, wf_error *error);

/* Frees what a call has lent, at its end, but where ranks hang. */
void weft_python_return(weft_python_run *run);

/* Sequences that a caller gives: [rows][length]. */
typedef struct weft_python_rows {
    const int32_t *tokens, *targets;
    const float *weights; /* NULL: of a run without them, or all are 1 */
    bool weighted;
    int64_t length, batch; /* batch: rows of a global batch */
} weft_python_rows;

/* Returns the rows as data; `evaluated`: batch i begins at row i x batch. */
wf_par_data weft_python_rows_data(const weft_python_rows *rows, bool evaluated);

/* Checks ids against the vocabulary. what: "tokens". Errors: WF_EINVAL with row, index and
   value */
wf_status weft_python_check_ids(const weft_python_run *run, const char *what,
                                const int32_t *ids, int64_t count, bool negative,
                                wf_error *error);

/* Opens the model's tokenizer, once. Errors: those of wf_tok_open */
wf_status weft_python_tokenizer(weft_python_run *run, wf_error *error);

#endif

/*
 * apps/data/data_set.h - what a run trains on and validates on: sources of tokens, and which window of which of
 * them a sequence of a batch is.
 *
 * Training takes sample (step - 1) x global_batch + i for sequence i of a step: its source follows from the mixture,
 * its window from the order of the source (apps/data/order.h). Plain text is different, as it has always been:
 * a sequence begins at any byte, which is a random number of (seed, step, i).
 *
 * Validation is on val_data or, without any, on the last val_fraction of each source. All of its windows are one
 * row, source by source, of which sequence i of batch b is number b x global_batch + i of a permutation;
 * again but for plain text with a fraction, whose sequences are random numbers of (seed, b, i), unless
 * every window is asked for.
 *
 * So a sequence depends on the flags and its number alone, never on mesh, micro-batch or what ran before. One open
 * data set may be read by many threads at once.
 */
#ifndef WF_APPS_DATA_DATA_SET_H
#define WF_APPS_DATA_DATA_SET_H

#include "apps/data/token_file.h"
#include "core/job.h"
#include <stdio.h>

typedef enum app_data_part { APP_DATA_TRAIN, APP_DATA_VALIDATION } app_data_part;

typedef struct app_data_options {
    char *const *data; /* arguments of --data: apps/data/source_list.h */
    int64_t data_count;
    char *const *val_data; /* the same of --val-data */
    int64_t val_data_count;
    double val_fraction; /* [0, 1); not looked at beside val_data */
    bool validates;      /* the validation part is read, so it must hold a window */
    bool every_window;   /* an evaluation reads each window of the validation part once */
    int64_t seq_len, global_batch;
    wf_token_count vocabulary;
    uint64_t seed;
    bool documents; /* a window's targets are those of the same document alone; for token ids */
} app_data_options;

typedef struct app_data_set app_data_set;

/**
 * app_data_set_open - opens all files and checks that a window fits in each part that is used
 *
 * Owner:   the caller, app_data_set_close
 * Errors:  WF_EIO, WF_EINVAL, WF_EDATA, WF_ENOMEM: see app_source_list_parse and app_source_open; WF_EINVAL
 *          where a part is shorter than a window, or a weight too small; *data is then NULL
 */
wf_status app_data_set_open(const app_data_options *options, app_data_set **data,
                            wf_error *error);

/** app_data_set_close - closes the files; NULL is allowed. */
void app_data_set_close(app_data_set *data);

/**
 * app_data_set_fingerprint - what the files that are trained on are, by size and samples of content; loss masks too
 *
 * Errors:  WF_EIO, WF_ENOMEM
 */
wf_status app_data_set_fingerprint(const app_data_set *data, uint64_t *fingerprint,
                                   wf_error *error);

/** app_data_set_is_text - whether there is text, whose tokens are bytes. */
bool app_data_set_is_text(const app_data_set *data);

/** app_data_set_tokens, app_data_set_windows - what a part has, over all sources. */
int64_t app_data_set_tokens(const app_data_set *data, app_data_part part);
int64_t app_data_set_windows(const app_data_set *data, app_data_part part);

/** app_data_set_evaluations - batches of an evaluation that reads every window; the last one is filled with
 * sequences that have no targets. */
int64_t app_data_set_evaluations(const app_data_set *data);

/** app_data_set_tell - prints what there is: a line, and one for each source that is read in windows, with how
 * often so many steps read it. */
void app_data_set_tell(FILE *out, const app_data_set *data, int64_t steps);

/** app_data_set_job - what the processes of a run must have alike of their data, as entries of a job: of each source its
 * name, weight, files, tokens, bytes and a hash of samples of its content. */
void app_data_set_job(const app_data_set *data, wf_job *job);

/**
 * app_data_set_read - sequences first .. first + count - 1 of a batch.
 *
 * @param batch    the step in training, from 1; the number of the batch in validation, from 0
 * @param first    global index in the batch
 * @param tokens   [count, seq_len]
 * @param targets  [count, seq_len], the token after each one, or -1 where it is not to be trained on
 * Errors:         WF_EIO, WF_EDATA: see app_token_file_read; WF_EINVAL (the part holds no window), WF_ENOMEM
 */
wf_status app_data_set_read(const app_data_set *data, app_data_part part, int64_t batch,
                            int64_t first, int64_t count, int32_t *tokens, int32_t *targets,
                            wf_error *error);

/** app_data_set_tells - whether all files say where documents begin. */
bool app_data_set_tells(const app_data_set *data);

/** app_data_set_ends - the id that ends a document in files that do not say so. */
void app_data_set_ends(app_data_set *data, int32_t id);

/**
 * app_data_set_documents - where the documents of the same sequences lie, as app_data_set_read gives them with
 * options.documents: the last token of each has no target then
 *
 * A document that lies over two windows is two. A filling sequence is one.
 *
 * @param begin      [count, seq_len], the token of the sequence that a token's document begins with
 * @param positions  [count, seq_len], of a token in it
 * Errors:           as of app_data_set_read
 */
wf_status app_data_set_documents(const app_data_set *data, app_data_part part, int64_t batch,
                                 int64_t first, int64_t count, int32_t *begin,
                                 int32_t *positions, wf_error *error);

/** app_data_set_counts - whether a part has targets that are not trained on: loss masks, or a filled batch. */
bool app_data_set_counts(const app_data_set *data, app_data_part part);

/**
 * app_data_set_counted - how many targets of a whole global batch are trained on
 *
 * Ranks of a process that ask for the same batch have it counted once.
 *
 * Errors:         as of app_data_set_read
 */
wf_status app_data_set_counted(const app_data_set *data, app_data_part part, int64_t batch,
                               int64_t *count, wf_error *error);

/**
 * app_data_set_check_counts - that there is something to learn from, and something to evaluate
 *
 * @param batches  of an evaluation; 0: there is none
 * Errors:         WF_EDATA where no token of the part to train on is trained on, or none counts in an evaluation;
 *                 as of app_data_set_read
 */
wf_status app_data_set_check_counts(const app_data_set *data, int64_t batches, wf_error *error);

#endif

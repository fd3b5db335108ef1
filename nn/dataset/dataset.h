/*
 * nn/dataset/dataset.h - the dataset of a run, and its sampler: sources of tokens to train on
 * and to validate on, and the window of a source that each sequence of a batch is. There is no
 * dataloader with workers: reading a sequence is a pread of its window, by the rank that needs
 * it.
 *
 * Training takes sample (step - 1) x global_batch + i for sequence i of a step: its source
 * follows from the mixture, its window from the order of the source
 * (nn/dataset/order_internal.h). Plain text is different: a sequence begins at any byte, which
 * is a random number of (seed, step, i).
 *
 * Validation is on val_data or, without any, on the last val_fraction of each source. All of
 * its windows are one row, source by source, of which sequence i of batch b is number b x
 * global_batch + i of a permutation; except plain text with a fraction, whose sequences are
 * random numbers of (seed, b, i), unless every window is asked for.
 *
 * So a sequence depends on the options and its number alone, never on mesh, micro-batch or
 * earlier reads. One open dataset may be read by many threads at once.
 */
#ifndef WF_NN_DATASET_DATASET_H
#define WF_NN_DATASET_DATASET_H

#include "nn/dataset/token_file.h"
#include "core/job.h"
#include <stdio.h>

WF_BEGIN_DECLS

typedef enum wf_dataset_part { WF_DATASET_TRAIN, WF_DATASET_VALIDATION } wf_dataset_part;

typedef struct wf_dataset_options {
    char *const *data; /* arguments of --data: nn/dataset/source_list.h */
    int64_t data_count;
    char *const *val_data; /* the same of --val-data */
    int64_t val_data_count;
    double val_fraction; /* [0, 1); ignored beside val_data */
    bool validates;      /* the validation part is read, so it must hold a window */
    bool every_window;   /* an evaluation reads each window of the validation part once */
    int64_t seq_len, global_batch;
    wf_token_count vocabulary;
    uint64_t seed;
    /* packed documents: a window's targets are those of the same document alone; for token
       ids */
    bool documents;
} wf_dataset_options;

typedef struct wf_dataset wf_dataset;

/**
 * wf_dataset_open - opens all files and checks that a window fits in each part that is used
 *
 * Owner:   the caller, wf_dataset_close
 * Errors:  WF_EIO, WF_EINVAL, WF_EDATA, WF_ENOMEM: see wf_dataset_source_list_parse and
 *          wf_dataset_source_open; WF_EINVAL where a part is shorter than a window, or a weight
 *          too small; *data is then NULL
 */
WF_API wf_status wf_dataset_open(const wf_dataset_options *options, wf_dataset **data,
                                 wf_error *error);

/** wf_dataset_close - closes the files; NULL is allowed. */
WF_API void wf_dataset_close(wf_dataset *data);

/**
 * wf_dataset_fingerprint - hashes the files that are trained on, by size and samples of
 * content; loss masks too
 *
 * Errors:  WF_EIO, WF_ENOMEM
 */
WF_API wf_status wf_dataset_fingerprint(const wf_dataset *data, uint64_t *fingerprint,
                                        wf_error *error);

/** wf_dataset_is_text - returns true where a source is text, whose tokens are bytes. */
WF_API bool wf_dataset_is_text(const wf_dataset *data);

/** wf_dataset_tokens, wf_dataset_windows - return the tokens and windows of a part, over all
 * sources. */
WF_API int64_t wf_dataset_tokens(const wf_dataset *data, wf_dataset_part part);
WF_API int64_t wf_dataset_windows(const wf_dataset *data, wf_dataset_part part);

/** wf_dataset_evaluations - returns the batches of an evaluation that reads every window; the
 * last one is filled up with sequences that have no targets. */
WF_API int64_t wf_dataset_evaluations(const wf_dataset *data);

/** wf_dataset_print - prints a summary: a line, and one for each source that is read in
 * windows, with how often `steps` steps read it. */
WF_API void wf_dataset_print(FILE *out, const wf_dataset *data, int64_t steps);

/** wf_dataset_job - adds the entries that the processes of a run must have alike of their data
 * to a job: of each source its name, weight, files, tokens, bytes and a hash of samples of its
 * content. */
WF_API void wf_dataset_job(const wf_dataset *data, wf_job *job);

/**
 * wf_dataset_read - reads sequences first .. first + count - 1 of a batch.
 *
 * @param batch    the step in training, from 1; the number of the batch in validation, from 0
 * @param first    global index in the batch
 * @param tokens   [count, seq_len]
 * @param targets  [count, seq_len], the token after each one, or -1 where it is not to be
 *                 trained on
 * Errors:         WF_EIO, WF_EDATA: see wf_token_file_read; WF_EINVAL (the part holds no
 *                 window), WF_ENOMEM
 */
WF_API wf_status wf_dataset_read(const wf_dataset *data, wf_dataset_part part, int64_t batch,
                                 int64_t first, int64_t count, int32_t *tokens,
                                 int32_t *targets, wf_error *error);

/** wf_dataset_masks_documents - returns options.documents. */
WF_API bool wf_dataset_masks_documents(const wf_dataset *data);

/** wf_dataset_has_documents - returns true where all files have the bounds of documents. */
WF_API bool wf_dataset_has_documents(const wf_dataset *data);

/** wf_dataset_ends - sets the id that ends a document in files without bounds. */
WF_API void wf_dataset_ends(wf_dataset *data, int32_t id);

/**
 * wf_dataset_documents - finds the documents of the sequences that wf_dataset_read gives with
 * options.documents: the last token of each has no target then
 *
 * A document that lies over two windows is two. A filling sequence is one.
 *
 * @param begin      [count, seq_len], the first token, in the sequence, of a token's document
 * @param positions  [count, seq_len], of a token in it
 * Errors:           as of wf_dataset_read
 */
WF_API wf_status wf_dataset_documents(const wf_dataset *data, wf_dataset_part part,
                                      int64_t batch, int64_t first, int64_t count,
                                      int32_t *begin, int32_t *positions, wf_error *error);

/** wf_dataset_counts - returns true where a part has targets that are not trained on: loss
 * masks, or a filled-up batch. */
WF_API bool wf_dataset_counts(const wf_dataset *data, wf_dataset_part part);

/**
 * wf_dataset_counted - counts the targets of a whole global batch that are trained on
 *
 * Ranks of a process that ask for the same batch have it counted once.
 *
 * Errors:         as of wf_dataset_read
 */
WF_API wf_status wf_dataset_counted(const wf_dataset *data, wf_dataset_part part, int64_t batch,
                                    int64_t *count, wf_error *error);

/**
 * wf_dataset_check_counts - checks that there are targets to train on, and targets to evaluate
 *
 * @param batches  of an evaluation; 0: there is none
 * Errors:         WF_EDATA where no token of the part to train on is trained on, or none counts
 *                 in an evaluation; as of wf_dataset_read
 */
WF_API wf_status wf_dataset_check_counts(const wf_dataset *data, int64_t batches,
                                         wf_error *error);

WF_END_DECLS

#endif

/*
 * apps/gpt_train/text_data.h - text files as training data: a token is a byte.
 *
 * The files are one text, in the order given. Its last val_fraction is for validation, the rest
 * for training. A sequence is seq_len + 1 bytes that begin anywhere in its part; which ones
 * depends on (seed, step, global sequence index) in training and on (seed, batch, index) in
 * validation, and on nothing else. One open text may be read by many threads at once.
 */
#ifndef WF_APPS_TEXT_DATA_H
#define WF_APPS_TEXT_DATA_H

#include "core/status.h"
#include <stdbool.h>
#include <stdint.h>

typedef enum app_text_part { APP_TEXT_TRAIN, APP_TEXT_VALIDATION } app_text_part;

typedef struct app_text_options {
    char *const *files;
    int64_t file_count;
    double val_fraction; /* [0, 1) */
    bool validates;      /* the validation part is read, so it must hold a sequence */
    int64_t seq_len;
    uint64_t seed;
} app_text_options;

typedef struct app_text_data app_text_data;

/**
 * app_text_data_open - opens the files and checks that a sequence fits in each part used.
 *
 * Owner:   the caller, app_text_data_close
 * Errors:  WF_EIO (file and reason), WF_EINVAL (empty file, sequence too long), WF_ENOMEM;
 *          *data is then NULL
 */
wf_status app_text_data_open(const app_text_options *options, app_text_data **data,
                             wf_error *error);

/** app_text_data_close - closes the files; NULL is allowed. */
void app_text_data_close(app_text_data *data);

/** app_text_data_size - bytes of a part. */
int64_t app_text_data_size(const app_text_data *data, app_text_part part);

/**
 * app_text_data_read - sequences first .. first + count - 1 of a batch.
 *
 * @param batch    the step in training, the number of the batch in validation
 * @param first    global index in the batch
 * @param tokens   [count, seq_len]
 * @param targets  [count, seq_len], the byte after each token
 * Errors:         WF_EIO (a file became shorter, or cannot be read), WF_ENOMEM
 */
wf_status app_text_data_read(const app_text_data *data, app_text_part part, int64_t batch,
                             int64_t first, int64_t count, int32_t *tokens, int32_t *targets,
                             wf_error *error);

#endif

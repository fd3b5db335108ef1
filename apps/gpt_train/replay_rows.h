/*
 * apps/gpt_train/replay_rows.h - the rows of --log-digests' files. The files may say anything: a part that does
 * not lie within its tensor is refused, and reading takes a time that grows with their size alone.
 */
#ifndef WF_APPS_GPT_TRAIN_REPLAY_ROWS_H
#define WF_APPS_GPT_TRAIN_REPLAY_ROWS_H

#include "parallel/train/parts.h"
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

/* The digests of a rank after a step. */
typedef struct app_replay_row {
    int64_t step, order;
    int rank;
    const json_t *head, *digests; /* they belong to app_replay_rows.all */
} app_replay_row;

/* All zero: nothing read yet. */
typedef struct app_replay_rows {
    json_t *all;
    app_replay_row *row; /* [count] */
    int64_t count, room;
    int ranks; /* those that the run had */
} app_replay_rows;

/* Adds a file's rows. numerics: those of the run that is to make the steps again. Errors: WF_EIO, WF_EDATA,
   WF_EINVAL (other numerics), WF_ENOMEM. */
wf_status app_replay_rows_read(app_replay_rows *rows, FILE *file, const char *path,
                               const char *numerics, wf_error *error);

/* Sorts what was read, and keeps the last row of each rank and step: a run that was continued has made it
   again. */
void app_replay_rows_sort(app_replay_rows *rows);

void app_replay_rows_free(app_replay_rows *rows);

/* Returns how many parts a row has digests of. */
static inline size_t app_replay_parts(const app_replay_row *row)
{
    return json_array_size(row->digests);
}

/* Part number k of a row; its path is the rows'. */
void app_replay_part(const app_replay_row *row, size_t k, wf_par_held_part *part);

#endif

/*
 * parallel/recovery/replay_rows_internal.h - the rows of --log-digests' files. The files may
 * say anything: a part that does not lie within its tensor is refused, and reading takes a time
 * that grows with their size alone.
 */
#ifndef WF_PARALLEL_RECOVERY_REPLAY_ROWS_INTERNAL_H
#define WF_PARALLEL_RECOVERY_REPLAY_ROWS_INTERNAL_H

#include "parallel/train/parts.h"
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

/* The digests of a rank after a step. */
typedef struct wf_replay_row {
    int64_t step, order;
    int rank;
    const json_t *head, *digests; /* they belong to wf_replay_rows.all */
} wf_replay_row;

/* All zero: nothing read yet. */
typedef struct wf_replay_rows {
    json_t *all;
    wf_replay_row *row; /* [count] */
    int64_t count, room;
    int ranks; /* those that the run had */
} wf_replay_rows;

/* Adds a file's rows. numerics: those of the run that is to repeat the steps. Errors: WF_EIO,
   WF_EDATA, WF_EINVAL (other numerics), WF_ENOMEM. */
wf_status wf_replay_rows_read(wf_replay_rows *rows, FILE *file, const char *path,
                              const char *numerics, wf_error *error);

/* Sorts what was read, and keeps the last row of each rank and step: a run that was continued
   has repeated it. */
void wf_replay_rows_sort(wf_replay_rows *rows);

void wf_replay_rows_free(wf_replay_rows *rows);

/* Returns how many parts a row has digests of. */
static inline size_t wf_replay_parts(const wf_replay_row *row)
{
    return json_array_size(row->digests);
}

/* Part number k of a row; its path is the rows'. */
void wf_replay_part(const wf_replay_row *row, size_t k, wf_par_held_part *part);

#endif

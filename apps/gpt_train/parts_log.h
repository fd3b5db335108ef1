/*
 * apps/gpt_train/parts_log.h - --log-digests: what each rank of a run held after each step, as digests, in a file of
 * its own; and --replay: the steps made again, on any mesh, beside those.
 *
 * rank-00003.jsonl: {"rank": 3, "ranks": 8, "numerics": .., "parts": [[path, kind, [size..], [start..],
 * [local..]], ..]}, once more where a run goes on; then {"step": n, "digests": [..]}, of the parts in order.
 */
#ifndef WF_APPS_PARTS_LOG_H
#define WF_APPS_PARTS_LOG_H

#include "apps/gpt_train/row_file.h"
#include <stdio.h>
#include <weft/parallel/train/parts.h>
#include <weft/weft.h>

/* ---- --flip-bit ---- */

/* STEP:RANK:TENSOR:ELEMENT:BIT, TENSOR a parameter's path, with .m or .v behind it a moment's. */
typedef struct app_flip {
    int64_t step, element;
    int rank, kind, bit;
    char path[512];
} app_flip;

/* WF_EINVAL: it is none. */
wf_status app_flip_read(const char *text, app_flip *flip, wf_error *error);

/* ---- --log-digests, of one rank ---- */

typedef struct app_parts_log {
    app_row_file file;
    bool told;    /* once that it cannot be written, which stops nothing */
    int64_t rows; /* since it was opened */
} app_parts_log;

/* Opens the rank's file, and makes the folder. */
wf_status app_parts_log_open(app_parts_log *log, const char *folder, int rank, wf_error *error);

/* Refuses a file that has rows, for a run that does not go on: WF_EINVAL. */
wf_status app_parts_log_fresh(const app_parts_log *log, wf_error *error);
void app_parts_log_close(app_parts_log *log);

/* The row of a step, behind what says which parts they are. */
wf_status app_parts_log_step(app_parts_log *log, int64_t step, const wf_rank *rank,
                             const char *numerics, const wf_par_held_part *part, int64_t n,
                             wf_error *error);

/* ---- --replay, of a process ---- */

typedef struct app_replay app_replay;

/* Reads all files of a folder. One that ends within a row was left by a run that was killed: what is before
   it counts. */
wf_status app_replay_open(const char *folder, const char *numerics, app_replay **replay,
                          wf_error *error);
void app_replay_close(app_replay *replay);

/* The step that the trainer has made is that of the run, on every rank whose file has it: or the context
   has WF_EDATA, which names step, rank and tensor. One rank tells on `out` which parts differ; the others
   give NULL. Collective. */
wf_status app_replay_step(const app_replay *replay, wf_par *par, wf_par_trainer *trainer,
                          int64_t step, FILE *out);

/* The last step that any file has. */
int64_t app_replay_last(const app_replay *replay);

/* What was made again, as a line. */
void app_replay_tell(const app_replay *replay, int64_t first, int64_t last, FILE *out);

#endif

/*
 * parallel/recovery/parts_log.h - logs digests of each rank's state after each step, in a file
 * per rank; and replays a run: the steps are repeated, on any mesh, and compared with the log.
 * Drills flip a bit to test that it is found.
 *
 * rank-00003.jsonl: {"rank": 3, "ranks": 8, "numerics": .., "parts": [[path, kind, [size..],
 * [start..], [local..]], ..]}, once more where a run is resumed; then {"step": n, "digests":
 * [..]}, of the parts in order.
 */
#ifndef WF_PARALLEL_RECOVERY_PARTS_LOG_H
#define WF_PARALLEL_RECOVERY_PARTS_LOG_H

#include "parallel/report/row_file.h"
#include "parallel/train/parts.h"
#include <stdio.h>

WF_BEGIN_DECLS

/** wf_flip - a bit to flip in a drill: after `step`, in `rank`'s part of a tensor */
typedef struct wf_flip {
    int64_t step, element; /* step 0: none */
    int rank, kind, bit;   /* kind: 0 parameter, 1 first moment, 2 second moment */
    char path[512];
} wf_flip;

/** wf_flip_read - reads STEP:RANK:TENSOR:ELEMENT:BIT, TENSOR a parameter's path, with .m or .v
 * after it a moment's. Errors: WF_EINVAL with the grammar */
WF_API wf_status wf_flip_read(const char *text, wf_flip *flip, wf_error *error);

/* The log of a rank's digests. */
typedef struct wf_parts_log {
    wf_row_file file;
    int64_t rows; /* since it was opened */
} wf_parts_log;

/** wf_parts_log_open - opens a rank's file, and makes the folder. Owner: the caller,
 * wf_parts_log_close. Errors: WF_EIO with path and reason, WF_ENOMEM */
WF_API wf_status wf_parts_log_open(wf_parts_log *log, const char *folder, int rank,
                                   wf_error *error);

/** wf_parts_log_fresh - refuses a file that has rows, for a run that begins at its first step.
 * Errors: WF_EINVAL */
WF_API wf_status wf_parts_log_fresh(const wf_parts_log *log, wf_error *error);

/** wf_parts_log_close - closes the file; a zeroed log is allowed. */
WF_API void wf_parts_log_close(wf_parts_log *log);

/**
 * wf_parts_log_step - appends the row of a step, after the row of parts before the first one
 *
 * @param part       [n], see wf_par_trainer_parts
 * @param unwritten  WF_EIO where the file takes no row, which ends no run
 * Errors:  WF_ENOMEM
 */
WF_API wf_status wf_parts_log_step(wf_parts_log *log, int64_t step, const wf_rank *rank,
                                   const char *numerics, const wf_par_held_part *part,
                                   int64_t n, wf_error *unwritten, wf_error *error);

typedef struct wf_replay wf_replay;

/**
 * wf_replay_open - reads all files of a folder
 *
 * One that ends within a row was left by a run that was killed: the rows before it count.
 *
 * @param numerics  the identity of this run's numerics, which the files must have
 * Owner:   the caller, wf_replay_close
 * Errors:  WF_EIO, WF_EDATA (file, line and reason), WF_EINVAL, WF_ENOMEM
 */
WF_API wf_status wf_replay_open(const char *folder, const char *numerics, wf_replay **replay,
                                wf_error *error);

/** wf_replay_close - frees it; NULL is allowed. */
WF_API void wf_replay_close(wf_replay *replay);

/**
 * wf_replay_step - compares the trainer's step with that of the log, on every rank whose file
 * has it
 *
 * @param out  the stream on which one rank prints differing parts; NULL on the others
 * Collective. Errors: WF_EDATA in the context, which names step, rank and tensor
 */
WF_API wf_status wf_replay_step(const wf_replay *replay, wf_par *par, wf_par_trainer *trainer,
                                int64_t step, FILE *out);

/** wf_replay_last - returns the last step that any file has */
WF_API int64_t wf_replay_last(const wf_replay *replay);

/** wf_replay_report - prints the range of replayed steps, as a line */
WF_API void wf_replay_report(const wf_replay *replay, int64_t first, int64_t last, FILE *out);

WF_END_DECLS

#endif

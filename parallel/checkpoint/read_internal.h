/*
 * parallel/checkpoint/read_internal.h - any part of a tensor from the files of a checkpoint: of
 * each saved part that overlaps it the runs that both have in common. Not installed.
 */
#ifndef WF_PARALLEL_CHECKPOINT_READ_INTERNAL_H
#define WF_PARALLEL_CHECKPOINT_READ_INTERNAL_H

#include "parallel/checkpoint/commit_internal.h"
#include "parallel/checkpoint/verify_internal.h"

typedef struct wf_reader {
    const wf_par_checkpoint *from;
    int64_t rank; /* WF_INDEX_LOCAL: whose file is read; -1: no process's */
    struct wf_reader_source
        *source; /* [sources], files that are open, by number modulo sources */
    int64_t sources;
} wf_reader;

/* Owner: caller, wf_reader_close (also of a failed one). */
wf_status wf_reader_open(wf_reader *reader, const wf_par_checkpoint *from, wf_error *error);
void wf_reader_close(wf_reader *reader);

/* Elements of a part of tensor i of the index, row by row; bit: value, m or v. */
wf_status wf_reader_read(wf_reader *reader, int64_t i, int bit, const wf_part *part, float *to,
                         wf_error *error);

/* Returns true where a part of tensor i is one that was saved, so that a checksum of its bytes
   is stated. */
bool wf_reader_is_saved(const wf_reader *reader, int64_t i, const wf_part *part);

/* That checksum, of a part that is; *file is the number of the file that has it. */
wf_status wf_reader_stated(wf_reader *reader, int64_t i, int bit, const wf_part *part,
                           uint64_t *checksum, int64_t *file, wf_error *error);

#endif

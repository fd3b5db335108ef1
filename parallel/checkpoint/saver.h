/*
 * parallel/checkpoint/saver.h - the inside of a saver. A save goes through stages; in each a rank
 * works by itself, on a thread of its own where it is asynchronous, and then all agree (agree.h):
 *
 *     sharded, local   write my file | publish
 *     full             write my parts | checksums of the tensors that are mine to read | publish
 *
 * Not installed.
 */
#ifndef WF_PARALLEL_CHECKPOINT_SAVER_H
#define WF_PARALLEL_CHECKPOINT_SAVER_H

#include "parallel/checkpoint.h"
#include "parallel/checkpoint/pieces.h"
#include <pthread.h>
#include <stdatomic.h>

/* What the first stage of every kind sums up. */
enum { WF_SUM_FILES, WF_SUM_BYTES, WF_SUM_CHECKSUM, WF_SUM_DIGEST, WF_SUMS };

/* The work of one rank in a stage: leaves its numbers in sum[]. */
typedef wf_status wf_save_stage(wf_par_saver *s, wf_error *error);

struct wf_par_saver {
    wf_par *par;
    wf_par_save_options options;
    char *dir;
    const wf_file_calls *calls;
    wf_state state;
    wf_pieces pieces;
    wf_header header; /* of this rank's file; of the one file with WF_INDEX_FULL */
    int64_t need;     /* bytes of all files, without headers; WF_INDEX_LOCAL: of this rank's */
    char *staging;    /* asynchronous: what is written, from the pool */
    char *room;       /* where pieces are cut out, one at a time */

    int64_t step, saved;
    wf_save_stage *const *stage; /* the one that is under way, NULL: none */
    int64_t sums;                /* numbers to agree on after it */
    uint64_t *sum;               /* [sums] of the stage, then of all ranks */
    uint64_t total[WF_SUMS];     /* of the first stage */
    wf_error error;              /* of the stage */
    bool threaded;
    pthread_t thread;
    atomic_bool done;
};

/* The stages of a kind, ended by NULL. */
wf_save_stage *const *wf_save_stages(wf_index_kind kind);

/* DIR/step-*.partial of the save that is under way; returns text. */
char *wf_saver_partial(const wf_par_saver *s, char text[4096]);

/* Where the elements of a piece lie: in the staging memory or in the tensor; NULL: not side by
   side. The same, or cut out, one piece at a time. */
const char *wf_saver_place(const wf_par_saver *s, const wf_piece *piece);
const char *wf_saver_data(const wf_par_saver *s, const wf_piece *piece);

/* The last stage, of rank 0. */
wf_status wf_save_publish(wf_par_saver *s, wf_error *error);
/* The others of WF_INDEX_FULL; and its header, which rank 0 writes before it publishes. */
wf_status wf_save_full_parts(wf_par_saver *s, wf_error *error);
wf_status wf_save_full_checksums(wf_par_saver *s, wf_error *error);
wf_status wf_save_full_header(wf_par_saver *s, wf_error *error);

#endif

/*
 * parallel/checkpoint/saver_internal.h - the inside of a saver. A save goes through stages; in
 * each a rank works by itself, on a thread of its own where it is asynchronous, and then all
 * agree (agree.h):
 *
 *     sharded, local   begin | write my file | publish
 *     full             begin | write my parts | checksums of the tensors that are mine |
 *                      publish
 *
 * To begin is rank 0's: a new directory, whose mark all learn from the agreement.
 *
 * Not installed.
 */
#ifndef WF_PARALLEL_CHECKPOINT_SAVER_INTERNAL_H
#define WF_PARALLEL_CHECKPOINT_SAVER_INTERNAL_H

#include "parallel/checkpoint/checkpoint.h"
#include "parallel/checkpoint/pieces_internal.h"
#include "core/files/folder_internal.h"
#include <pthread.h>
#include <stdatomic.h>

/* The numbers that are summed at the begin of a save, and of its writing. */
enum { WF_BEGUN_MARK, WF_BEGUN_NEED, WF_BEGUN };
enum { WF_SUM_FILES, WF_SUM_BYTES, WF_SUM_CHECKSUM, WF_SUM_DIGEST, WF_SUMS };

/* The meaning of the numbers of a stage, which are summed over ranks. */
typedef enum wf_save_numbers {
    WF_NUMBERS_NONE,
    WF_NUMBERS_BEGUN,
    WF_NUMBERS_FILES,
    WF_NUMBERS_TENSORS /* a checksum of each */
} wf_save_numbers;

typedef struct wf_save_stage {
    /* The work of one rank: leaves its numbers in sum[]. NULL: there is no such stage. */
    wf_status (*work)(wf_par_saver *s, wf_error *error);
    wf_save_numbers numbers;
} wf_save_stage;

struct wf_par_saver {
    wf_par *par;
    const wf_par_trainer *trainer; /* the one that is saved */
    wf_par_save_options options;
    char *dir;
    char *moved; /* rank 0: where that is now, if elsewhere; NULL */
    /* the open directory, from the first save on: saves go where it is moved to */
    wf_folder folder;
    const wf_file_calls *calls; /* the system's; a test may set others before the first save */
    wf_state state;
    wf_pieces pieces;
    wf_header header;     /* this rank's file's; with WF_INDEX_FULL that of the one file */
    int64_t header_bytes; /* whatever checksums stand in it */
    int64_t need;  /* bytes of the whole checkpoint on a disk, of the save that is under way */
    char *staging; /* asynchronous: what is written, from the pool */
    char *room;    /* buffer in which pieces are cut out, one at a time */

    int64_t step, saved;
    uint64_t mark; /* marks the directory that is written to; 0: there is none */
    int64_t published_count;
    /* [published_count] the steps that were saved, and on rank 0 the one that is */
    int64_t *published;
    const wf_save_stage *stage; /* the one that is under way, NULL: none */
    int64_t sums;               /* numbers to agree on after it */
    uint64_t *sum;              /* [sums] of the stage, then of all ranks */
    uint64_t total[WF_SUMS];    /* the totals of all data files */
    wf_error error;             /* the stage's */
    bool threaded;
    pthread_t thread;
    atomic_bool done;
};

/* The stages of a kind. */
const wf_save_stage *wf_save_stages(wf_index_kind kind);

/* Opens the directory and keeps it open; `first`, of rank 0: makes it where it is not there,
   follows it where it was moved, and asks for another one where it was removed. */
wf_status wf_saver_folder(wf_par_saver *s, bool first, wf_error *error);

/* The stages of wf_par_saver_check. */
const wf_save_stage *wf_saver_check_stages(void);

/* A file of DIR/step-*.partial of the save that is under way, `rank` as in wf_ckpt_file. */
wf_status wf_saver_file(wf_par_saver *s, int64_t rank, wf_file_mode mode, wf_file *file,
                        wf_error *error);

/* Returns the elements of a piece: in the staging memory or in the tensor; NULL: not
   contiguous. The second function cuts one out, one piece at a time. */
const char *wf_saver_view(const wf_par_saver *s, const wf_piece *piece);
const char *wf_saver_data(const wf_par_saver *s, const wf_piece *piece);

/* The first stage, and the last one: of rank 0. */
wf_status wf_save_begin(wf_par_saver *s, wf_error *error);
wf_status wf_save_publish(wf_par_saver *s, wf_error *error);
/* The others of WF_INDEX_FULL; and its header, which rank 0 writes before it publishes. */
wf_status wf_save_full_parts(wf_par_saver *s, wf_error *error);
wf_status wf_save_full_checksums(wf_par_saver *s, wf_error *error);
wf_status wf_save_full_header(wf_par_saver *s, wf_error *error);

#endif

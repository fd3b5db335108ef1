/*
 * parallel/recovery/snapshot.h - what the ranks of a run that failed leave of its trainer, in
 * memory: the same run goes on from it at once, on a mesh of the ranks that there are.
 *
 *     wf_par_snapshot *snapshot = wf_par_snapshot_open(error);
 *     wf_launch(..)            each rank: train; where its steps end with WF_ELOST,
 *     wf_par_snapshot_put wf_par_snapshot_seal(snapshot);
 *     wf_launch(..)            each rank: open a trainer, wf_par_snapshot_restore, go on behind
 *     *step
 *
 * Nothing is read from a disk, and no step is lost: state is kept after the last update that
 * any rank has made (README.md says why all can have it). What only the lost ranks held needs a
 * buddy (WF_PAR_REDUNDANCY_BUDDY).
 *
 * Steps have to have their wf_par_clip between wf_par_reduce and wf_par_optimizer_step, as
 * wf_par_train_step has.
 */
#ifndef WF_PARALLEL_RECOVERY_SNAPSHOT_H
#define WF_PARALLEL_RECOVERY_SNAPSHOT_H

#include "parallel/train/train.h"

WF_BEGIN_DECLS

typedef struct wf_par_snapshot wf_par_snapshot;

/** wf_par_snapshot_open - an empty one, for the ranks of this process. Owner: caller;
 * wf_par_snapshot_close (NULL is allowed). Errors: WF_ENOMEM; NULL then. */
WF_API wf_par_snapshot *wf_par_snapshot_open(wf_error *error);
WF_API void wf_par_snapshot_close(wf_par_snapshot *snapshot);

/**
 * wf_par_snapshot_serves - whether what a trainer holds could be taken up by another one
 *
 * Errors:  WF_EUNSUPPORTED in the context, naming the parameter: an update that ranks make
 *          together (Muon's matrices, zero1), or state in 8 bits whose rows are cut
 */
WF_API wf_status wf_par_snapshot_serves(wf_par_trainer *trainer);

/**
 * wf_par_snapshot_put - keep what this rank holds: what another one has put already is kept
 * once
 *
 * A rank whose own step failed, by its device or its memory, puts nothing: its error is its
 * own, WF_ELOST that of the others. What comes after wf_par_snapshot_seal is not taken.
 *
 * Collective:  no; ranks that are threads may put at the same time
 * Errors:      WF_ENOMEM, WF_EINVAL (a rank that failed by itself, or within its update)
 */
WF_API wf_status wf_par_snapshot_put(wf_par_snapshot *snapshot, wf_par_trainer *trainer,
                                     wf_error *error);

/** wf_par_snapshot_seal - all that there is has been put. Returns the step after which it is,
 * -1 where there is nothing. */
WF_API int64_t wf_par_snapshot_seal(wf_par_snapshot *snapshot);

/** wf_par_snapshot_ranks - how many ranks have put; wf_par_snapshot_bytes - the memory that it
 * takes. */
WF_API int wf_par_snapshot_ranks(const wf_par_snapshot *snapshot);
WF_API int64_t wf_par_snapshot_bytes(const wf_par_snapshot *snapshot);

/**
 * wf_par_snapshot_restore - bring a trainer to the state that was kept, whatever its mesh,
 * strategy and micro-batch are
 *
 * @param step     set: the steps that are done
 * @param missing  WF_EDATA with its text where some of it was held by no rank that is left, and
 *                 which: the context goes on then, and the trainer has to be brought to another
 *                 state (wf_par_checkpoint_load)
 * Returns:        WF_EDATA then, else the context's status
 * Collective:     over the world
 * Errors:         on every rank alike, in the context: WF_ELOST, WF_EINVAL (another model),
 *                 WF_ENOMEM
 */
WF_API wf_status wf_par_snapshot_restore(wf_par_snapshot *snapshot, wf_par_trainer *trainer,
                                         int64_t *step, wf_error *missing);

/**
 * wf_par_snapshot_save - write a sealed snapshot to a file, of memory that outlives the
 * process: /dev/shm
 *
 * The file is there as a whole or not at all, for this user alone. A host that loses its power
 * loses its memory.
 *
 * @param folder  a descriptor of wf_own_folder_open, or AT_FDCWD
 * @param name    of the file in it
 * @param texts   [2 n] key, value, ..: kept with it
 * Errors:        WF_EIO, WF_ENOMEM
 */
WF_API wf_status wf_par_snapshot_save(const wf_par_snapshot *snapshot, int folder,
                                      const char *name, const char *const *texts, int64_t n,
                                      wf_error *error);

/**
 * wf_par_snapshot_load - add what a file has to a snapshot that is not sealed; of several
 * files, those of one step
 *
 * A file is taken that is this user's, who alone can write to it: a link, or another user's, is
 * refused.
 *
 * @param text  called for each of the texts that were kept with it, before anything else is
 *              read; an error ends it
 * Errors:      WF_EIO, WF_EDATA, WF_ENOMEM, those of `text`
 */
WF_API wf_status wf_par_snapshot_load(wf_par_snapshot *snapshot, int folder, const char *name,
                                      wf_status (*text)(void *arg, const char *key,
                                                        const char *value, wf_error *error),
                                      void *arg, wf_error *error);

WF_END_DECLS

#endif

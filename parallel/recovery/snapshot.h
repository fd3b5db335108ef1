/*
 * parallel/recovery/snapshot.h - in-memory snapshots: the ranks of a failed run leave the state
 * of its trainer in memory, and the run continues at once, on a mesh of the remaining ranks.
 *
 *     wf_par_snapshot *snapshot = wf_par_snapshot_open(error);
 *     wf_launch(..)            each rank: train; where its steps end with WF_ELOST,
 *                              wf_par_snapshot_put
 *     wf_par_snapshot_seal(snapshot);
 *     wf_launch(..)            each rank: open a trainer, wf_par_snapshot_restore, continue
 *                              after *step
 *
 * Nothing is read from a disk, and no step is lost: the state is that after the last update
 * that any rank has made (README.md explains why all can have it). Parts that only the lost
 * ranks held need a buddy (WF_PAR_REDUNDANCY_BUDDY).
 *
 * Steps must call wf_par_clip between wf_par_reduce and wf_par_optimizer_step, as
 * wf_par_train_step does.
 */
#ifndef WF_PARALLEL_RECOVERY_SNAPSHOT_H
#define WF_PARALLEL_RECOVERY_SNAPSHOT_H

#include "parallel/train/train.h"

WF_BEGIN_DECLS

typedef struct wf_par_snapshot wf_par_snapshot;

/** wf_par_snapshot_open - opens an empty snapshot, for the ranks of this process. Owner:
 * caller; wf_par_snapshot_close (NULL is allowed). Errors: WF_ENOMEM; NULL then. */
WF_API wf_par_snapshot *wf_par_snapshot_open(wf_error *error);
WF_API void wf_par_snapshot_close(wf_par_snapshot *snapshot);

/**
 * wf_par_snapshot_serves - checks that the state of a trainer can be continued by another one
 *
 * Errors:  WF_EUNSUPPORTED in the context, naming the parameter: an update that ranks make
 *          together (Muon's matrices, zero1), or state in 8 bits whose rows are cut
 */
WF_API wf_status wf_par_snapshot_serves(wf_par_trainer *trainer);

/**
 * wf_par_snapshot_put - stores this rank's state in the snapshot, each part of all ranks once
 *
 * A rank whose own step failed, by its device or its memory, puts nothing: its error is its
 * own, WF_ELOST that of the others. After wf_par_snapshot_seal nothing is stored.
 *
 * Collective:  no; ranks that are threads may put at the same time
 * Errors:      WF_ENOMEM, WF_EINVAL (a rank that failed by itself, or within its update)
 */
WF_API wf_status wf_par_snapshot_put(wf_par_snapshot *snapshot, wf_par_trainer *trainer,
                                     wf_error *error);

/** wf_par_snapshot_seal - ends the puts. Returns the step after which the state is, -1 where
 * there is none. */
WF_API int64_t wf_par_snapshot_seal(wf_par_snapshot *snapshot);

/** wf_par_snapshot_ranks - returns the number of ranks that have put; wf_par_snapshot_bytes -
 * the memory in use. */
WF_API int wf_par_snapshot_ranks(const wf_par_snapshot *snapshot);
WF_API int64_t wf_par_snapshot_bytes(const wf_par_snapshot *snapshot);

/**
 * wf_par_snapshot_restore - restores a trainer from the snapshot, whatever its mesh, strategy
 * and micro-batch
 *
 * @param step     set: the steps that are done
 * @param missing  WF_EDATA with its text where a part was held by none of the remaining ranks,
 *                 and which: the context stays usable, and the trainer has to be restored
 *                 otherwise (wf_par_checkpoint_load)
 * Returns:        WF_EDATA then, else the context's status
 * Collective:     over the world
 * Errors:         on every rank alike, in the context: WF_ELOST, WF_EINVAL (another model),
 *                 WF_ENOMEM
 */
WF_API wf_status wf_par_snapshot_restore(wf_par_snapshot *snapshot, wf_par_trainer *trainer,
                                         int64_t *step, wf_error *missing);

/**
 * wf_par_snapshot_save - writes a sealed snapshot to a file, of memory that outlives the
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
 * wf_par_snapshot_load - adds the content of a file to a snapshot that is not sealed; of
 * several files, those of one step
 *
 * The file must be this user's and writable by no other: a link, or another user's, is refused.
 *
 * @param text  called for each of the texts stored with it, before anything else is read; an
 *              error ends it
 * Errors:      WF_EIO, WF_EDATA, WF_ENOMEM, those of `text`
 */
WF_API wf_status wf_par_snapshot_load(wf_par_snapshot *snapshot, int folder, const char *name,
                                      wf_status (*text)(void *arg, const char *key,
                                                        const char *value, wf_error *error),
                                      void *arg, wf_error *error);

WF_END_DECLS

#endif

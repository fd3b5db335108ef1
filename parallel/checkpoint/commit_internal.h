/*
 * parallel/checkpoint/commit_internal.h - the directories of checkpoints: names, publishing
 * one, and deleting old ones. Not installed.
 *
 *     DIR/step-00000020.<16 digits>.partial   being written, or left by a run that was stopped
 *                                             then
 *     DIR/step-00000020                       published
 *     DIR/step-00000020.replaced              what was published of this step before; where a
 *                                             run was stopped between two renames, the only one
 *     DIR/latest                              the name of what was published last
 *
 * The digits are new ones for every save, so nothing that was left, or put there, is written
 * to. Below DIR no symbolic link is followed where something is written or removed.
 */
#ifndef WF_PARALLEL_CHECKPOINT_COMMIT_INTERNAL_H
#define WF_PARALLEL_CHECKPOINT_COMMIT_INTERNAL_H

#include "core/files/folder_internal.h"
#include "parallel/checkpoint/index_internal.h"

enum { WF_CKPT_PATH = WF_FILES_PATH, WF_CKPT_NAME = 64 };

#define WF_CKPT_INDEX "index.json"

/* "step-00000020"; the same of one that is being written; file `rank` of a checkpoint, -1: of
   whole tensors. Return text. */
char *wf_ckpt_name(char text[WF_CKPT_NAME], int64_t step);
char *wf_ckpt_partial(char text[WF_CKPT_NAME], int64_t step, uint64_t mark);
char *wf_ckpt_file(char text[WF_CKPT_NAME], int64_t rank);

/* The step in a name of a published one, or -1; the same of one that was replaced. */
int64_t wf_ckpt_step(const char *name);
int64_t wf_ckpt_replaced_step(const char *name);

/* The target of a save: DIR, which its owner keeps open, and in it DIR/step-*.partial. */
typedef struct wf_ckpt_target {
    const wf_folder *dir;
    wf_folder partial;
} wf_ckpt_target;

/*
 * Cleans up what other saves have left in DIR: what they replaced is restored if it is the only
 * one of its step, and what they did not publish is deleted. One rank does this, when the run
 * has loaded the checkpoint it continues from, which may have such a name; no other save into
 * DIR may be under way.
 */
wf_status wf_ckpt_tidy(const wf_folder *dir, wf_error *error);

/* Make a new directory for a save in DIR, with a mark of its own. One rank does this. */
wf_status wf_ckpt_begin(const wf_folder *dir, int64_t step, uint64_t *mark, wf_error *error);

/* Open it, from any rank once it is there. Owner: caller, wf_ckpt_leave (also a failed one). */
wf_status wf_ckpt_enter(wf_ckpt_target *target, const wf_folder *dir, int64_t step,
                        uint64_t mark, wf_error *error);
void wf_ckpt_leave(wf_ckpt_target *target);

/*
 * Which checkpoints may be deleted: `keep` stay (0: all) of those of this run, which are the
 * steps up to `began`, where it began, and those it has saved. A later one that it has not
 * saved is of a run that was given up, or of one that this run should have continued from: it
 * stays, and is not counted.
 */
typedef struct wf_ckpt_keep {
    int keep;
    int64_t began;
    int64_t count;
    const int64_t *saved; /* [count] the steps that this run has saved, the last of them now */
} wf_ckpt_keep;

/*
 * Publishes a folder whose data files are written and synced: checks that all are there, writes
 * the index, syncs, renames, moves `latest`, deletes what `keep` does not cover. Once `latest`
 * has moved, an error is one of deleting alone, and is not reported: the next save finds what
 * is left.
 */
wf_status wf_ckpt_publish(const wf_ckpt_target *target, uint64_t mark, const wf_index *index,
                          const wf_ckpt_keep *keep, wf_error *error);

/* Remove what was begun and will not be published. */
void wf_ckpt_abandon(const wf_folder *dir, int64_t step, uint64_t mark);

/* WF_EDATA where a folder has not just the data files that an index speaks of, of the size that
   it says, all together. */
wf_status wf_ckpt_check_files(const wf_folder *folder, const wf_index *index, wf_error *error);

/* The step that DIR/latest names; -1: there is no such file. WF_EIO, WF_EDATA. */
wf_status wf_ckpt_latest(const wf_folder *dir, int64_t *step, wf_error *error);

#endif

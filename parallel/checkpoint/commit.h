/*
 * parallel/checkpoint/commit.h - the directories of checkpoints: names, publishing one, and
 * deleting old ones. Not installed.
 *
 *     DIR/step-00000020.partial      being written, or left by a run that was stopped then
 *     DIR/step-00000020              published
 *     DIR/step-00000020.replaced     there was one of this step already, with other contents
 *     DIR/latest                     the name of what was published last
 */
#ifndef WF_PARALLEL_CHECKPOINT_COMMIT_H
#define WF_PARALLEL_CHECKPOINT_COMMIT_H

#include "parallel/checkpoint/index.h"

enum { WF_CKPT_PATH = 4096 };

/* DIR/step-00000020 with what is to follow; file `rank` of a checkpoint, -1: of whole tensors;
   its index. Return text. */
char *wf_ckpt_path(char text[WF_CKPT_PATH], const char *dir, int64_t step, const char *suffix);
char *wf_ckpt_file(char text[WF_CKPT_PATH], const char *path, int64_t rank);
char *wf_ckpt_index(char text[WF_CKPT_PATH], const char *path);

/* The step in a name of a published one, or -1. */
int64_t wf_ckpt_step(const char *name);

/* Make DIR and DIR/step-*.partial; every rank may. */
wf_status wf_ckpt_begin(const wf_file_calls *calls, const char *dir, int64_t step,
                        wf_error *error);

/*
 * Publish what lies in DIR/step-*.partial, whose data files are written and synced: write the
 * index, sync, rename, move `latest`, delete what `keep` does not cover. Once `latest` has moved
 * an error is one of deleting alone, and is not told: the next time finds what is left.
 */
wf_status wf_ckpt_publish(const wf_file_calls *calls, const char *dir, const wf_index *index,
                          int keep, wf_error *error);

/* Remove what was begun and will not be published. */
void wf_ckpt_abandon(const wf_file_calls *calls, const char *dir, int64_t step);

#endif

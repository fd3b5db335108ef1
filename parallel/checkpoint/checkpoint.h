/*
 * parallel/checkpoint/checkpoint.h - checkpoints: what a trainer holds, on disk, for any mesh
 * to go on with.
 *
 * A directory has a checkpoint per saved step. One is there as a whole or not at all: it is
 * written under another name, synced, agreed on by all ranks, and only then renamed:
 *
 *     DIR/latest                        names the one that was saved last
 *     DIR/step-00000020/index.json      what there is: parallel/checkpoint/index_internal.h
 *     DIR/step-00000020/rank-00000.safetensors, ..     data
 *
 * In a directory for checkpoints no symbolic link is followed where something is written or
 * deleted.
 *
 * Of a model with adapters (nn/layers/lora.h) it has what is trained, and not the base, which
 * does not change.
 *
 * After loading, training goes on bit for bit as if nothing had happened, on any mesh and
 * strategy.
 */
#ifndef WF_PARALLEL_CHECKPOINT_CHECKPOINT_H
#define WF_PARALLEL_CHECKPOINT_CHECKPOINT_H

#include "parallel/train/train.h"

WF_BEGIN_DECLS

typedef enum wf_par_checkpoint_kind {
    WF_PAR_SAVE_SHARDED, /* a file per rank, of what it alone has to write */
    WF_PAR_SAVE_FULL,    /* one file of whole tensors, to which every rank writes its parts */
    /* a file per rank with all that it holds; for the same mesh and strategy */
    WF_PAR_SAVE_LOCAL
} wf_par_checkpoint_kind;

typedef struct wf_par_save_options {
    /* made where it is not there; its parent is. It is kept open, and followed where it is
       moved */
    const char *dir;
    wf_par_checkpoint_kind kind;
    /* Checkpoints that stay, 0: all, else at least 2. Only those of this run are counted and
       deleted: what this saver has saved, and steps up to the one that the trainer went on
       from. */
    int keep;
    bool async; /* copy at the call, write beside the next steps */
    /* Texts to be kept with it: key, value, key, value, ..; read whenever a save begins. */
    int64_t option_count;
    const char *const *option;
    /* Called on rank 0 where dir was removed since it was opened, before it is made again:
       whoever has locked it locks it anew, and says so. An error is that of the save. NULL:
       each save after that is an error. */
    wf_status (*remake)(void *arg, wf_error *error);
    void *remake_arg;
} wf_par_save_options;

typedef struct wf_par_saver wf_par_saver;

/**
 * wf_par_saver_open - what saves a trainer
 *
 * An asynchronous one takes memory for a copy of what this rank writes, now and until it is
 * closed (WF_MEMORY_CHECKPOINT). In a plan nothing is written.
 *
 * @param options  copied, with dir; what else it points to stays alive
 * Collective:  no
 * Owner:       caller; wf_par_saver_close, before the trainer is closed
 * Errors:      WF_EINVAL, WF_ENOMEM in the context; NULL then
 */
WF_API wf_par_saver *wf_par_saver_open(wf_par_trainer *trainer,
                                       const wf_par_save_options *options);

/**
 * wf_par_saver_check - makes the directory and sees that all ranks can write to it, before
 * hours of work are to go there
 *
 * Collective:  over the world
 * Errors:      on every rank alike, in `error`, naming a rank: WF_EIO, where a host does not
 *              share the directory too
 */
WF_API wf_status wf_par_saver_check(wf_par_saver *saver, wf_error *error);

/** wf_par_saver_close - waits for what is being written, and drops it if nobody finished it.
 * NULL is allowed. */
WF_API void wf_par_saver_close(wf_par_saver *saver);

/**
 * wf_par_saver_save - save what the trainer holds after `step` steps
 *
 * Where any rank fails, none publishes, and the checkpoints from before stay as they are. A
 * step that is saved already is replaced. One save into a directory at a time.
 *
 * Collective:  over the world
 * Errors:      on every rank alike, in `error`, naming rank and file: WF_EIO, WF_ENOMEM;
 *              WF_ENONFINITE where a parameter is not finite, which is not saved;
 *              WF_EINVAL where another is still being written. The trainer is as it was. In the
 *              context too: WF_ELOST, WF_EMISMATCH, WF_ETIMEOUT
 */
WF_API wf_status wf_par_saver_save(wf_par_saver *saver, int64_t step, wf_error *error);

/**
 * wf_par_saver_poll - go on with a save that is being written, if its ranks are as far
 * wf_par_saver_finish - the same, but wait for it
 *
 * Nothing where nothing is being written. Collective and errors: as wf_par_saver_save.
 */
WF_API wf_status wf_par_saver_poll(wf_par_saver *saver, wf_error *error);
WF_API wf_status wf_par_saver_finish(wf_par_saver *saver, wf_error *error);

/** wf_par_saver_busy - whether a save is being written: alike on all ranks. */
WF_API bool wf_par_saver_busy(const wf_par_saver *saver);

/** wf_par_saver_saved - the step that was published last, 0 before. */
WF_API int64_t wf_par_saver_saved(const wf_par_saver *saver);

/** wf_par_saver_path - directory of the checkpoint of a step, on rank 0 where dir was moved to;
 * returns text. */
WF_API char *wf_par_saver_path(const wf_par_saver *saver, int64_t step, char *text,
                               size_t size);

/**
 * wf_par_checkpoint_list - paths of the checkpoints of a directory in the order in which to try
 * them: the one that `latest` names, then the others, newest first. A directory that is not
 * there has none. Their indexes are not looked at.
 *
 * Owner:   caller, free() each and the list, also where there is an error
 * Errors:  WF_ENOMEM; WF_EIO: what there is cannot be read, and no list is known; WF_EDATA,
 *          WF_EIO: `latest` cannot be read or names what is not there, and the others are
 *          listed
 */
WF_API wf_status wf_par_checkpoint_list(const char *dir, char ***paths, int64_t *count,
                                        wf_error *error);

typedef struct wf_par_checkpoint wf_par_checkpoint;

/** wf_par_checkpoint_there - whether a path is a checkpoint's own directory, and not one of
 * several; also where it cannot be looked at: to open it says why. */
WF_API bool wf_par_checkpoint_there(const char *path);

/**
 * wf_par_checkpoint_open - read the index of a checkpoint; ranks may share what comes out
 *
 * @param path  of the checkpoint's own directory
 * Owner:       caller; wf_par_checkpoint_close (NULL is allowed)
 * Errors:      WF_EIO, WF_EDATA, WF_ENOMEM; NULL then
 */
WF_API wf_par_checkpoint *wf_par_checkpoint_open(const char *path, wf_error *error);
WF_API void wf_par_checkpoint_close(wf_par_checkpoint *checkpoint);

/** wf_par_checkpoint_path, wf_par_checkpoint_step, wf_par_checkpoint_sequences - where it is,
 * the steps that are done, and the sequences of data that they took;
 * wf_par_checkpoint_is_local - whether it was saved with WF_PAR_SAVE_LOCAL;
 * wf_par_checkpoint_option - a text that was kept with it, or NULL. Owner: the checkpoint. */
WF_API const char *wf_par_checkpoint_path(const wf_par_checkpoint *checkpoint);
WF_API int64_t wf_par_checkpoint_step(const wf_par_checkpoint *checkpoint);
WF_API int64_t wf_par_checkpoint_sequences(const wf_par_checkpoint *checkpoint);
WF_API bool wf_par_checkpoint_is_local(const wf_par_checkpoint *checkpoint);
WF_API const char *wf_par_checkpoint_option(const wf_par_checkpoint *checkpoint,
                                            const char *key);

/**
 * wf_par_checkpoint_load - bring a trainer to the state that was saved
 *
 * Every rank reads what it holds, and no more. Where those are the parts that were saved, as on
 * the same mesh and strategy, they are checked against their checksums; else all is checked
 * against the digest that was saved, and where that differs, the checksums of all files tell
 * which tensor is damaged.
 *
 * Collective:  over the world
 * Errors:      on every rank alike, in `error`: WF_EINVAL (another model, optimizer or, with
 *              WF_PAR_SAVE_LOCAL, layout), WF_EDATA (damaged: file, tensor and rank are named),
 *              WF_EIO, WF_ENOMEM. The trainer's values are then undefined, and another one may
 *              be loaded. In the context too: WF_ELOST, WF_EMISMATCH, WF_ETIMEOUT
 */
WF_API wf_status wf_par_checkpoint_load(wf_par_trainer *trainer,
                                        const wf_par_checkpoint *checkpoint, wf_error *error);

/** wf_par_checkpoint_parameters - how many it holds; wf_par_checkpoint_fits - WF_EINVAL where
 * they are not those of a model, by name and shape: to be asked before anything is
 * materialised. */
WF_API int64_t wf_par_checkpoint_parameters(const wf_par_checkpoint *checkpoint);
WF_API wf_status wf_par_checkpoint_fits(wf_nn_module *model,
                                        const wf_par_checkpoint *checkpoint, wf_error *error);

/**
 * wf_par_checkpoint_load_model - the parameters alone of a checkpoint, for a model that is not
 * trained
 *
 * Every rank reads what it holds; first they check the files of the checkpoint against their
 * checksums, in turns.
 *
 * @param model  planned and materialised
 * Layout:      any, but that of the checkpoint with WF_PAR_SAVE_LOCAL, which no model alone has
 * Collective:  over the world
 * Errors:      as wf_par_checkpoint_load
 */
WF_API wf_status wf_par_checkpoint_load_model(wf_par *par, wf_nn_module *model,
                                              const wf_par_checkpoint *checkpoint,
                                              wf_error *error);

/**
 * wf_par_checkpoint_verify - check every byte of a checkpoint against its checksums
 *
 * Collective:  no
 * Errors:      WF_EDATA (file and tensor are named), WF_EIO, WF_ENOMEM
 */
WF_API wf_status wf_par_checkpoint_verify(const wf_par_checkpoint *checkpoint, wf_error *error);

WF_END_DECLS

#endif

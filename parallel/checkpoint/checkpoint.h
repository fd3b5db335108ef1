/*
 * parallel/checkpoint/checkpoint.h - checkpoints: the state of a trainer on disk, which any
 * mesh can resume.
 *
 * A directory has a checkpoint per saved step. One is there as a whole or not at all: it is
 * written under another name, synced, agreed on by all ranks, and only then renamed:
 *
 *     DIR/latest                        names the one that was saved last
 *     DIR/step-00000020/index.json      its index: parallel/checkpoint/index_internal.h
 *     DIR/step-00000020/rank-00000.safetensors, ..     data
 *
 * In a directory for checkpoints no symbolic link is followed where something is written or
 * deleted.
 *
 * Of a model with adapters (nn/layers/lora.h) it has the trained parameters, and not the base,
 * which does not change.
 *
 * After loading, training continues bit for bit, on any mesh and strategy.
 */
#ifndef WF_PARALLEL_CHECKPOINT_CHECKPOINT_H
#define WF_PARALLEL_CHECKPOINT_CHECKPOINT_H

#include "parallel/train/train.h"

WF_BEGIN_DECLS

typedef enum wf_par_checkpoint_kind {
    WF_PAR_SAVE_SHARDED, /* a file per rank, of the parts that it alone has to write */
    WF_PAR_SAVE_FULL,    /* one file of whole tensors, to which every rank writes its parts */
    /* a file per rank with its whole state; for the same mesh and strategy */
    WF_PAR_SAVE_LOCAL
} wf_par_checkpoint_kind;

typedef struct wf_par_save_options {
    /* made where it is missing; its parent exists. It is kept open, and followed where it is
       moved */
    const char *dir;
    wf_par_checkpoint_kind kind;
    /* Checkpoints that stay, 0: all, else at least 2. Only those of this run are counted and
       deleted: those that this saver has saved, and steps up to the one that the trainer
       resumed. */
    int keep;
    bool async; /* copy at the call, write beside the next steps */
    /* Texts stored with it: key, value, key, value, ..; read whenever a save begins. */
    int64_t option_count;
    const char *const *option;
    /* Called on rank 0 where dir was removed or unmounted since it was opened, before it is
       recreated: a program that has locked it locks the new one, and reports that. An error is
       that of the save. NULL: each save after that is an error. */
    wf_status (*remake)(void *arg, wf_error *error);
    void *remake_arg;
} wf_par_save_options;

typedef struct wf_par_saver wf_par_saver;

/**
 * wf_par_saver_open - opens the saver of a trainer
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
 * wf_par_saver_check - makes the directory and checks that all ranks can write to it, before
 * hours of work depend on it
 *
 * Collective:  over the world
 * Errors:      on every rank alike, in `error`, naming a rank: WF_EIO, where a host does not
 *              share the directory too
 */
WF_API wf_status wf_par_saver_check(wf_par_saver *saver, wf_error *error);

/** wf_par_saver_close - waits for a save that is being written, and drops it where it was not
 * finished. NULL is allowed. */
WF_API void wf_par_saver_close(wf_par_saver *saver);

/**
 * wf_par_saver_save - saves the state of the trainer after `step` steps
 *
 * Where any rank fails, none publishes, and the checkpoints from before stay as they are. A
 * step that is saved already is replaced. One save into a directory at a time.
 *
 * Collective:  over the world
 * Errors:      on every rank alike, in `error`, naming rank and file: WF_EIO, WF_ENOMEM;
 *              WF_ENONFINITE where a parameter is not finite, which is not saved; those of a
 *              context that has failed, whose state is that of no step;
 *              WF_EINVAL where another is still being written. The trainer is as it was. In the
 *              context too: WF_ELOST, WF_EMISMATCH, WF_ETIMEOUT
 */
WF_API wf_status wf_par_saver_save(wf_par_saver *saver, int64_t step, wf_error *error);

/**
 * wf_par_saver_poll - continues a save that is being written, if its ranks are as far
 * wf_par_saver_finish - continues it to its end, waiting
 *
 * Nothing happens where nothing is being written. Collective and errors: as wf_par_saver_save.
 */
WF_API wf_status wf_par_saver_poll(wf_par_saver *saver, wf_error *error);
WF_API wf_status wf_par_saver_finish(wf_par_saver *saver, wf_error *error);

/** wf_par_saver_busy - returns true while a save is being written: alike on all ranks. */
WF_API bool wf_par_saver_busy(const wf_par_saver *saver);

/** wf_par_saver_saved - returns the step that was published last, 0 before. */
WF_API int64_t wf_par_saver_saved(const wf_par_saver *saver);

/** wf_par_saver_path - writes the directory of the checkpoint of a step, on rank 0 where dir
 * was moved to; returns text. */
WF_API char *wf_par_saver_path(const wf_par_saver *saver, int64_t step, char *text,
                               size_t size);

/**
 * wf_par_checkpoint_list - lists the checkpoints of a directory in the order in which to try
 * them: the one that `latest` names, then the others, newest first. A missing directory has
 * none. Their indexes are not read.
 *
 * Owner:   caller, free() each and the list, also where there is an error
 * Errors:  WF_ENOMEM; WF_EIO: the directory cannot be read, and there is no list; WF_EDATA,
 *          WF_EIO: `latest` cannot be read or names a missing one, and the others are listed
 */
WF_API wf_status wf_par_checkpoint_list(const char *dir, char ***paths, int64_t *count,
                                        wf_error *error);

typedef struct wf_par_checkpoint wf_par_checkpoint;

/** wf_par_checkpoint_there - returns true where a path is a checkpoint's own directory, and not
 * one of several; also where it cannot be read: opening it gives the reason. */
WF_API bool wf_par_checkpoint_there(const char *path);

/**
 * wf_par_checkpoint_open - reads the index of a checkpoint; ranks may share the result
 *
 * @param path  of the checkpoint's own directory
 * Owner:       caller; wf_par_checkpoint_close (NULL is allowed)
 * Errors:      WF_EIO, WF_EDATA, WF_ENOMEM; NULL then
 */
WF_API wf_par_checkpoint *wf_par_checkpoint_open(const char *path, wf_error *error);
WF_API void wf_par_checkpoint_close(wf_par_checkpoint *checkpoint);

/** wf_par_checkpoint_path, wf_par_checkpoint_step, wf_par_checkpoint_sequences - return its
 * path, the number of steps done, and of the sequences of data that they took;
 * wf_par_checkpoint_is_local - true where it was saved with WF_PAR_SAVE_LOCAL;
 * wf_par_checkpoint_option - a text stored with it, or NULL. Owner: the checkpoint. */
WF_API const char *wf_par_checkpoint_path(const wf_par_checkpoint *checkpoint);
WF_API int64_t wf_par_checkpoint_step(const wf_par_checkpoint *checkpoint);
WF_API int64_t wf_par_checkpoint_sequences(const wf_par_checkpoint *checkpoint);
WF_API bool wf_par_checkpoint_is_local(const wf_par_checkpoint *checkpoint);
WF_API const char *wf_par_checkpoint_option(const wf_par_checkpoint *checkpoint,
                                            const char *key);

/**
 * wf_par_checkpoint_load - loads a checkpoint into a trainer
 *
 * Every rank reads its own parts alone. Where those are the parts that were saved, as on the
 * same mesh and strategy, they are checked against their checksums; else all is checked against
 * the digest that was saved, and where that differs, the checksums of all files identify the
 * damaged tensor.
 *
 * Collective:  over the world
 * Errors:      on every rank alike, in `error`: WF_EINVAL (another model, optimizer or, with
 *              WF_PAR_SAVE_LOCAL, layout), WF_EDATA (damaged: file, tensor and rank are named),
 *              WF_EIO, WF_ENOMEM. The trainer's values are then undefined, and another one may
 *              be loaded. In the context too: WF_ELOST, WF_EMISMATCH, WF_ETIMEOUT
 */
WF_API wf_status wf_par_checkpoint_load(wf_par_trainer *trainer,
                                        const wf_par_checkpoint *checkpoint, wf_error *error);

/** wf_par_checkpoint_load_fresh - loads the parameters and the number of steps alone into a
 * trainer that has made none: its optimizer begins anew, bias corrections and moving average as
 * well, and may be another one; another part of the model may be frozen. Checks all files
 * against their checksums. Otherwise as wf_par_checkpoint_load, but for a checkpoint of
 * WF_PAR_SAVE_LOCAL, which it refuses. */
WF_API wf_status wf_par_checkpoint_load_fresh(wf_par_trainer *trainer,
                                              const wf_par_checkpoint *checkpoint,
                                              wf_error *error);

/** wf_par_checkpoint_parameters - returns the number of its parameters;
 * wf_par_checkpoint_fits - checks that they are those of a model, by name and shape, before
 * anything is materialised: else WF_EINVAL. */
WF_API int64_t wf_par_checkpoint_parameters(const wf_par_checkpoint *checkpoint);
WF_API wf_status wf_par_checkpoint_fits(wf_nn_module *model,
                                        const wf_par_checkpoint *checkpoint, wf_error *error);

/**
 * wf_par_checkpoint_load_model - loads the parameters alone of a checkpoint, for a model that
 * is not trained
 *
 * Every rank reads its own parts; first the ranks share the check of the files against their
 * checksums.
 *
 * @param model  planned and materialised
 * Layout:      any, but that of the checkpoint with WF_PAR_SAVE_LOCAL, which no model alone has
 * Collective:  over the world
 * Errors:      as wf_par_checkpoint_load
 */
WF_API wf_status wf_par_checkpoint_load_model(wf_par *par, wf_nn_module *model,
                                              const wf_par_checkpoint *checkpoint,
                                              wf_error *error);

/** wf_par_checkpoint_load_average - loads the moving average (.ema of the optimizer) instead of
 * the weights; of frozen parameters the weights. Otherwise as wf_par_checkpoint_load_model.
 * Errors: its own; WF_EINVAL: there is no average */
WF_API wf_status wf_par_checkpoint_load_average(wf_par *par, wf_nn_module *model,
                                                const wf_par_checkpoint *checkpoint,
                                                wf_error *error);

/**
 * wf_par_checkpoint_verify - checks every byte of a checkpoint against its checksums
 *
 * Collective:  no
 * Errors:      WF_EDATA (file and tensor are named), WF_EIO, WF_ENOMEM
 */
WF_API wf_status wf_par_checkpoint_verify(const wf_par_checkpoint *checkpoint, wf_error *error);

WF_END_DECLS

#endif

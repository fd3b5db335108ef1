/*
 * parallel/checkpoint/contents.h - inspects a checkpoint: its summary, its tensors by number,
 * and their elements, whatever the layout in which they were saved.
 */
#ifndef WF_PARALLEL_CHECKPOINT_CONTENTS_H
#define WF_PARALLEL_CHECKPOINT_CONTENTS_H

#include "parallel/checkpoint/checkpoint.h"

WF_BEGIN_DECLS

/** wf_par_checkpoint_summary - the summary of a checkpoint in its index. */
typedef struct wf_par_checkpoint_summary {
    const char *kind; /* "sharded", "full" or "local" */
    const char *strategy;
    int64_t step, sequences; /* those that are done */
    int64_t files, bytes;    /* data files, and their size together */
    uint64_t digest;
    int64_t tensors, options;
    int n_axes; /* axes of the mesh that saved it, outermost first */
    const char *axis_name[WF_MAX_AXES];
    int axis_size[WF_MAX_AXES];
} wf_par_checkpoint_summary;

/** wf_par_checkpoint_describe - returns the summary of a checkpoint, whose texts it shares. */
WF_API wf_par_checkpoint_summary
wf_par_checkpoint_describe(const wf_par_checkpoint *checkpoint);

/** wf_par_checkpoint_option_at - returns text i of the summary.options that were stored with a
 * checkpoint, in their order there. Owner: the checkpoint. */
WF_API void wf_par_checkpoint_option_at(const wf_par_checkpoint *checkpoint, int64_t i,
                                        const char **key, const char **value);

/** The state saved of a parameter: bit (1 << state) of wf_par_saved_tensor.states. */
typedef enum wf_par_saved_state {
    WF_PAR_SAVED_VALUE,
    WF_PAR_SAVED_M,
    WF_PAR_SAVED_V,
    WF_PAR_SAVED_S,  /* a third state of an optimizer */
    WF_PAR_SAVED_EMA /* the moving average of the weights */
} wf_par_saved_state;
enum { WF_PAR_SAVED_STATES = 5 };

/** wf_par_saved_tensor - one parameter of a checkpoint: float32, with or without what an
 * optimizer keeps of it; or a state alone that has a shape of its own. */
typedef struct wf_par_saved_tensor {
    const char *path; /* "block.0.attn.qkv.weight" */
    unsigned states;  /* a bit per wf_par_saved_state that is there */
    int ndim;
    int64_t size[WF_MAX_DIMS];          /* global */
    int n_axes[WF_MAX_DIMS];            /* axes of the mesh that cut a dim */
    int axis[WF_MAX_DIMS][WF_MAX_AXES]; /* their numbers, outermost first */
    int pp; /* the coordinate on axis "pp" of the ranks that wrote it; -1: any of them */
} wf_par_saved_tensor;

/** wf_par_checkpoint_tensor - returns tensor i of summary.tensors, in ascending order of their
 * paths. Owner of its path: the checkpoint. */
WF_API wf_par_saved_tensor wf_par_checkpoint_tensor(const wf_par_checkpoint *checkpoint,
                                                    int64_t i);

/** wf_par_checkpoint_find - returns the number of the parameter with this path;
 * wf_par_checkpoint_find_states - of what has the first of these states (bits) of that path,
 * which is another tensor where a state has a shape of its own; -1: there is none. */
WF_API int64_t wf_par_checkpoint_find(const wf_par_checkpoint *checkpoint, const char *path);
WF_API int64_t wf_par_checkpoint_find_states(const wf_par_checkpoint *checkpoint,
                                             const char *path, unsigned states);

typedef struct wf_par_checkpoint_reader wf_par_checkpoint_reader;

/**
 * wf_par_checkpoint_reader_open - opens a reader of the elements of tensors; it keeps files
 * open between reads
 *
 * @param checkpoint  stays open as long
 * Owner:   caller; wf_par_checkpoint_reader_close (NULL is allowed)
 * Errors:  WF_ENOMEM; NULL then
 */
WF_API wf_par_checkpoint_reader *wf_par_checkpoint_reader_open(
    const wf_par_checkpoint *checkpoint, wf_error *error);
WF_API void wf_par_checkpoint_reader_close(wf_par_checkpoint_reader *reader);

/**
 * wf_par_checkpoint_reader_read - reads all elements of tensor i, put together from the files'
 * parts
 *
 * Checksums are not checked: wf_par_checkpoint_verify does that.
 *
 * @param state  one that the tensor has
 * @param to     [product of its sizes], last dim fastest
 * Collective:  no
 * Errors:      WF_EINVAL (no such tensor or state), WF_EDATA, WF_EIO, WF_ENOMEM
 */
WF_API wf_status wf_par_checkpoint_reader_read(wf_par_checkpoint_reader *reader, int64_t i,
                                               wf_par_saved_state state, float *to,
                                               wf_error *error);

/** wf_par_saved_tensor_name - writes the name of one state of a parameter in the files, PATH,
 * PATH.m, PATH.v, PATH.s or PATH.ema; returns text. */
WF_API char *wf_par_saved_tensor_name(const wf_par_saved_tensor *tensor,
                                      wf_par_saved_state state, char *text, size_t size);

WF_END_DECLS

#endif

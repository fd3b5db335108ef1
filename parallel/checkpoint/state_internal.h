/*
 * parallel/checkpoint/state_internal.h - what a checkpoint holds of a trainer: its tensors in
 * the order of the index, and which part of each a rank keeps. Not installed.
 */
#ifndef WF_PARALLEL_CHECKPOINT_STATE_INTERNAL_H
#define WF_PARALLEL_CHECKPOINT_STATE_INTERNAL_H

#include "parallel/checkpoint/index_internal.h"
#include "parallel/parallel_internal.h"
#include "parallel/train/train.h"

typedef struct wf_state {
    wf_par_train_state trained;
    /* strategy, mesh and tensors; the entry of a parameter has its optimizer state's layout */
    wf_index index;
    /* [index.count], by the kinds of an entry: master or what is frozen, m, v; NULL: none;
       fake: another stage's */
    wf_tensor *(*tensor)[WF_INDEX_KINDS];
    const wf_nn_parameter **parameter; /* [index.count] whose they are */
    int coordinate[WF_MAX_AXES];       /* this rank's */
} wf_state;

/* Owner: caller, wf_state_close (also of a failed one). Errors: WF_ENOMEM */
wf_status wf_state_open(wf_state *state, const wf_par_trainer *trainer, wf_error *error);
void wf_state_close(wf_state *state);

/* Those of a model's parameters that its checkpoints have come first, and how many they are: of
   one with adapters what is trained, since its base lies where it came from. */
int64_t wf_state_kept(int64_t count, wf_nn_parameter **parameter);

/* Free the options of its index. */
void wf_state_drop_options(wf_state *state);

/* The part of tensor i that this rank has in the layout of the index. */
wf_part wf_state_part(const wf_state *state, int64_t i);

/* Returns true where this rank, among those with the same part, writes it. */
bool wf_state_writes(const wf_state *state, int64_t i);

/* Returns true where this rank counts a tensor of a local checkpoint, or of the run
   (wf_par_counts_here). */
bool wf_state_counts_here(const wf_state *state, int64_t i, int kind);

#endif

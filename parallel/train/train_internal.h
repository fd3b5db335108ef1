/*
 * parallel/train/train_internal.h - a trainer as the step, its graphs and checkpoints see it.
 */
#ifndef WF_PARALLEL_TRAIN_TRAIN_INTERNAL_H
#define WF_PARALLEL_TRAIN_TRAIN_INTERNAL_H

#include "parallel/shard/unshard_internal.h"
#include "parallel/train/train.h"

typedef struct wf_par_batch {
    wf_tensor *tokens, *targets; /* of a micro-step, this rank's part */
} wf_par_batch;

struct wf_par_trainer {
    wf_par *par;
    wf_nn_module *model;
    wf_par_train_options options;
    int64_t count, per_rank, micros;
    wf_nn_parameter **parameter;
    int64_t held; /* parameters whose tensors are retained, so that they stay real */
    wf_nn_optimizer *optimizer;
    wf_par_gradients *gradients;
    wf_par_units *units;
    wf_tensor **grad;  /* of the step, retained */
    wf_tensor *total;  /* the sum of its losses over micro-steps and ranks, retained */
    wf_tensor **loss;  /* of each micro-step, retained; partial over the data-parallel axes */
    wf_tensor **moved; /* the same, on its way */
    const wf_layout **to;
    const wf_par_batch *given; /* [micros] what micro-steps take; NULL: each reads its own */
    struct wf_par_graph_step *graph_step; /* NULL: every step is run op by op */
};

/* The global sequences of micro-step k, of all ranks. */
wf_sequences wf_par_sequences(const wf_par_trainer *t, int64_t k);

/* Room for the sequences of a micro-step, of the scope; NULLs on error. */
wf_par_batch wf_par_batch_new(wf_par_trainer *t);

/* Bring this rank's sequences of micro-step k there. */
wf_status wf_par_batch_read(wf_par_trainer *t, const wf_par_batch *b, const wf_par_data *data,
                            int64_t step, int64_t k);

/* All micro-steps of a step: from sequences to `total` and `grad`. */
wf_status wf_par_step_gradients(wf_par_trainer *t, int64_t step, const wf_par_data *data);

/* What of a trainer outlives it: masters, moments and counts. */
typedef struct wf_par_trained {
    wf_par *par;
    int64_t count;
    wf_nn_parameter *const *parameter; /* [count] */
    wf_nn_optimizer *optimizer;
    int64_t global_batch;
} wf_par_trained;

/* Alive as long as the trainer. */
wf_par_trained wf_par_trainer_trained(const wf_par_trainer *trainer);

/* What the optimizer updates of parameter i, f32, in the layout at rest or one that is split
   further: the parameter itself. */
static inline wf_tensor *wf_par_master(const wf_par_trained *t, int64_t i)
{
    return t->parameter[i]->tensor;
}

#endif

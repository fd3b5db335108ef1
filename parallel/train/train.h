/* parallel/train/train.h - the training step: micro-steps, gradients, clipping, update. */
#ifndef WF_PARALLEL_TRAIN_TRAIN_H
#define WF_PARALLEL_TRAIN_TRAIN_H

#include "nn/optim/optimizer.h"
#include "parallel/train/measure.h"

WF_BEGIN_DECLS

/** wf_par_data - where sequences come from. */
typedef struct wf_par_data {
    /* Fill tokens and targets [count, length] with sequences first, first + 1, .. of a step: a
       function of (step, sequence) alone, called with each rank's own sequences only. */
    wf_status (*read)(void *self, int64_t step, int64_t first, int64_t count, int64_t length,
                      int32_t *tokens, int32_t *targets, wf_error *error);
    void *self;
} wf_par_data;

typedef struct wf_par_train_options {
    int64_t global_batch; /* sequences per step; a multiple of dp x micro_batch */
    int64_t
        micro_batch; /* sequences per data-parallel rank and micro-step; 0: one micro-step */
    int64_t seq_len;
    float clip; /* of the gradients' global norm; 0: never */
    wf_nn_optimizer_options optimizer;
    wf_nn_schedule schedule;
    /* per-token losses [batch, tokens]; wf_par_gpt_loss for a wf_nn_gpt. Each counts `weight` =
       1 / (tokens of the global batch) in the mean that is differentiated, which a loss that
       makes gradients ahead of time needs to know */
    wf_tensor *(*loss)(wf_nn_module *model, wf_tensor *tokens, wf_tensor *targets,
                       float weight);
} wf_par_train_options;

/* In a plan, which has no values, loss and norm are 0, and no data is read. */
typedef struct wf_par_step {
    float loss; /* mean over the whole global batch, before the update */
    float lr;
    double grad_norm; /* before clipping */
} wf_par_step;

typedef struct wf_par_trainer wf_par_trainer;

/** wf_par_gpt_loss - the loss function of wf_nn_gpt for wf_par_train_options. */
WF_API wf_tensor *wf_par_gpt_loss(wf_nn_module *model, wf_tensor *tokens, wf_tensor *targets,
                                  float weight);

/**
 * wf_par_trainer_open - what trains a materialised model
 *
 * Owner:   caller; wf_par_trainer_close (NULL is allowed)
 * Errors:  WF_EINVAL (a global batch that the layout cannot form), WF_ENOMEM; NULL then
 */
WF_API wf_par_trainer *wf_par_trainer_open(wf_par *par, wf_nn_module *model,
                                           const wf_par_train_options *options);
WF_API void wf_par_trainer_close(wf_par_trainer *trainer);

/**
 * wf_par_train_step - one step over a global batch
 *
 * @param step    1, 2, ..; decides learning rate, data and dropout
 * Collective:  over the mesh
 * Errors:      recorded in the context; WF_ENONFINITE where the loss or norm is not finite (the
 *              model is then as it was)
 */
WF_API wf_status wf_par_train_step(wf_par_trainer *trainer, int64_t step,
                                   const wf_par_data *data, wf_par_step *result);

/** wf_par_evaluate - mean loss over `batches` global batches of other data, without dropout. */
WF_API wf_status wf_par_evaluate(wf_par_trainer *trainer, int64_t batches,
                                 const wf_par_data *data, float *loss);

/** wf_par_trainer_digest - see wf_par_digest. Collective: over the world. */
WF_API wf_status wf_par_trainer_digest(wf_par_trainer *trainer, uint64_t *digest);

/** wf_par_trainer_digests - see wf_par_digests. Collective: over the world. Owner: caller. */
WF_API wf_status wf_par_trainer_digests(wf_par_trainer *trainer, wf_par_tensor_digest **list,
                                        int64_t *n);

WF_END_DECLS

#endif

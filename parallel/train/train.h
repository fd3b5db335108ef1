/*
 * parallel/train/train.h - training: a step in one call, or in parts for a custom loop.
 *
 *     for (int64_t step = 1; step <= steps; step++) {
 *         wf_par_step_begin(trainer, step);
 *         for (int64_t k = 0; k < wf_par_micro_steps(trainer); k++) {
 *             const wf_par_batch *batch = wf_par_micro_step_begin(trainer, &data);
 *             wf_par_backward(trainer, my_loss(model, batch));
 *         }
 *         wf_par_reduce(trainer, &loss);
 *         wf_par_clip(trainer, 1.0f, &norm);
 *         wf_par_optimizer_step(trainer, lr);
 *     }
 *
 * A loop of the parts has the bits of wf_par_train_step. Each records its errors in the context
 * and returns WF_OK, or the code of the first one; a part that is called out of order is
 * WF_EINVAL, and names the expected one; so is a trainer that is NULL, since it could not be
 * opened. Every rank calls them alike.
 */
#ifndef WF_PARALLEL_TRAIN_TRAIN_H
#define WF_PARALLEL_TRAIN_TRAIN_H

#include "nn/optim/optimizer.h"
#include "parallel/train/batch.h"
#include "parallel/train/measure.h"

WF_BEGIN_DECLS

/**
 * wf_par_loss_function - computes the training loss of one micro-step. One of:
 *
 *     [batch, ..]   a loss per sequence, or per element of one: their mean over the global
 *                   batch is differentiated, so that no layout and no micro-batch changes a bit
 *     without dims  a mean of its own over the sequences of the micro-step (of all ranks:
 *                   whole, or partial over them). Several micro-steps count alike, and are
 *                   reported as inexact
 *
 * Predictions are refused: what has more dims than any field of the batch, and several numbers
 * per sequence as a product, a bias, a norm, a table or a softmax has made them, which have no
 * least mean to train towards.
 *
 * Returns:  NULL after an error, which is in the context
 */
typedef wf_tensor *wf_par_loss_function(wf_nn_module *model, const wf_par_batch *batch);

/** wf_par_redundancy - copies of state that only one data-parallel rank would have. */
typedef enum wf_par_redundancy {
    WF_PAR_REDUNDANCY_NONE,
    /* the next rank on the axis that shards has it too, and updates it by the same gradient: 4
       bytes a parameter of the shard more are moved in a step, 16 more held */
    WF_PAR_REDUNDANCY_BUDDY
} wf_par_redundancy;

/** wf_par_skip - which steps change nothing: the gradients are dropped, and the step counts all
 * the same, for rates, data, bias correction and checkpoints. All zeros: none. */
typedef struct wf_par_skip {
    bool nonfinite;   /* those whose loss or norm is not finite, which else end the run */
    float loss_above; /* those whose loss is above it; 0: whatever it is */
} wf_par_skip;

/**
 * wf_par_skip_read - reads "nonfinite", "loss>X" or both with a comma in between
 *
 * Errors:  WF_EINVAL with the part that is neither
 */
WF_API wf_status wf_par_skip_read(const char *text, wf_par_skip *skip, wf_error *error);

/** wf_par_rampup - global batches that grow with the sequences that were trained on, as
 * Megatron's --rampup-batch-size: from `start` by `increment` up to the whole one, which comes
 * when `sequences` are done; each size for as many sequences. start 0: all are whole. */
typedef struct wf_par_rampup {
    int64_t start, increment, sequences;
} wf_par_rampup;

/** wf_par_rampup_read - reads "START,INCREMENT,SEQUENCES". Errors: WF_EINVAL */
WF_API wf_status wf_par_rampup_read(const char *text, wf_par_rampup *rampup, wf_error *error);

typedef struct wf_par_pipeline wf_par_pipeline;
typedef struct wf_par_profile wf_par_profile;

typedef struct wf_par_train_options {
    /* sequences per step: a multiple of dp x micro_batch; any number with micro-batches of 1
       whose gradients are reduced in each micro-step, of groups' strategies in each group */
    int64_t global_batch;
    /* sequences per data-parallel rank and micro-step; 0: one micro-step, with cp 1 sequence */
    int64_t micro_batch;
    wf_par_field field[WF_PAR_FIELDS]; /* the tensors of a batch */
    /* fields whose first dim is tokens, by comma: ranks of cp have parts of these, others are
       whole there; NULL: "tokens,targets" */
    const char *cut;
    float clip;       /* bounds the gradients' global norm; 0: never */
    wf_par_skip skip; /* steps without an update */
    /* smaller batches at first, of as many sequences per micro-step; sequences are read in the
       order that they have without, and none is left out; no pipeline, and no data that count
       elements (wf_par_data.counted). A captured step is captured anew for each size */
    wf_par_rampup rampup;
    wf_nn_optimizer_options optimizer;
    wf_nn_schedule schedule;
    wf_par_loss_function
        *loss; /* wf_par_gpt_loss for a wf_nn_gpt; NULL for a custom loop alone */
    /* the stages of a model over ranks (parallel/stages/pipeline.h): its schedule runs the
       micro-steps, and its head_loss replaces `loss`; NULL: every rank has all of the model */
    const wf_par_pipeline *pipeline;
    wf_par_redundancy redundancy;
    /* evaluations compute with the moving average of the weights (wf_par_trainer_average) */
    bool evaluate_average;
    int64_t check_replicas; /* steps between wf_par_trainer_check_replicas; 0: never */
    /* beside a pipeline: gets the memory of its actions (parallel/stages/profile.h); NULL:
       none */
    wf_par_profile *profile;
} wf_par_train_options;

/* In a plan, which has no values, loss and norm are 0, and no data is read. */
typedef struct wf_par_step {
    /* mean over the whole global batch, before the update; NaN where no element of the batch
       counts (wf_par_data.counted) */
    float loss;
    float lr;
    double grad_norm; /* before clipping */
    bool skipped;     /* it has changed no parameter (wf_par_train_options.skip) */
} wf_par_step;

/** wf_par_step_batch - returns the global batch of a step, from 1 on; *before: the sequences of
 * the steps before it. wf_par_rampup_sizes - returns how many smaller sizes there are. */
WF_API int64_t wf_par_step_batch(const wf_par_train_options *options, int64_t step,
                                 int64_t *before);
WF_API int64_t wf_par_rampup_sizes(const wf_par_train_options *options);

typedef struct wf_par_trainer wf_par_trainer;

/** wf_par_trainer_sequences - returns the number of sequences in the first `steps` steps. */
WF_API int64_t wf_par_trainer_sequences(const wf_par_trainer *trainer, int64_t steps);

/**
 * wf_par_trainer_open - opens the trainer of a materialised model
 *
 * All ranks compare a hash of the arguments: options of the run and of training, pipeline,
 * model and sharding plan.
 *
 * Collective:  over the world
 * Owner:       caller; wf_par_trainer_close (NULL is allowed), which after an error fails the
 *              world, since what it frees may wait for other ranks
 * Errors:      WF_EINVAL (a global batch that the layout cannot form, wrong fields, clip or a
 *              schedule that wf_nn_schedule_check refuses, parameters that are fake, or real on
 *              a pipeline rank that has no use for them), WF_ENOMEM, WF_EMISMATCH on all ranks,
 *              with name, value, rank and host of each difference; NULL then
 */
WF_API wf_par_trainer *wf_par_trainer_open(wf_par *par, wf_nn_module *model,
                                           const wf_par_train_options *options);
WF_API void wf_par_trainer_close(wf_par_trainer *trainer);

/**
 * wf_par_train_step - makes one step over a global batch: the parts below, with options.loss,
 * clip and schedule
 *
 * @param step    1, 2, ..; decides learning rate, data and dropout
 * @param result  NULL: not wanted
 * Collective:  over the mesh
 * Errors:      WF_EMISMATCH where ranks do not do the same (wf_par_clip); WF_ENONFINITE where
 *              the loss or norm is not finite (wf_par_check_finite; the model is then as it
 *              was), and those of the parts
 */
WF_API wf_status wf_par_train_step(wf_par_trainer *trainer, int64_t step,
                                   const wf_par_data *data, wf_par_step *result);

/**
 * wf_par_evaluate - computes the mean over `batches` global batches of other data, without
 * dropout
 *
 * @param metric  computes the numbers of the mean, like a loss; NULL: options.loss, or that of
 *                the pipeline, which is the only one where there is a pipeline
 * @param mean    over the batches, each of which counts alike, or by the number of its elements
 *                that count where the data have it
 * Collective:    over the mesh
 * Errors:        WF_EINVAL in the middle of a step's micro-steps, or without batches; WF_EDATA
 *                where no element of the batches counts
 */
WF_API wf_status wf_par_evaluate(wf_par_trainer *trainer, int64_t batches,
                                 const wf_par_data *data, wf_par_loss_function *metric,
                                 float *mean);

/**
 * wf_par_evaluate_until - computes wf_par_evaluate, and can be stopped early
 *
 * @param stop  called before each batch, on every rank: true, on all of them alike, ends the
 *              evaluation, whose mean is NAN then, since that of fewer batches would be another
 *              number. Ranks agree by wf_mesh_gather, or by shared state. NULL: never
 * @param arg   passed to stop
 * Collective:  over the mesh
 * Errors:      those of wf_par_evaluate
 */
WF_API wf_status wf_par_evaluate_until(wf_par_trainer *trainer, int64_t batches,
                                       const wf_par_data *data, wf_par_loss_function *metric,
                                       bool (*stop)(void *arg), void *arg, float *mean);

/** wf_par_micro_steps - returns the micro-steps of a step: global_batch / (dp x micro_batch),
 * rounded up. */
WF_API int64_t wf_par_micro_steps(const wf_par_trainer *trainer);

/**
 * wf_par_zero_grad - clears the state of a step: gradients, losses, a micro-step without its
 * backward pass. The next part is wf_par_step_begin
 *
 * Collective:  over the mesh
 */
WF_API wf_status wf_par_zero_grad(wf_par_trainer *trainer);

/**
 * wf_par_step_begin - begins a step, with wf_par_zero_grad
 *
 * @param step  1, 2, ..; decides data and dropout
 * Collective:  over the mesh
 * Errors:      WF_EINVAL: a step below 1; the model is as it was
 */
WF_API wf_status wf_par_step_begin(wf_par_trainer *trainer, int64_t step);

/**
 * wf_par_micro_step_begin - begins the next micro-step: its batch is read, and a tape records
 * from here to wf_par_backward. With a pipeline wf_par_forward_backward replaces both. Tensors
 * made in between are released after it
 *
 * @param data  NULL: the batch has no tensors, the caller makes its own (for the sequences of
 *              wf_context_sequences)
 * Collective:  no
 * Owner:       the trainer, until wf_par_backward
 * Errors:      those of data->read; NULL then
 */
WF_API const wf_par_batch *wf_par_micro_step_begin(wf_par_trainer *trainer,
                                                   const wf_par_data *data);

/**
 * wf_par_backward - ends the micro-step: adds its loss up, and the gradients with respect to
 * all parameters, summed over ranks unit by unit where the strategy does so
 *
 * @param loss  of this micro-step, as of a wf_par_loss_function
 * Collective:  over the mesh
 * Errors:      WF_EINVAL, WF_ESHAPE (a tensor that is no loss, as of a wf_par_loss_function)
 */
WF_API wf_status wf_par_backward(wf_par_trainer *trainer, wf_tensor *loss);

/**
 * wf_par_forward_backward - runs all micro-steps of a step, with options.loss; with
 * wf_par_options.cuda_graph from the second step on as one graph, of several ranks in parts
 *
 * Collective:  over the mesh
 */
WF_API wf_status wf_par_forward_backward(wf_par_trainer *trainer, const wf_par_data *data);

/**
 * wf_par_reduce - sums gradients and loss over ranks and micro-steps
 *
 * @param mean_loss  over the global batch, NaN where nothing of it counts; NULL: not wanted
 * Collective:       over the mesh
 * Errors:           WF_EINVAL while micro-steps are left
 */
WF_API wf_status wf_par_reduce(wf_par_trainer *trainer, float *mean_loss);

/**
 * wf_par_gradient - returns the gradient of a parameter, between wf_par_reduce and
 * wf_par_optimizer_step
 *
 * Its shape is the parameter's, in the layout in which the strategy keeps gradients; f32, or
 * wf_par_options.reduce_dtype. It may be changed in place: wf_par_optimizer_step reads it then,
 * times the factor of wf_par_clip.
 *
 * Owner:   the trainer, until wf_par_optimizer_step or wf_par_zero_grad
 * Returns: NULL where it has none: it is frozen, or no module has used it
 * Errors:  WF_EINVAL (there are no gradients now, a parameter of another model); NULL then
 */
WF_API wf_tensor *wf_par_gradient(wf_par_trainer *trainer, const wf_nn_parameter *parameter);

/**
 * wf_par_clip - computes the global norm of all gradients, and the factor of the update:
 * max_norm / (norm + 1e-6) where that is below 1, as torch.nn.utils.clip_grad_norm_
 *
 * The tensors stay as they are; the factor is applied where the update reads them, once.
 *
 * The message of the norm also compares the actions of ranks: the step, the step and rate of
 * the update before, the rate of this one (of wf_par_train_step), max_norm, and the data read
 * for the step and by evaluations before it, over the ranks that share sequences. A loop
 * without this call compares in wf_par_optimizer_step.
 *
 * @param max_norm  0: the norm alone, no clipping; WF_EINVAL where it is negative or not finite
 * @param norm      before clipping; NULL: not wanted
 * Collective:      over the world
 * Errors:          WF_EMISMATCH in the context of all ranks: the differences, with both values,
 *                  ranks and hosts
 */
WF_API wf_status wf_par_clip(wf_par_trainer *trainer, float max_norm, double *norm);

/**
 * wf_par_check_finite - checks that the loss and norm are finite; else WF_ENONFINITE names the
 * origin: a parameter, or the op of a module on a rank. The step is over then, and the model as
 * it was
 *
 * To find the op, the micro-steps are repeated with options.loss, and every result is checked.
 *
 * @param data  that of the step; NULL: nothing is repeated, parameters and gradients are
 *              checked
 * Collective:  over the world where something is not finite
 */
WF_API wf_status wf_par_check_finite(wf_par_trainer *trainer, float loss, double norm,
                                     const wf_par_data *data);

/**
 * wf_par_optimizer_step - updates the parameters; the gradients are gone afterwards
 *
 * Collective:  over the mesh
 * Errors:      WF_EINVAL before wf_par_reduce, and for a rate that is negative or not finite;
 *              WF_EMISMATCH as of wf_par_clip, and of wf_par_trainer_check_replicas in the
 *              steps of options.check_replicas
 */
WF_API wf_status wf_par_optimizer_step(wf_par_trainer *trainer, float lr);

/**
 * wf_par_skip_step - ends a step without its update, instead of wf_par_optimizer_step
 *
 * Parameters and what is kept of them stay as they are; the first rank reports the step. Every
 * rank decides alike, by loss and norm, which are the same on all.
 *
 * @param why  for the report: "loss 9.5 is above 8"
 * Collective:  over the mesh
 * Errors:      those of wf_par_optimizer_step
 */
WF_API wf_status wf_par_skip_step(wf_par_trainer *trainer, const char *why);

/**
 * wf_par_trainer_average - makes the model compute with the moving average of its weights (.ema
 * of the optimizer) from now on, or with the weights; before the first update they are equal
 *
 * Weights and average exchange their memory. Where the optimizer's state is split more than the
 * weights (no_shard, zero1) the average is gathered first, which takes the memory of the
 * weights once more. Between steps alone; checkpoints, digests and steps need the weights back.
 *
 * Collective:  over the mesh. Errors: WF_EINVAL (there is no average, or a step has begun),
 *              those of moves; in the context
 */
WF_API wf_status wf_par_trainer_average(wf_par_trainer *trainer, bool on);

/** wf_par_trainer_fresh - returns the step after which the optimizer's state was new: 0, or
 * that of the checkpoint whose parameters alone were loaded (wf_par_checkpoint_load_fresh). */
WF_API int64_t wf_par_trainer_fresh(const wf_par_trainer *trainer);

/** wf_par_trainer_skipped - returns the steps that were skipped, those before a resume
 * included. */
WF_API int64_t wf_par_trainer_skipped(const wf_par_trainer *trainer);

/** wf_par_trainer_steps - returns the steps whose update this rank has made, those before a
 * resume included. */
WF_API int64_t wf_par_trainer_steps(const wf_par_trainer *trainer);

/**
 * wf_par_trainer_verify - checks that the state of ranks is what their buddies made of the same
 * gradients, bit by bit
 *
 * Each rank reads its state and copies once, and 24 bytes a parameter tensor move.
 *
 * Collective:  over the world
 * Errors:      WF_EDATA in the context of all ranks: two of them differ, which are named with
 *              the tensor; WF_EINVAL (there are no buddies), WF_ENOMEM
 */
WF_API wf_status wf_par_trainer_verify(wf_par_trainer *trainer);

/**
 * wf_par_trainer_check_replicas - compares tensors that are whole on several ranks, or split
 * alike: parameters and moments, bit by bit; a debug mode, which runs every
 * wf_par_train_options.check_replicas steps
 *
 * Each rank reads its state once, and 24 bytes a parameter tensor move.
 *
 * Collective:  over the world
 * Errors:      WF_EMISMATCH in the context of all ranks: the first tensor that differs, with
 *              two ranks, hosts and digests; WF_ENOMEM. WF_EINVAL for NULL
 */
WF_API wf_status wf_par_trainer_check_replicas(wf_par_trainer *trainer);

/** wf_par_trainer_digest - computes wf_par_digest of a trainer. Collective: over the world.
 * WF_EINVAL for NULL, a trainer that was not opened. */
WF_API wf_status wf_par_trainer_digest(wf_par_trainer *trainer, uint64_t *digest);

/** wf_par_trainer_digests - computes wf_par_digests of a trainer. Collective: over the world.
 * Owner: caller. WF_EINVAL for NULL. */
WF_API wf_status wf_par_trainer_digests(wf_par_trainer *trainer, wf_par_tensor_digest **list,
                                        int64_t *n);

/** wf_par_train_state - the state of a trainer that outlives it, saved in checkpoints. */
typedef struct wf_par_train_state {
    wf_par *par;
    int64_t count;
    wf_nn_parameter *const *parameter; /* [count], ties once; their tensors are f32, sharded */
    wf_nn_optimizer *optimizer;
    int64_t global_batch;
} wf_par_train_state;

/** wf_par_trainer_state - returns parameters and optimizer of a trainer. Owner: the trainer. */
WF_API wf_par_train_state wf_par_trainer_state(const wf_par_trainer *trainer);

WF_END_DECLS

#endif

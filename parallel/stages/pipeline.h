/*
 * parallel/stages/pipeline.h - pipeline parallelism: a model's chain of steps (nn/chain.h) cut
 * into stages, which the ranks of axis pp hold, and a schedule with the actions of each, in
 * order.
 *
 *     wf_par_options options = {.pp = 4, .dp = 2, ..};
 *     wf_par_pipeline_options how = {.model = make, .arg = &config, .schedule = "zb-v",
 *                                    .input = "tokens", .head_loss = wf_par_gpt_head_loss};
 *
 *     // once, before ranks start
 *     wf_par_pipeline_new(&options, &train, &how, &pipeline, &error);
 *
 *     // on each rank
 *     model = make(par, &config);
 *     wf_par_pipeline_materialize(pipeline, par, model);
 *     train.pipeline = pipeline;
 *     trainer = wf_par_trainer_open(par, model, &train);
 *     wf_par_train_step(trainer, step, &data, &result);
 *
 * Neither the schedule nor the cut nor the number of ranks changes a bit of the result: stages
 * run the same ops on the same operands, a border moves bytes as they are stored, and gradients
 * of micro-batches are added by number (parallel/shard/gradient_sum_internal.h).
 */
#ifndef WF_PARALLEL_STAGES_PIPELINE_H
#define WF_PARALLEL_STAGES_PIPELINE_H

#include "parallel/pipeline/lower.h"
#include "nn/documents.h"
#include "parallel/run.h"
#include "parallel/stages/borders.h"

WF_BEGIN_DECLS

/**
 * wf_par_model_function - makes a model with a chain and plans it (wf_par_plan, wf_par_tensor,
 * wf_par_shard), on a rank of a run or of a plan; nothing is materialised
 *
 * Returns:  NULL after an error, which is in the context. Owner: caller, wf_nn_free
 */
typedef wf_nn_module *wf_par_model_function(wf_par *par, void *arg);

/** wf_par_documents_function - returns the documents of a batch (nn/documents.h), or none:
 * wf_par_gpt_documents. */
typedef wf_nn_documents wf_par_documents_function(const wf_par_batch *batch);

typedef struct wf_par_pipeline_options {
    wf_par_model_function *model;
    void *arg;
    /* wf_pipe_generate's name, or a file of a table (parallel/pipeline/text.h); NULL:
       WF_PIPE_SCHEDULE */
    const char *schedule;
    int stages_per_rank; /* 0: the schedule's default, or the file's */
    const char *split;   /* wf_pipe_split's text; NULL: "auto" */
    /* the forward of a whole stage is recomputed for its backward, and only its input is kept
       until then; not for a table with R actions of its own */
    bool recompute;
    /* messages to one rank that are begun before the first has to end; 0: the least that costs
       no time, where that is at most WF_PIPE_MOST_IN_FLIGHT, else the least without a
       deadlock */
    int depth;
    /* stages of a rank that are gathered at a time, from before their first use to after their
       last; 0: all of them with strategies that keep gathered parameters (shard_grad_op), and
       else unit by unit, as without a pipeline */
    int resident;
    /* send tensors that tensor-parallel ranks have alike at a border (whole activations,
       without sequence parallelism) in parts, by tokens, and gather them on arrival: for axes
       pp over slower links than those of tensor axes. The bits are the same. Without axes of
       one's own WF_EINVAL where tp is 1 or sequence_parallel on */
    bool split_messages;
    /* the field of a batch that step 0 takes, or several by comma, as x[0], x[1], .. */
    const char *input;
    wf_par_head_loss_function *head_loss; /* the end of the last stage */
    /* every stage runs with these, and reads the batch for them too; NULL: a sequence is one
       document, and the first and the last stage alone read it */
    wf_par_documents_function *documents;
} wf_par_pipeline_options;

/** wf_par_pipeline - a pipeline as all ranks see it: never changed once it is made, so that
 * ranks of one process share it. */
typedef struct wf_par_pipeline wf_par_pipeline;

/**
 * wf_par_pipeline_new - cuts a model, makes the table of its schedule, and proves that it ends
 *
 * The model is made once in a plan, which takes no memory for it, to find the tensors between
 * its steps and their costs.
 *
 * @param options   of the run: the size of axis pp is the number of pipeline ranks
 * @param train     its batch sizes and fields
 * @param pipeline  the new one; NULL on errors
 * Collective:  no; every process makes it alike
 * Owner:       caller; wf_par_pipeline_free, after the trainers are closed
 * Errors:      WF_EINVAL: the last step leaves several tensors, an unknown schedule or
 *              split, more stages than steps without a split that has empty ones, a file for
 *              other sizes, a table that reduces gradients of fewer than all micro-batches,
 *              depth, resident or recompute beside a lowered one; WF_EDATA: a table that cannot
 *              be read; those of the model function; WF_ENOMEM
 */
WF_API wf_status wf_par_pipeline_new(const wf_par_options *options,
                                     const wf_par_train_options *train,
                                     const wf_par_pipeline_options *how,
                                     wf_par_pipeline **pipeline, wf_error *error);
WF_API void wf_par_pipeline_free(wf_par_pipeline *pipeline);

/** wf_par_pipeline_stages - returns the number of stages, of all ranks. */
WF_API int wf_par_pipeline_stages(const wf_par_pipeline *pipeline);

/** wf_par_pipeline_first - returns the first step of a stage; for stage number `stages` the
 * number of steps. */
WF_API int64_t wf_par_pipeline_first(const wf_par_pipeline *pipeline, int stage);

/** wf_par_pipeline_table - returns the actions of every rank, lowered and proved. Owner: the
 * pipeline. */
WF_API const wf_pipe_table *wf_par_pipeline_table(const wf_par_pipeline *pipeline);

/** wf_par_pipeline_borders - returns the tensors that pass between steps. Owner: the
 * pipeline. */
WF_API const wf_par_borders *wf_par_pipeline_borders(const wf_par_pipeline *pipeline);

/** wf_par_pipeline_text - returns the schedule and its proof in a line, for users. Owner: the
 * pipeline. */
WF_API const char *wf_par_pipeline_text(const wf_par_pipeline *pipeline);

/**
 * wf_par_pipeline_materialize - materializes the stages of this rank; all else of the model
 * stays fake
 *
 * @param model  of the model function
 * Collective:   no
 * Errors:       those of wf_par_materialize_steps; WF_EINVAL: the mesh's axis pp has another
 *               size
 */
WF_API wf_status wf_par_pipeline_materialize(const wf_par_pipeline *pipeline, wf_par *par,
                                             wf_nn_module *model);

/** wf_par_head_function - computes the head after the last step of a chain, without a loss:
 * logits of features. */
typedef wf_tensor *wf_par_head_function(wf_nn_module *model, wf_tensor *x);

/**
 * wf_par_pipeline_forward - runs a batch through all stages, without gradients: for evaluation
 * and generation
 *
 * Shapes are those of x, which need not be a micro-batch's: each message of a tensor follows
 * one with its shape. A plan, which receives nothing, has them from x, which all ranks give
 * then.
 *
 * @param x     input of step 0; read on ranks that have stage 0
 * @param head  run after the last step; NULL: none
 * Returns:     the result, on ranks that have the last stage; NULL elsewhere, and on errors
 * Collective:  over the mesh
 * Owner:       the innermost scope
 * Errors:      WF_EINVAL: a trainer without a pipeline; those of the steps
 */
WF_API wf_tensor *wf_par_pipeline_forward(wf_par_trainer *trainer, wf_tensor *x,
                                          wf_par_head_function *head);

/**
 * wf_par_pipeline_share - broadcasts `data` of a rank of the last stage to the other stages'
 * ranks
 *
 * Collective:  over axis pp
 * Errors:      those of communication, in the context; WF_EINVAL: a trainer without a pipeline
 */
WF_API wf_status wf_par_pipeline_share(wf_par_trainer *trainer, void *data, size_t bytes);

WF_END_DECLS

#endif

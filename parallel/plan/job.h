/*
 * parallel/plan/job.h - a job: a run as the library sees it. The code that trains a model of
 * any program and the code that plans it take the same job.
 *
 *     const wf_par_job job = {.mesh = {.tp = 2, .dp = 4}, .model = make, .train = training,
 *                             .data = {.read = read_tokens}, .steps = 1000};
 *
 *     wf_plan_step(&job, 0, NULL, &plan, &error);    what rank 0 takes and moves, without
 *                                                    memory for it
 *     wf_par_run(argc, argv, &program);              runs it, with flags
 *                                                    (parallel/program/program.h)
 */
#ifndef WF_PARALLEL_PLAN_JOB_H
#define WF_PARALLEL_PLAN_JOB_H

#include "parallel/simulate/cost.h"
#include "parallel/stages/pipeline.h"
#include "parallel/train/train.h"

WF_BEGIN_DECLS

/** wf_par_running - a rank of a job, as hooks see it. */
typedef struct wf_par_running {
    const struct wf_par_job *job;
    wf_par *par;
    wf_nn_module *model;
    wf_par_trainer *trainer;         /* NULL: of a job without steps */
    const wf_par_pipeline *pipeline; /* the job's, made; NULL: none */
    void *own;     /* for the hooks, NULL at first: what the rank keeps between them */
    int64_t steps; /* done so far: 0 in `begin`, then from a checkpoint, or lost ranks, on */
    /* Asks all ranks, at the same point of the step, whether the run is to stop; its argument
       is the wf_par_running. NULL: in plans, and of a run that cannot be stopped. */
    bool (*stop)(void *running);
    bool stopped; /* set by `after`, on all ranks: it ended early for such a request */
} wf_par_running;

/** wf_par_hook - a program's own work on each rank, beside the steps. Collective: as its caller
 * says. Errors: in the context of the rank */
typedef wf_status wf_par_hook(wf_par_running *rank, void *arg);

typedef struct wf_par_job {
    wf_par_options mesh;          /* axes, strategy, dtypes, device, seed */
    wf_par_model_function *model; /* makes a rank's model on the fake device, and plans it */
    void *arg;                    /* given to model and hooks */
    const char *name;             /* "llama of 12 blocks", for plans; NULL: "a model" */
    const char *facts; /* facts about the model for a plan's JSON: an object; NULL: none */
    /* modules of this type keep their input alone for backward (wf_nn_recompute); NULL: none */
    const char *recompute;
    /* the inputs that they keep rest in host memory until backward (wf_nn_offload_inputs) */
    bool offload_activations;
    bool async_save; /* for hooks that save: checkpoints are written beside the steps */
    /* batch, fields, loss, optimizer, schedule; its pipeline is the job's */
    wf_par_train_options train;
    const wf_par_pipeline_options *pipeline; /* NULL: none; model and arg in it are the job's */
    wf_par_data data, eval_data;
    int64_t steps;
    int64_t eval_interval,
        /* an evaluation after every eval_interval steps and after the last; 0: none */
        eval_batches;
    /* Each may be NULL, and runs in plans too, where tensors have no values. */
    wf_par_hook *begin; /* after the trainer is opened, before the first step */
    wf_par_hook *after; /* after the last step: samples, tasks */
    wf_par_hook *end; /* before the trainer is closed, after errors too: frees what `own` is */
    /* Sizes of a decoder-only transformer, by which a search prunes its layouts. NULL: a search
       plans each of them. */
    const wf_sim_model *sizes;
    /* Makes the model with `blocks` blocks and `vocabulary` words, to see in plans what a block
       takes; beside `sizes`. */
    wf_nn_module *(*shortened)(wf_par *par, void *arg, int64_t blocks, int64_t vocabulary);
    int64_t blocks, vocabulary; /* sizes of such a model; 0: the whole model */
} wf_par_job;

/**
 * wf_par_job_check - checks what a run is refused for before it starts ranks: its mesh
 * (wf_par_options_check), and copies of what data-parallel ranks do not have alone
 *
 * Errors:  WF_EINVAL
 */
WF_API wf_status wf_par_job_check(const wf_par_job *job, wf_error *error);

/**
 * wf_par_job_check_elastic - checks that a run of a job can continue with fewer of its dp
 * data-parallel ranks, down to min_dp of them
 *
 * Errors:  WF_EINVAL
 */
WF_API wf_status wf_par_job_check_elastic(const wf_par_job *job, int dp, int64_t min_dp,
                                          wf_error *error);

/** wf_par_job_model - makes a rank's model as the job says: on the fake device, planned, with
 * what it recomputes. A wf_par_model_function, whose arg is the job. Owner: the caller; NULL:
 * the reason is in the context */
WF_API wf_nn_module *wf_par_job_model(wf_par *par, void *job);

/** wf_par_job_tokens - returns the tokens of a sequence: those of a field of that name; 1:
 * there is none */
WF_API int64_t wf_par_job_tokens(const wf_par_job *job);

/** wf_par_job_evaluates - returns whether a job evaluates after this step */
WF_API bool wf_par_job_evaluates(const wf_par_job *job, int64_t step);

/**
 * wf_par_job_pipeline - makes the pipeline of a job
 *
 * @param pipeline  NULL where the job has none, and on errors. Owner: the caller,
 *                  wf_par_pipeline_free; the job outlives it
 * Errors:  those of wf_par_pipeline_new
 */
WF_API wf_status wf_par_job_pipeline(const wf_par_job *job, wf_par_pipeline **pipeline,
                                     wf_error *error);

/** wf_par_job_materialize - makes real what a rank has of a job's model: its stages, or all.
 * Errors: in the context */
WF_API wf_status wf_par_job_materialize(const wf_par_pipeline *pipeline, wf_par *par,
                                        wf_nn_module *model);

WF_END_DECLS

#endif

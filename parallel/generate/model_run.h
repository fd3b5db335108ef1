/*
 * parallel/generate/model_run.h - runs a model that is not trained: opened by its path, loaded
 * on the ranks of a mesh, with its tokenizer.
 *
 *     wf_gen_model_run run = WF_GEN_MODEL_RUN;
 *     wf_gen_model model;
 *
 *     run.model = "smollm2";
 *     run.tp = 2;
 *     wf_gen_model_run_check(&run, false, &error);
 *     wf_gen_model_open(run.model, NULL, &model, &error);
 *     wf_launch(&(wf_launch_options){.ranks = 2}, rank_main, &mine, &error);
 *
 * and on each rank
 *
 *     return wf_gen_model_run_rank(&run, &model, false, rank, work, arg);
 */
#ifndef WF_PARALLEL_GENERATE_MODEL_RUN_H
#define WF_PARALLEL_GENERATE_MODEL_RUN_H

#include "mesh/cluster/launch.h"
#include "nn/text/tokenizer/tokenizer.h"
#include "parallel/generate/model.h"

WF_BEGIN_DECLS

typedef struct wf_gen_model_run {
    const char *model;           /* its path, for errors (wf_gen_model_open) */
    const char *tokenizer;       /* a path; NULL: the one beside the model */
    const char *dtype, *compute; /* "fp32", "bf16"; compute NULL: as dtype */
    bool fp32_residual;          /* wf_par_options.fp32_residual */
    /* "same", "nf4"; NULL: as adapters were trained, else as dtype */
    const char *base_dtype;
    int64_t tp, dp;  /* ranks that share the model, and copies of it */
    int64_t threads; /* a rank's; 0: the machine's cores, shared out */
    /* the most ranks of tp that do not show in the bits (wf_par_options.exact_tp);
       0: 8 */
    int64_t exact_tp;
    const char *device; /* "auto", "cpu", "cuda"; checked, it is one of the last two */
} wf_gen_model_run;

#define WF_GEN_MODEL_RUN                                                                       \
    {                                                                                          \
        .tp = 1, .dp = 1, .dtype = "fp32", .device = "auto"                                    \
    }

/** wf_gen_model_run_check - checks that the options go together, and fills in compute, threads
 * and device. plan: nothing will be computed. Errors: WF_EINVAL, those of
 * wf_par_device_choose */
WF_API wf_status wf_gen_model_run_check(wf_gen_model_run *run, bool plan, wf_error *error);

/** wf_gen_work - a program's own work on a rank with its model. Errors: in the context of
 * par */
typedef void wf_gen_work(void *arg, wf_rank *rank, wf_par *par, wf_nn_gpt *model);

/**
 * wf_gen_model_run_rank - runs a rank, as wf_launch calls it: loads the model, calls `work`
 * with it, and frees it
 *
 * @param run   checked
 * @param plan  the model has no values, and takes no memory
 * Collective:  over the world
 * Errors:      those of wf_par_open, wf_gen_model_load and of work
 */
WF_API wf_status wf_gen_model_run_rank(const wf_gen_model_run *run, const wf_gen_model *source,
                                       bool plan, wf_rank *rank, wf_gen_work *work, void *arg);

/**
 * wf_gen_model_run_tokenizer - opens the tokenizer that was asked for, or the one beside the
 * model; bytes for a model of 256 ids
 *
 * @param path  set to its path, or "bytes"
 * Owner:   the caller, wf_tok_close
 * Errors:  those of wf_tok_open; WF_EINVAL (there is none; it is another model's)
 */
WF_API wf_status wf_gen_model_run_tokenizer(const wf_gen_model_run *run,
                                            const wf_gen_model *source, wf_tok **tokenizer,
                                            const char **path, wf_error *error);

WF_END_DECLS

#endif

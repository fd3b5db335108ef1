/* apps/model/model_run.h - a model that is run and not trained: which one, on what ranks, with
   which tokenizer. */
#ifndef WF_APPS_MODEL_MODEL_RUN_H
#define WF_APPS_MODEL_MODEL_RUN_H

#include "parallel/program/flags.h"
#include <weft/weft.h>
#include "parallel/generate/model.h"
#include "nn/text/tokenizer/tokenizer.h"

typedef struct app_model_run {
    const char *model, *tokenizer; /* tokenizer: NULL, or not the one beside the model */
    const char *dtype, *compute;   /* compute: NULL for as dtype */
    bool fp32_residual;            /* wf_par_options.fp32_residual */
    const char *base_dtype;        /* NULL: as adapters were trained, else as dtype */
    int64_t tp, dp, threads;       /* threads 0: the machine's cores, shared out */
    const char *device;            /* auto, cpu or cuda; checked, it is cpu or cuda */
    const char *pp;                /* NULL; what is said instead is refused */
    /* facts that all processes of the run must have alike; NULL: this process is alone */
    wf_job *job;
} app_model_run;

#define APP_MODEL_RUN_STANDARD                                                                 \
    {                                                                                          \
        .tp = 1, .dp = 1, .dtype = "fp32", .device = "auto"                                    \
    }

/* Their flags, for wf_flags_read, and their help, a line each. */
#define APP_MODEL_RUN_FLAGS(run)                                                               \
    {"tokenizer", WF_FLAG_TEXT, &(run)->tokenizer, 0, 0, NULL, NULL, NULL},                    \
        {"tp", WF_FLAG_COUNT, &(run)->tp, 1, 4096, NULL, NULL, NULL},                          \
        {"dp", WF_FLAG_COUNT, &(run)->dp, 1, 4096, NULL, NULL, NULL},                          \
        {"pp", WF_FLAG_TEXT, &(run)->pp, 0, 0, NULL, NULL, NULL},                              \
        {"threads-per-rank", WF_FLAG_COUNT, &(run)->threads, 1, 4096, NULL, NULL, NULL},       \
        {"device", WF_FLAG_TEXT, &(run)->device, 0, 0, NULL, NULL, NULL},                      \
        {"dtype", WF_FLAG_TEXT, &(run)->dtype, 0, 0, NULL, NULL, NULL},                        \
        {"compute", WF_FLAG_TEXT, &(run)->compute, 0, 0, NULL, NULL, NULL},                    \
        {"fp32-residual-connection",                                                           \
         WF_FLAG_SWITCH,                                                                       \
         &(run)->fp32_residual,                                                                \
         0,                                                                                    \
         0,                                                                                    \
         NULL,                                                                                 \
         NULL,                                                                                 \
         NULL},                                                                                \
    {                                                                                          \
        "base-dtype", WF_FLAG_TEXT, &(run)->base_dtype, 0, 0, NULL, NULL, NULL                 \
    }
#define APP_MODEL_RUN_HELP                                                                     \
    "  --tp N                   ranks that share a model (default: 1); 1, 2, 4 and 8 have "    \
    "the "                                                                                     \
    "same bits\n"                                                                              \
    "  --threads-per-rank N     (default: the machine's cores, shared out)\n"                  \
    "  --device auto|cpu|cuda   auto: on the GPU where there is one, ranks in turn on "        \
    "several\n"                                                                                \
    "                           (default: auto)\n"                                             \
    "  --dtype fp32|bf16        what parameters and results are stored as (default: fp32)\n"   \
    "  --compute fp32|bf16      what products are made of (default: as --dtype)\n"             \
    "  --fp32-residual-connection  with --dtype bf16: store the residual stream in fp32\n"     \
    "  --base-dtype same|nf4    what linears are stored as: as --dtype, or in 4 bits a\n"      \
    "                           number (default: as adapters were trained, else same)\n"

/*
 * Makes the facts that several processes compare: their flags, but for a host's threads, and
 * for files, whose content counts. Called when flags are read; app_model_run_content adds what
 * the model and other files hold. Owner: caller, of run->job, wf_job_free.
 */
void app_model_run_job(app_model_run *run, const wf_flag *flags);
void app_model_run_content(const app_model_run *run, const wf_gen_model *source,
                           const char *name, const char *file);

/* The flags go together, and threads and device are known. plan: nothing will be computed.
   WF_EINVAL, and what app_device_choose says. */
wf_status app_model_run_check(app_model_run *run, bool plan, wf_error *error);

/* A program's own work on a rank with its model. Failures go to the context of par. */
typedef void app_model_work(void *arg, wf_rank *rank, wf_par *par, wf_nn_gpt *model);

/*
 * Runs a rank, as wf_launch calls it: loads the model, or plans it without data, calls work
 * with it, and frees it. Collective over all ranks. Errors: of wf_par_open, wf_gen_model_load
 * and of work.
 */
wf_status app_model_run_rank(const app_model_run *run, const wf_gen_model *source, bool plan,
                             wf_rank *rank, app_model_work *work, void *arg);

/*
 * The tokenizer that was asked for, or the one beside the model; bytes for a model of 256 ids.
 * *path: where it is, or "bytes". Owner: caller, wf_tok_close. Errors: as of wf_tok_open;
 * WF_EINVAL (there is none, another model's).
 */
wf_status app_model_run_tokenizer(const app_model_run *run, const wf_gen_model *source,
                                  wf_tok **tokenizer, const char **path, wf_error *error);

#endif

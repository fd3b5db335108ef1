/* apps/model/model_run.h - flags of a model that is run and not trained
   (parallel/generate/model_run.h). */
#ifndef WF_APPS_MODEL_MODEL_RUN_H
#define WF_APPS_MODEL_MODEL_RUN_H

#include "parallel/program/flags.h"
#include <weft/weft.h>
#include "parallel/generate/model_run.h"

typedef struct app_model_run {
    wf_gen_model_run of;
    const char *pp; /* NULL; what is said instead is refused */
    /* facts that all processes of the run must have alike; NULL: this process is alone */
    wf_job *job;
} app_model_run;

#define APP_MODEL_RUN_STANDARD                                                                 \
    {                                                                                          \
        .of = WF_GEN_MODEL_RUN                                                                 \
    }

/* The flags, for wf_flags_read, and their help, a line each. */
#define APP_MODEL_RUN_FLAGS(run)                                                               \
    {"tokenizer", WF_FLAG_TEXT, &(run)->of.tokenizer, 0, 0, NULL, NULL, NULL},                 \
        {"tp", WF_FLAG_COUNT, &(run)->of.tp, 1, 4096, NULL, NULL, NULL},                       \
        {"dp", WF_FLAG_COUNT, &(run)->of.dp, 1, 4096, NULL, NULL, NULL},                       \
        {"exact-tp", WF_FLAG_COUNT, &(run)->of.exact_tp, 1, 8, NULL, NULL, NULL},              \
        {"pp", WF_FLAG_TEXT, &(run)->pp, 0, 0, NULL, NULL, NULL},                              \
        {"threads-per-rank", WF_FLAG_COUNT, &(run)->of.threads, 1, 4096, NULL, NULL, NULL},    \
        {"device", WF_FLAG_TEXT, &(run)->of.device, 0, 0, NULL, NULL, NULL},                   \
        {"dtype", WF_FLAG_TEXT, &(run)->of.dtype, 0, 0, NULL, NULL, NULL},                     \
        {"compute", WF_FLAG_TEXT, &(run)->of.compute, 0, 0, NULL, NULL, NULL},                 \
        {"fp32-residual-connection",                                                           \
         WF_FLAG_SWITCH,                                                                       \
         &(run)->of.fp32_residual,                                                             \
         0,                                                                                    \
         0,                                                                                    \
         NULL,                                                                                 \
         NULL,                                                                                 \
         NULL},                                                                                \
    {                                                                                          \
        "base-dtype", WF_FLAG_TEXT, &(run)->of.base_dtype, 0, 0, NULL, NULL, NULL              \
    }
#define APP_MODEL_RUN_HELP                                                                     \
    "  --tp N                   ranks that share a model (default: 1); 1, 2, 4 and 8 have "    \
    "the "                                                                                     \
    "same bits\n"                                                                              \
    "  --exact-tp 1|2|4|8       the largest of these; each has bits of its own, those of "     \
    "training\n"                                                                               \
    "                           with the same (default: 8)\n"                                  \
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

/* Checks that the flags go together, and fills in threads and device. plan: nothing will be
   computed. Errors: WF_EINVAL, those of wf_gen_model_run_check */
wf_status app_model_run_check(app_model_run *run, bool plan, wf_error *error);

#endif

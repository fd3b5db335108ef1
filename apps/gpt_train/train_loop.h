/* apps/gpt_train/train_loop.h - what every rank of gpt_train does. */
#ifndef WF_APPS_TRAIN_LOOP_H
#define WF_APPS_TRAIN_LOOP_H

#include "apps/data/data_set.h"
#include "apps/gpt_train/elastic.h"
#include "apps/gpt_train/exam.h"
#include "apps/gpt_train/parts_log.h"
#include "apps/gpt_train/sample_text.h"
#include "apps/options/options.h"
#include "apps/gpt_train/run_log.h"
#include "apps/gpt_train/saving.h"
#include "apps/gpt_train/timeline.h"
#include "parallel/simulate/paced.h"
#include <weft/weft.h>

/* Shared by all ranks; only rank 0 writes to the log and to stdout. */
typedef struct app_train_job {
    const app_options *options;
    const wf_launcher *launcher;
    app_data_set *data;
    app_run_log *log;          /* where rank 0 runs; else NULL */
    wf_error failed;           /* before the launch, in this process: its ranks tell it */
    wf_par_pipeline *pipeline; /* NULL: there is none */
    const app_resume *resume;
    wf_sim_paced paced; /* the machine of --paced */
    app_saving_result *saved;
    char numerics[17];        /* the run's numerics identity; "" without steps */
    app_timeline *timeline;   /* where rank 0 runs and one is kept; else NULL */
    app_sample_prompt prompt; /* what --sample begins with */
    app_exam exam;            /* what --eval-requests asks */
    app_replay *replay; /* what ranks held in the run whose steps are made again; or NULL */
    app_flip flip;      /* step 0: no bit is turned */
    app_elastic *elastic;
} app_train_job;

/* What --data and --val-data name; NULL without steps. Owner: caller. */
wf_status app_job_open_data(const app_options *options, app_data_set **data, wf_error *error);

/* A part of it as the trainer's steps read it; the job stays where it is. */
wf_par_data app_job_data(const app_train_job *job, app_data_part part);

/* rank_main of wf_launch; arg is the app_train_job. */
wf_status app_train_rank(wf_rank *rank, void *arg);

/* Model, mesh and, where there is any, data. With text the vocabulary is no larger than bytes need, or that
   is told on stderr. */
void app_first_lines(FILE *out, const app_options *options, wf_nn_module *model,
                     const wf_par_pipeline *pipeline, const app_data_set *data);

/* Print the stages of a pipeline, if there is one; every parameter's shape, layout and local shape; who
   holds which part; and the units. */
void app_report_layout(FILE *out, wf_par *par, wf_nn_module *model,
                       const wf_par_pipeline *pipeline);

/* What a sample is drawn from. */
typedef struct app_sampled {
    wf_par *par;
    wf_nn_gpt *model;
    wf_par_trainer
        *pipelined; /* the trainer of a model in stages; NULL: every rank has all of it */
    const app_sample_prompt *prompt; /* NULL in a plan */
} app_sampled;

/* Generate options->sample tokens after the prompt, or up to the one that ends a text; rank 0 prints. Collective.
   *stopped: SIGTERM came to a rank before the last one, and nothing is printed. */
wf_status app_sample_text(const app_options *options, const app_sampled *from, FILE *out,
                          bool *stopped);

/* In a plan: the token of options->sample that sees most of the text; a prompt has as many as bytes, at most. */
void app_sample_plan(const app_options *options, const app_sampled *from);

#endif

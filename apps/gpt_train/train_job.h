/* apps/gpt_train/train_job.h - what the ranks of a run share. */
#ifndef WF_APPS_TRAIN_JOB_H
#define WF_APPS_TRAIN_JOB_H

#include "nn/dataset/dataset.h"
#include "parallel/recovery/elastic.h"
#include "apps/gpt_train/exam.h"
#include "parallel/recovery/parts_log.h"
#include "apps/gpt_train/sample_text.h"
#include "apps/options/options.h"
#include "parallel/report/run_log.h"
#include "apps/gpt_train/saving.h"
#include "parallel/report/timeline.h"
#include "parallel/simulate/paced.h"
#include <weft/weft.h>

/* Shared by all ranks; only rank 0 writes to the log and to stdout. */
typedef struct app_train_job {
    const app_options *options;
    const wf_launcher *launcher;
    wf_dataset *data;
    wf_run_log *log; /* where rank 0 runs; else NULL */
    wf_error failed; /* before the launch, in this process: the others hear of it there */
    wf_par_pipeline *pipeline; /* NULL: there is none */
    wf_resume *resume;
    wf_sim_paced paced; /* the machine of --paced */
    wf_saving_result *saved;
    char numerics[17];        /* the run's numerics identity; "" without steps */
    wf_timeline *timeline;    /* where rank 0 runs and one is kept; else NULL */
    app_sample_prompt prompt; /* what --sample begins with */
    app_exam exam;            /* what --eval-requests asks */
    wf_replay *replay; /* what ranks held in the run whose steps are made again; or NULL */
    wf_flip flip;      /* step 0: no bit is turned */
    wf_elastic *elastic;
} app_train_job;

/* What --data and --val-data name; NULL without steps. Owner: caller. Errors: those of
   wf_dataset_open, wf_dataset_check_counts */
wf_status app_job_open_data(const app_options *options, wf_dataset **data, wf_error *error);

/* Returns how many batches an evaluation has; 0: there is none. */
int64_t app_job_evaluations(const app_options *options, const wf_dataset *data);

#endif

/* apps/gpt_train/train_loop.h - a launch of gpt_train: the run that its flags describe, and its
   ranks. */
#ifndef WF_APPS_TRAIN_LOOP_H
#define WF_APPS_TRAIN_LOOP_H

#include "apps/gpt_train/dry_run.h"
#include "apps/gpt_train/train_job.h"
#include "parallel/program/run.h"

typedef struct app_launch {
    const app_options *options;
    app_train_job *job;
    app_plan plan;
    wf_plan_job made;
    wf_par_job trained; /* the job of the flags, with data and hooks */
    wf_run run;
    char mesh[96];
} app_launch;

/* Describes the run of a launch. It refers to both, and into itself. */
void app_launch_describe(app_launch *launch, const app_options *options, app_train_job *job);

/* rank_main of wf_launch; arg is the app_launch. */
wf_status app_train_rank(wf_rank *rank, void *arg);

#endif

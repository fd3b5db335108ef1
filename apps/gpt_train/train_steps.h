/* apps/gpt_train/train_steps.h - a rank's steps: made, measured, evaluated, logged and saved. */
#ifndef WF_APPS_TRAIN_STEPS_H
#define WF_APPS_TRAIN_STEPS_H

#include "apps/gpt_train/rank_parts.h"
#include "parallel/recovery/elastic_rank.h"
#include "parallel/report/rank_trace.h"
#include "apps/gpt_train/train_job.h"

/* Scalars of this program in a step's log: what --eval-requests comes to. */
enum { APP_LOOP_SCALARS = 3 };

/* A rank of a launch. */
typedef struct app_loop {
    wf_rank *rank;
    const app_train_job *job;
    const app_options *o;
    wf_par *par;
    wf_nn_gpt *model;
    wf_par_trainer *trainer;
    app_saving saving;
    int64_t resumed;   /* steps that were done before */
    unsigned requests; /* those of all ranks, at the end of a step */
    bool
        unevaluated; /* the run is to stop, and the evaluation behind the step was not made, or not whole */
    wf_log_scalar scalars[APP_LOOP_SCALARS];
    wf_rank_trace trace;
    rank_parts parts;
    wf_elastic_rank elastic;
} app_loop;

/* All steps, on from a checkpoint or from what lost ranks left. The trainer is open. Collective. Errors: in the
   context. */
wf_status app_loop_train(app_loop *loop);

#endif

/* apps/gpt_train/job.h - the flags as the library's job: model, mesh, training and hooks; the
   same for a run, and for its plan. */
#ifndef WF_APPS_TRAIN_JOB_H
#define WF_APPS_TRAIN_JOB_H

#include "apps/gpt_train/eval_requests.h"
#include "apps/gpt_train/sample_text.h"
#include "apps/options/options.h"
#include "nn/dataset/dataset.h"
#include "parallel/plan/request.h"
#include "parallel/program/process.h"
#include "parallel/simulate/paced.h"
#include <weft/weft.h>

/* A job of the flags, and what is opened for it; only read by ranks. */
typedef struct app_job {
    app_options *options;
    wf_dataset *data;                /* NULL without steps, and in plans */
    app_sample_prompt prompt;        /* a sample's beginning */
    app_eval_requests eval_requests; /* questions of --eval-requests */
    wf_replay *replay;  /* digests of the run whose steps are repeated; NULL: none */
    wf_flip flip;       /* step 0: no bit is flipped */
    wf_sim_paced paced; /* the machine of --paced */
    /* The job in words, as planners see it, and what it points to. */
    wf_plan_request request;
    wf_plan_job made;
    wf_par_pipeline_options pipeline;
    wf_sim_model sizes;
    char name[64], facts[512];
} app_job;

/* Describes the job by its options, which may have changed since; returns job->request. */
wf_plan_request *app_job_request(app_job *job);

/* Describes a run of the job in this process; data and the like are open, or the run is to
   fail. Errors: WF_EINVAL, those of wf_sim_machine_read */
wf_status app_job_process(app_job *job, wf_process *process, wf_error *error);

/* Sets the options of mesh and micro-batches to those of a job. */
void app_job_take_mesh(app_options *options, const wf_par_job *job);

/* Opens texts, and chooses how ranks are started, their mesh where fewer processes are there,
   and what the run chooses by itself: --device, --threads-per-rank, --accumulate,
   --micro-batch-size; prints lines about these. Owner: the caller, app_job_close, also after
   errors. Errors: WF_EINVAL, those of app_job_open_texts, wf_process_check, wf_launcher_choose,
   wf_topology_read */
wf_status app_job_prepare(app_job *job, wf_process *process, wf_error *error);

/* Opens the prompt of a sample and evaluation tasks, whose lengths plans know, too. Owner: the
   caller, app_job_close, also after errors. Errors: those of wf_dataset_open, wf_tok_open,
   .. */
wf_status app_job_open_texts(app_job *job, wf_error *error);

/* Opens --data, where they are not open; a plan continues without those that are not there.
   Owner: the caller, app_job_close. Errors: those of app_data_open */
wf_status app_job_open_data(app_job *job, wf_error *error);

/* Opens data, and what drills read. Owner and errors as above */
wf_status app_job_open(app_job *job, wf_error *error);
void app_job_close(app_job *job);

/* Opens what --data and --val-data name; NULL without steps. Errors: those of wf_dataset_open,
   wf_dataset_check_counts */
wf_status app_data_open(const app_options *options, wf_dataset **data, wf_error *error);

/* Returns how many batches an evaluation has; 0: there is none. */
int64_t app_data_evaluations(const app_options *options, const wf_dataset *data);

/* Returns true where nothing is moved, as in a plan: of several processes, one makes it. */
bool app_job_moves_nothing(const app_options *options);

/* ---- hooks.c ---- */

extern const wf_run_hooks app_run_hooks;

/* Hooks of the job, with it as their argument: in a plan they take what saving, evaluation
   tasks and a sample take. */
wf_par_hook app_hook_begin, app_hook_after, app_hook_end;

#endif

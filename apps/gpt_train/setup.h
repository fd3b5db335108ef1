/* apps/gpt_train/setup.h - the flags as the library's options, for a run and for its plan. */
#ifndef WF_APPS_SETUP_H
#define WF_APPS_SETUP_H

#include "apps/options/options.h"
#include "parallel/simulate/paced.h"
#include <weft/weft.h>

wf_par_options app_setup_rank(const app_options *options, bool plan);
/* Writes what a report says of the model, as JSON. */
void app_model_facts(const app_options *options, char *text, size_t size);
/* The model on the fake device; NULL with the reason in the context. Owner: caller. */
wf_nn_gpt *app_setup_model(const app_options *options, wf_context *ctx);
wf_par_train_options app_setup_training(const app_options *options);
/* The job that the flags describe but for the settings that planners change
   (parallel/plan/settings.def); without hooks, data and evaluation batches. The options outlive
   it. */
typedef struct app_setup_job {
    wf_par_job job;
    wf_par_pipeline_options pipeline;
    wf_sim_model sizes;
} app_setup_job;
app_setup_job app_setup_job_of(const app_options *options);

/* Which ranks the processes of a launcher run. */
wf_rank_order app_setup_rank_order(const app_options *options);
/* The machine whose time a run takes with --paced; nothing without. */
/* FLOP/s of all devices of a run at their peak, for MFU: those of --machine, or of the machine
   whose pace it takes; 0: no figures are given. Errors: WF_EINVAL where they have none of this
   type */
wf_status app_setup_peak(const app_options *options, double *peak, wf_error *error);

wf_status app_setup_pace(const app_options *options, wf_sim_paced *paced, wf_error *error);
/* Whether a run evaluates behind this step. */
bool app_setup_evaluates(const app_options *options, int64_t step);

/* What --device auto stands for here; where the CPU serves somebody who asked, that is told in
   a line. */
wf_status app_choose_device(app_options *options, wf_error *error);
/* The threads of a rank, where none are given. */
wf_status app_choose_threads(app_options *options, const wf_launcher *launcher,
                             wf_error *error);

#endif

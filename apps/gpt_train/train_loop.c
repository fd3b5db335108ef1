/* apps/gpt_train/train_loop.c - the run that flags describe: what gpt_train does beside the
   library's steps; see the header. */
#include "apps/gpt_train/train_loop.h"
#include "apps/gpt_train/elastic_run.h"
#include "apps/gpt_train/first_lines.h"
#include "apps/gpt_train/sample.h"
#include "parallel/recovery/elastic_files.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static wf_nn_module *make_model(wf_par *par, void *launch)
{
    const wf_par_job *job = &((const app_launch *)launch)->plan.setup.job;

    return job->model(par, job->arg);
}

/* Loads what --init-from and --lora-init name; wf_run_hooks.load. */
static wf_status load(wf_par_running *r, void *launch)
{
    const app_options *o = ((const app_launch *)launch)->options;
    wf_nn_gpt *model = (wf_nn_gpt *)r->model;

    if (o->init_from && wf_par_pretrained_load(r->par, model, o->init_from) != WF_OK)
        return wf_context_status(wf_par_context(r->par));
    return o->lora_init ? wf_par_lora_load(r->par, model, o->lora_init) : WF_OK;
}

/* Adds flags and the base of adapters to checkpoints; wf_run_hooks.saving. */
static wf_status add_texts(wf_par_running *r, wf_saving_options *options, void *launch)
{
    const app_options *o = ((const app_launch *)launch)->options;

    r->own = calloc(1, sizeof(app_saving));
    return r->own ? app_saving_open(r->own, o, r->par, (wf_nn_gpt *)r->model, options)
                  : wf_fail(wf_par_context(r->par), WF_ENOMEM, "no memory for the flags");
}

/* Frees those; wf_par_job.end. */
static wf_status end(wf_par_running *r, void *launch)
{
    (void)launch;
    if (r->own)
        app_saving_close(r->own);
    free(r->own);
    return WF_OK;
}

/* Prints what is trained; wf_run_hooks.introduce. */
static wf_status introduce(wf_par_running *r, void *launch)
{
    const app_launch *l = launch;

    app_first_lines(stdout, l->options, r->model, l->job->pipeline, l->job->data);
    return WF_OK;
}

/* Takes --eval-requests, with the numbers of gpt_eval choices; NaN where no question has a
   label. wf_run_hooks.score */
static wf_status score(wf_par_running *r, wf_log_scalar *scalar, int *count, void *launch)
{
    const app_train_job *job = ((const app_launch *)launch)->job;
    wf_context *ctx = wf_par_context(r->par);
    wf_gen_score s = {0};
    double n;

    if (!job->exam.requests.count ||
        app_exam_take(&job->exam, r->par, (wf_nn_gpt *)r->model,
                      job->pipeline ? r->trainer : NULL, wf_context_rank(ctx) == 0, r->stop, r,
                      &s) != WF_OK)
        return wf_context_status(ctx);
    n = s.labelled ? (double)s.labelled : NAN;
    scalar[0] = (wf_log_scalar){"acc", "validation_metrics/acc", (double)s.right / n, 9, true};
    scalar[1] = (wf_log_scalar){"acc_norm", "validation_metrics/acc_norm",
                                (double)s.right_by_bytes / n, 9, true};
    scalar[2] = (wf_log_scalar){"answer_bits_per_byte", NULL,
                                s.labelled ? s.bits_per_byte : NAN, 17, false};
    *count = 3;
    return WF_OK;
}

/* Prints the text of --sample; wf_par_job.after. */
static wf_status sample(wf_par_running *r, void *launch)
{
    const app_launch *l = launch;
    const app_sampled from = {r->par, (wf_nn_gpt *)r->model,
                              l->job->pipeline ? r->trainer : NULL, &l->job->prompt};
    bool first = wf_context_rank(wf_par_context(r->par)) == 0;

    return app_sample_text(l->options, &from, first ? stdout : NULL, &r->stopped);
}

static wf_run_digest digest_of(const app_options *o)
{
    return strcmp(o->digest, "off") == 0       ? WF_RUN_DIGEST_OFF
           : strcmp(o->digest, "tensors") == 0 ? WF_RUN_DIGEST_TENSORS
                                               : WF_RUN_DIGEST_STEPS;
}

/* Describes the job: that of plans, with data, and with hooks of its own. */
static void describe_job(app_launch *l)
{
    const app_options *o = l->options;
    wf_par_job *t = &l->trained;

    *t = *wf_plan_request_job(app_plan_of(o, &l->plan), &l->made);
    t->model = make_model;
    t->arg = l;
    if (l->job->data) { /* else there are no steps, or the launch is to fail */
        t->data = wf_par_dataset(l->job->data, WF_DATASET_TRAIN);
        t->eval_data = wf_par_dataset(l->job->data, WF_DATASET_VALIDATION);
        t->eval_batches = app_job_evaluations(o, l->job->data);
    }
    t->begin = NULL;
    t->after = o->sample ? sample : NULL;
    t->end = end;
}

void app_launch_describe(app_launch *l, const app_options *o, app_train_job *job)
{
    l->options = o;
    l->job = job;
    describe_job(l);
    app_elastic_name(o, l->mesh, sizeof l->mesh);
    l->run = (wf_run){.job = &l->trained,
                      .hooks = {load, add_texts, introduce, score},
                      .pipeline = job->pipeline,
                      .program = "gpt_train",
                      .out = stdout,
                      .mesh = l->mesh,
                      .rank = (int)o->rank,
                      .show_layout = o->show_layout,
                      .comm_report = o->comm_report,
                      .report_json = o->report_json,
                      .traced = o->trace != NULL,
                      .profile = (int)o->profile,
                      .memory_timeline = o->memory_timeline,
                      .trace_first = o->trace_steps.first,
                      .trace_last = o->trace_steps.last,
                      .digest = digest_of(o),
                      .verify_every = o->verify_every,
                      .log_digests = o->log_digests,
                      .numerics = job->numerics,
                      .continues = app_resume_continues(o),
                      .replay = job->replay,
                      .replay_to = o->replay_to,
                      .flip = job->flip,
                      .recovery_dir = o->recovery_dir,
                      .saving = app_saving_options(o, job->numerics),
                      .log = job->log,
                      .timeline = job->timeline,
                      .resume = job->resume,
                      .saved = job->saved,
                      .elastic = job->elastic};
}

wf_status app_train_rank(wf_rank *rank, void *arg)
{
    const app_launch *l = arg;
    wf_par_options options = app_setup_rank(l->options, false);
    wf_status status;
    wf_par *par;

    options.pace = l->options->paced ? &l->job->paced.pace : NULL;
    par = wf_par_open(rank, &options, &rank->error);
    if (!par)
        return rank->error.code;
    if (rank->warning && rank->index == 0 && !*l->job->elastic->report &&
        !wf_elastic_files_restarts())
        wf_par_warn("gpt_train", rank->warning);
    status = wf_run_rank(par, &l->run);
    if (status != WF_OK)
        wf_error_set(&rank->error, status, "%s", wf_context_error(wf_par_context(par))->text);
    wf_par_close(par);
    return status;
}

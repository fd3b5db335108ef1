/* apps/gpt_train/process.c - a run of the flags' job in this process; see job.h. */
#include "apps/gpt_train/identity.h"
#include "apps/gpt_train/job.h"
#include "apps/gpt_train/saving.h"
#include "apps/gpt_train/task.h"
#include "core/dtype.h"
#include <stdlib.h>
#include <string.h>

static wf_run_digest digest_of(const app_options *o)
{
    return strcmp(o->digest, "off") == 0       ? WF_RUN_DIGEST_OFF
           : strcmp(o->digest, "tensors") == 0 ? WF_RUN_DIGEST_TENSORS
                                               : WF_RUN_DIGEST_STEPS;
}

static const char *unless_auto(const char *choice)
{
    return strcmp(choice, "auto") == 0 ? NULL : choice;
}

/* Returns the flags of a launch, on whose mesh they may differ; wf_process.settings. */
static char *settings(void *job, const wf_par_job *launched)
{
    app_options o = *((const app_job *)job)->options; /* its texts stay */
    json_t *json;
    char *text;

    app_job_take_mesh(&o, launched);
    json = app_options_json(&o);
    text = json ? json_dumps(json, 0) : NULL;
    json_decref(json);
    return text;
}

/* A wf_process.identity. */
static char *identity(void *job, wf_error *error)
{
    const app_job *j = job;

    return app_identity(j->options, j->data, error);
}

/* A wf_process.compare. */
static void compare(void *job, const wf_process *process, wf_job *alike)
{
    const app_job *j = job;

    app_task_compare(NULL, j->options, alike);
    wf_dataset_job(j->data, alike);
    wf_job_add(alike, "numerics identity", "%s",
               *process->numerics ? process->numerics : "none");
}

/* Keeps what a run begins with beside its checkpoints, and opens the run of --replay;
   wf_process.opened. */
static wf_status opened(void *job, wf_process *process, wf_error *error)
{
    app_job *j = job;
    const app_options *o = j->options;
    char kept[WF_ERROR_TEXT];

    snprintf(kept, sizeof kept, "%.900s/" WF_PAR_PRETRAINED_KEPT, o->save ? o->save : "");
    if (o->steps && o->save && o->init_from && process->launcher.process == 0 &&
        wf_par_pretrained_keep(o->init_from, kept, error) != WF_OK)
        process->saved.failed = error->code == WF_EIO || error->code == WF_EDATA;
    else if (!o->steps && o->sample && !o->init_from && !process->checkpoints.count)
        wf_error_set(error, WF_EINVAL,
                     "--sample %lld with --steps 0 needs weights that were trained before, and "
                     "there are none: use --resume PATH or --init-from DIR",
                     (long long)o->sample);
    else if (o->replay &&
             wf_replay_open(o->replay, process->numerics, &j->replay, error) == WF_OK)
        process->run.replay = j->replay;
    return error->code;
}

/* Sets FLOP/s of all devices of a run at their peak, for MFU: those of --machine, or of the
   machine whose time it takes; 0: no figures are given. Errors: WF_EINVAL where they have none
   of this type */
static wf_status find_peak(const app_options *o, double *peak, wf_error *error)
{
    const char *file = o->machine ? o->machine : o->paced;
    wf_dtype compute = wf_dtype_find(o->compute);
    wf_sim_machine machine;

    *peak = 0;
    if (!file || wf_sim_machine_read(file, &machine, error) != WF_OK)
        return error->code;
    if (machine.rate[compute] <= 0)
        return wf_error_set(error, WF_EINVAL, "%s has no device.%s: take --dtype bf16", file,
                            o->compute);
    *peak = machine.rate[compute] * (double)app_options_ranks(o);
    if (!o->machine) /* steps take paced_scale times as long */
        *peak /= o->paced_scale;
    return WF_OK;
}

/* Reads the machine whose time the steps take; nothing without --paced. */
static wf_status find_pace(const app_options *o, wf_sim_paced *paced, wf_error *error)
{
    wf_sim_machine machine = {.memory = 0};

    if (!o->paced || o->steps == 0)
        return WF_OK;
    if (wf_sim_machine_read(o->paced, &machine, error) != WF_OK)
        return error->code;
    if (machine.rate[wf_dtype_find(o->compute)] <= 0)
        return wf_error_set(error, WF_EINVAL, "%s has no device.%s: take --dtype bf16",
                            o->paced, o->compute);
    if (machine.cores > 0)
        return wf_error_set(
            error, WF_EINVAL,
            "--paced %s: its ranks share %d cores of a host, and a paced one has "
            "a device of its own: leave out host.cores",
            o->paced, machine.cores);
    wf_sim_pace(&machine, o->paced_scale, paced);
    return WF_OK;
}

/* Describes what ranks do and report. */
static wf_run describe_run(const app_job *job)
{
    const app_options *o = job->options;

    return (wf_run){.hooks = app_run_hooks,
                    .program = "gpt_train",
                    .out = stdout,
                    .moe_report = o->moe_report,
                    .report_json = o->report_json,
                    .trace_first = o->trace_steps.first,
                    .trace_last = o->trace_steps.last,
                    .digest = digest_of(o),
                    .verify_every = o->verify_every,
                    .log_digests = o->log_digests,
                    .replay_to = o->replay_to,
                    .flip = job->flip,
                    .saving = app_saving_options(o)};
}

/* Describes the job on the mesh that is wanted. */
static void describe_job(app_job *job, wf_process *p)
{
    const app_options *o = job->options;

    p->request = *app_job_request(job);
    p->job = *wf_plan_request_job(&job->request, &job->made);
    if (!o->sample)
        p->job.after = NULL;
    if (!job->data) /* there are no steps, or the run is to fail */
        return;
    p->job.data = wf_par_dataset(job->data, WF_DATASET_TRAIN);
    p->job.eval_data = wf_par_dataset(job->data, WF_DATASET_VALIDATION);
    p->job.eval_batches = app_data_evaluations(o, job->data);
}

wf_status app_job_process(app_job *job, wf_process *p, wf_error *error)
{
    const app_options *o = job->options;

    describe_job(job, p);
    p->run = describe_run(job);
    p->started = unless_auto(o->launcher);
    p->transport = unless_auto(o->transport);
    p->bind_ranks = o->bind_ranks;
    p->order_given = o->given[APP_OPTION_rank_order];
    p->order = strcmp(o->rank_order, "near") == 0      ? WF_ORDER_NEAR
               : strcmp(o->rank_order, "started") == 0 ? WF_ORDER_STARTED
                                                       : WF_ORDER_TRANSPOSED;
    p->pace = o->paced ? &job->paced.pace : NULL;
    p->plan_check = true;
    p->memory_check = o->memory_check;
    p->recorder_dir = o->recorder_dir;
    p->is_elastic = o->elastic;
#define PROCESS(field) p->field = (__typeof__(p->field))o->field;
#define RUN(field)     p->run.field = (__typeof__(p->run.field))o->field;
#include "parallel/program/service_fields.def"
    p->resume = app_resume_options(o);
    p->arg = job;
    p->settings = settings;
    p->identity = identity;
    p->compare = compare;
    p->opened = opened;
    p->reads_numerics = o->replay != NULL;
    return find_peak(o, &p->peak, error) == WF_OK ? find_pace(o, &job->paced, error)
                                                  : error->code;
}

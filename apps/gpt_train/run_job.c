/* apps/gpt_train/run_job.c - see the header. */
#include "apps/gpt_train/run_job.h"
#include "apps/program.h"
#include "apps/gpt_train/setup.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define WHAT "what is asked for" /* the first entry of a process's job */

bool app_run_moves_nothing(const app_options *o)
{
    return o->plan || strcmp(o->transport, "fake") == 0;
}

wf_status app_run_numerics(const app_options *o, char text[17], wf_error *error)
{
    const wf_par_options options = app_setup_rank(o, false);
    uint64_t identity;

    if (!o->steps || app_run_moves_nothing(o))
        return WF_OK;
    if (wf_par_numerics(&options, &identity, error) == WF_OK)
        snprintf(text, 17, "%016" PRIx64, identity);
    return error->code;
}

wf_job *app_run_job(const app_options *o, const app_train_job *run)
{
    wf_job *job = run->launcher->processes > 1 ? wf_job_new() : NULL;

    if (!job)
        return NULL;
    if (run->failed.code != WF_OK) {
        wf_job_fail(job, &run->failed);
        return job;
    }
    wf_job_add(job, WHAT, "a run");
    app_program_job(job);
    app_options_job(o, job);
    wf_dataset_job(run->data, job);
    wf_job_add(job, "numerics identity", "%s", *run->numerics ? run->numerics : "none");
    return job;
}

const char *app_run_task(const app_options *o)
{
    return o->help                             ? "--help"
           : o->version                        ? "--version"
           : o->completion[0]                  ? "--completion"
           : o->print_config                   ? "--print-config"
           : o->fit_nodes                      ? "--fit-nodes"
           : o->plan                           ? "--plan"
           : o->calibrate                      ? "--calibrate"
           : strcmp(o->transport, "fake") == 0 ? "--transport fake"
                                               : NULL;
}

wf_status app_run_meet(const app_options *o, wf_launch_end *end, wf_error *error)
{
    const char *task = error->code == WF_OK ? app_run_task(o) : NULL;
    wf_job *job;

    if (error->code == WF_OK && !task)
        return WF_OK;
    job = wf_job_new();
    wf_job_add(job, WHAT, "%s", task ? task : "");
    if (task && !app_options_asks(o))
        app_options_job(o, job);
    end->reported = wf_launch_meet(job, error);
    wf_job_free(job);
    return error->code;
}

/* apps/gpt_train/task.c - see the header. */
#include "apps/gpt_train/task.h"
#include "apps/program.h"
#include <string.h>

const char *app_task(const app_options *o)
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

void app_task_compare(const char *task, const app_options *o, wf_job *alike)
{
    wf_job_add(alike, "what is asked for", "%s", task ? task : "a run");
    if (!task)
        app_program_job(alike);
    if (!app_options_asks(o))
        app_options_job(o, alike);
}

wf_status app_task_meet(const app_options *o, wf_launch_end *end, wf_error *error)
{
    const char *task = error->code == WF_OK ? app_task(o) : "";
    wf_job *job;

    if (!task)
        return WF_OK;
    job = wf_job_new();
    if (*task)
        app_task_compare(task, o, job);
    end->reported = wf_launch_meet(job, error);
    wf_job_free(job);
    return error->code;
}

/* parallel/program/services.c - the process that the flags of wf_par_run ask for; see the
   header. */
#include "parallel/program/services_internal.h"
#include <stdlib.h>
#include <string.h>

/* Values that a process may have of its own. */
static const char *const own[] = {"log-jsonl",       "tensorboard", "trace",
                                  "memory-timeline", "config",      "stall-timeout",
                                  "recovery-dir",    NULL};

/* Returns all flags, with the sizes of a launch; wf_process.settings. */
static char *launch_settings(void *services, const wf_par_job *launched)
{
    wf_services *s = services;
    const wf_par_options *o = &launched->mesh;
    const int sizes[] = {o->pp, o->dp, o->tp, o->cp};

    for (int i = 0; o->axes ? o->axes[i].name != NULL : i < 4; i++)
        s->axis[i] = o->axes ? o->axes[i].size : sizes[i] ? sizes[i] : 1;
    s->planning.request.micro_batch_size = launched->train.micro_batch;
    return wf_flags_json(s->flags);
}

/* A wf_process.identity. */
static char *identity(void *services, wf_error *error)
{
    char *settings = wf_services_settings(services);

    if (!settings)
        wf_error_set(error, WF_ENOMEM, "no memory for the flags as JSON");
    return settings;
}

/* A wf_process.compare. */
static void compare(void *services, const wf_process *process, wf_job *alike)
{
    const wf_services *s = services;

    (void)process;
    wf_flags_job(s->flags, own, alike);
}

/* Describes what ranks do and report. */
static wf_run describe_run(wf_services *s)
{
    s->texts[0] = "settings";
    s->texts[1] = s->settings;
    return (wf_run){.hooks = s->program->hooks,
                    .program = s->start.program,
                    .out = s->out,
                    .trace_first = s->trace_first,
                    .trace_last = s->trace_last,
                    .last_digest = true,
                    .saving = {.save = {.dir = s->save,
                                        .kind = WF_PAR_SAVE_SHARDED,
                                        .keep = (int)s->keep,
                                        .async = s->async_save,
                                        .option_count = 1,
                                        .option = s->texts},
                               .best = s->save_best,
                               .fresh = s->reset_optimizer,
                               .interval = s->save_interval,
                               .seconds = s->exit_minutes * 60,
                               .loaded = wf_services_report_settings,
                               .arg = s}};
}

wf_status wf_services_describe(wf_services *s, wf_error *error)
{
    wf_process *p = &s->process;

    s->settings = wf_services_settings(s);
    if (!s->settings)
        return wf_error_set(error, WF_ENOMEM, "no memory for the flags as JSON");
    p->job = s->program->job;
    wf_services_request(s, &p->request);
    p->request.planned = false;
    p->run = describe_run(s);
    p->is_elastic = s->is_elastic;
#define PROCESS(field) p->field = (__typeof__(p->field))s->field;
#define RUN(field)     p->run.field = (__typeof__(p->run.field))s->field;
#include "parallel/program/service_fields.def"
    p->resume.save = s->save;
    p->resume.resume = s->resume;
    p->arg = s;
    p->settings = launch_settings;
    p->identity = identity;
    p->compare = compare;
    if (wf_par_job_check(&p->job, error) != WF_OK)
        return error->code;
    return wf_process_check(p, error);
}

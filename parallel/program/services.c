/* parallel/program/services.c - what a process has open for the flags of wf_par_run; see the
   header. */
#include "parallel/program/services_internal.h"
#include "mesh/transport/launcher.h"
#include "parallel/main.h"
#include "parallel/recovery/elastic_files.h"
#include <stdlib.h>

static wf_resume_options resume_options(const wf_services *s)
{
    return (wf_resume_options){
        .program = s->start.program, .save = s->save, .resume = s->resume};
}

wf_status wf_services_open_checkpoints(wf_services *s, wf_error *error)
{
    const wf_resume_options options = resume_options(s);

    wf_resume_open(&options, &s->resume_from, error);
    s->saved.failed = error->code == WF_EIO || error->code == WF_EDATA;
    return error->code;
}

wf_status wf_services_open_log(wf_services *s, bool continues, wf_error *error)
{
    const wf_par_options *o = &s->start.options;
    wf_run_axis axes[WF_MAX_AXES + 1] = {{NULL, 0}};
    char *settings;
    int replicate = 1, shard = 1, n = 0;
    wf_run_log_options options = {.steps = s->program->job.steps,
                                  .path = s->log_jsonl,
                                  .continues = continues,
                                  .tensorboard = s->tensorboard,
                                  .axes = axes,
                                  .transport = "threads",
                                  .warning = wf_par_warn,
                                  .arg = (void *)(uintptr_t)s->start.program};

    for (; o->axes && s->start.axis[n].name; n++)
        axes[n] = (wf_run_axis){s->start.axis[n].name, s->start.axis[n].size};
    if (!o->axes && wf_par_axes(o, &replicate, &shard, error) == WF_OK) {
        axes[n++] = (wf_run_axis){"pp", o->pp};
        axes[n++] = (wf_run_axis){"replicate", replicate};
        axes[n++] = (wf_run_axis){"shard", shard};
        axes[n++] = (wf_run_axis){"tp", o->tp};
    }
    options.axis_count = n;
    if (wf_launcher_detected().process > 0) /* the first one writes */
        return error->code;
    options.settings = settings = wf_flags_json(s->flags);
    if (wf_launcher_detected().processes > 1) {
        const wf_launcher launcher = wf_launcher_detected();

        options.transport = wf_launcher_transport(&launcher);
    }
    wf_run_log_console(&options, s->out);
    if (!settings)
        wf_error_set(error, WF_ENOMEM, "no memory for the flags as JSON");
    if (error->code == WF_OK)
        wf_run_log_open(&options, &s->log, error);
    free(settings);
    return error->code;
}

/* Of an elastic run fewer processes may have been started than its mesh is for. */
static wf_status fit_processes(wf_services *s, wf_error *error)
{
    int started = wf_launcher_detected().processes, processes = started;

    if (wf_services_fit(s, &processes, error) == WF_OK && processes < started)
        wf_error_set(error, WF_EINVAL,
                     "%d processes are started, and this run can use %d of them: start so many "
                     "(--fit-nodes tells)",
                     started, processes);
    return error->code;
}

/* Reads the state that this host has kept. */
static wf_status load_left(wf_services *s, wf_error *error)
{
    char *job = wf_services_settings(s);

    return job ? wf_elastic_files_load(&s->elastic, job, error)
               : wf_error_set(error, WF_ENOMEM, "no memory for the flags as JSON");
}

wf_status wf_services_open(wf_services *s, wf_error *error)
{
    const wf_launcher launcher = wf_launcher_detected();
    const wf_resume_options resume = resume_options(s);

    s->settings = wf_services_settings(s);
    if (!s->settings)
        return wf_error_set(error, WF_ENOMEM, "no memory for the flags as JSON");
    if (s->recovery_dir && fit_processes(s, error) != WF_OK)
        return error->code;
    if (s->save &&
        wf_saving_prepare(s->start.program, s->save, &launcher, &s->saved, error) != WF_OK) {
        s->saved.failed = error->code == WF_EIO;
        return error->code;
    }
    if (wf_services_open_checkpoints(s, error) != WF_OK ||
        (s->recovery_dir && load_left(s, error) != WF_OK))
        return error->code;
    if (wf_services_open_log(s, wf_resume_looks(&resume) || s->recovery_dir, error) == WF_OK &&
        launcher.process <= 0 && s->trace)
        wf_timeline_open(s->trace, (int)wf_services_meshes.ranks(&s->shape), &s->timeline,
                         error);
    return error->code;
}

void wf_services_describe(wf_services_launch *l)
{
    wf_services *s = l->services;
    const wf_resume_options resume = resume_options(s);

    wf_services_mesh_name(&l->shape, l->mesh, sizeof l->mesh);
    l->texts[0] = "settings";
    l->texts[1] = s->settings;
    l->run = (wf_run){.job = &l->job,
                      .hooks = s->program->hooks,
                      .pipeline = l->pipeline,
                      .program = s->start.program,
                      .out = s->out,
                      .mesh = l->mesh,
                      .rank = (int)s->rank,
                      .show_layout = s->show_layout,
                      .comm_report = s->comm_report,
                      .traced = s->trace != NULL,
                      .profile = (int)s->profile,
                      .memory_timeline = s->memory_timeline,
                      .trace_first = s->trace_first,
                      .trace_last = s->trace_last,
                      .last_digest = true,
                      .continues = wf_resume_looks(&resume) || s->recovery_dir,
                      .recovery_dir = s->recovery_dir,
                      .saving = {.program = s->start.program,
                                 .out = s->out,
                                 .save = {.dir = s->save,
                                          .kind = WF_PAR_SAVE_SHARDED,
                                          .keep = (int)s->keep,
                                          .async = s->async_save,
                                          .option_count = 1,
                                          .option = l->texts},
                                 .best = s->save_best,
                                 .fresh = s->reset_optimizer,
                                 .looks = wf_resume_looks(&resume),
                                 .interval = s->save_interval,
                                 .seconds = s->exit_minutes * 60,
                                 .loaded = wf_services_report_settings,
                                 .arg = s},
                      .log = s->log,
                      .timeline = s->timeline,
                      .resume = &s->resume_from,
                      .saved = &s->saved,
                      .elastic = &s->elastic};
}

wf_status wf_services_close(wf_services *s, wf_error *error)
{
    wf_error timeline = {WF_OK, ""}, log = {WF_OK, ""};

    if (wf_timeline_close(s->timeline, &timeline) != WF_OK) /* a run is worth more */
        wf_par_warn(NULL, timeline.text);
    if (wf_run_log_close(s->log, &log) != WF_OK && error->code == WF_OK)
        wf_error_set(error, log.code, "%s", log.text);
    wf_par_snapshot_close(s->elastic.from); /* left by a start that failed */
    wf_resume_close(&s->resume_from);
    wf_services_close_training(s);
    free(s->elastic.job);
    free(s->settings);
    return error->code;
}

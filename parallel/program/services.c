/* parallel/program/services.c - flags of wf_par_run, and what a process opens for them; see the header. */
#include "parallel/program/services_internal.h"
#include "mesh/transport/launcher.h"
#include "parallel/plan/plan.h"
#include "parallel/report/layout.h"
#include <stdlib.h>
#include <string.h>

static void add_flag(wf_services *s, int *n, wf_flag flag)
{
    if (*n < WF_FLAGS)
        s->flags[(*n)++] = flag;
}

/* Lists a flag for each axis of the mesh. */
static void add_axes(wf_services *s, int *n)
{
    wf_par_options *o = &s->start.options;
    const char *const names[] = {"pp", "dp", "tp"};
    const int sizes[] = {o->pp, o->dp, o->tp};

    for (int i = 0; o->axes ? s->start.axis[i].name != NULL : i < 3; i++) {
        s->axis[i] = o->axes ? s->start.axis[i].size : sizes[i] ? sizes[i] : 1;
        add_flag(s, n,
                 (wf_flag){o->axes ? s->start.axis[i].name : names[i], WF_FLAG_COUNT,
                           &s->axis[i], 1, WF_MAX_RANKS, NULL, NULL,
                           "N ranks along this axis of the mesh"});
    }
}

static void list_flags(wf_services *s)
{
    wf_par_job *job = &s->program->job;
    int n = 0;

    for (const wf_flag *own = s->program->flags; own && own->name; own++)
        add_flag(s, &n, *own);
    add_axes(s, &n);
    const wf_flag mine[] = {
        {"strategy", WF_FLAG_TEXT, &s->start.options.strategy, 0, 0, NULL, NULL,
         "NAME how data-parallel ranks hold parameters: full_shard, no_shard, .."},
        {"steps", WF_FLAG_COUNT, &job->steps, 0, 1e12, NULL, NULL, "N steps of the run"},
        {"eval-interval", WF_FLAG_COUNT, &job->eval_interval, 0, 1e12, NULL, NULL,
         "N steps between evaluations; 0: none"},
        {"log-jsonl", WF_FLAG_TEXT, &s->log_jsonl, 0, 0, NULL, NULL,
         "FILE a row of JSON a step"},
        {"tensorboard", WF_FLAG_TEXT, &s->tensorboard, 0, 0, NULL, NULL,
         "DIR a file of events for TensorBoard"},
        {"save", WF_FLAG_TEXT, &s->save, 0, 0, NULL, NULL,
         "DIR checkpoints, from the newest of which the same command continues"},
        {"save-interval", WF_FLAG_COUNT, &s->save_interval, 0, 1e12, NULL, NULL,
         "N steps between checkpoints; 0: one after the last step"},
        {"resume", WF_FLAG_TEXT, &s->resume, 0, 0, NULL, NULL,
         "PATH a checkpoint to continue from, or none"},
        {"trace", WF_FLAG_TEXT, &s->trace, 0, 0, NULL, NULL,
         "FILE a timeline of all ranks (Chrome trace)"},
        {"trace-first", WF_FLAG_COUNT, &s->trace_first, 1, 1e12, NULL, NULL,
         "STEP the first step in it"},
        {"trace-last", WF_FLAG_COUNT, &s->trace_last, 1, 1e12, NULL, NULL,
         "STEP the last step in it"},
        {"comm-report", WF_FLAG_SWITCH, &s->comm_report, 0, 0, NULL, NULL,
         "print which collectives a step calls, and what they move"},
        {"show-layout", WF_FLAG_SWITCH, &s->show_layout, 0, 0, NULL, NULL,
         "print every parameter's layout, and which rank holds what"},
        {"plan", WF_FLAG_SWITCH, &s->plan, 0, 0, NULL, NULL,
         "print what a rank would take and move; nothing is allocated or run"},
        {"rank", WF_FLAG_COUNT, &s->rank, 0, WF_MAX_RANKS, NULL, NULL,
         "N the rank of --plan, --trace's summary and --comm-report"},
        {"stall-timeout", WF_FLAG_COUNT, &s->stall_timeout, 0, 1e6, NULL, NULL,
         "SECONDS after which a rank that does nothing has failed; 0: never"},
        {"config", WF_FLAG_TEXT, &s->config, 0, 0, NULL, NULL,
         "FILE flags as a JSON object, which the command line overrides"},
        {"help", WF_FLAG_SWITCH, &s->help, 0, 0, NULL, NULL, "print this"},
    };

    for (size_t i = 0; i < sizeof mine / sizeof *mine; i++)
        add_flag(s, &n, mine[i]);
}

/* Puts sizes and steps that were given into the job. */
static wf_status take_values(wf_services *s, int64_t steps, wf_error *error)
{
    wf_par_job *job = &s->program->job;
    wf_par_options *o = &s->start.options;

    for (int i = 0; o->axes && s->start.axis[i].name; i++)
        s->start.axis[i].size = (int)s->axis[i];
    if (!o->axes) {
        o->pp = (int)s->axis[0];
        o->dp = (int)s->axis[1];
        o->tp = (int)s->axis[2];
    }
    if (job->train.schedule.steps == steps)
        job->train.schedule.steps = job->steps;
    job->mesh = *o;
    s->start.stall_timeout = (double)s->stall_timeout;
    if (s->trace_last < s->trace_first)
        return wf_error_set(error, WF_EINVAL, "--trace-last %lld is before --trace-first %lld",
                            (long long)s->trace_last, (long long)s->trace_first);
    if (s->rank >= wf_par_ranks(o))
        return wf_error_set(error, WF_EINVAL, "--rank %lld: there are ranks 0 to %lld",
                            (long long)s->rank, (long long)wf_par_ranks(o) - 1);
    if (s->save_interval && !s->save)
        return wf_error_set(error, WF_EINVAL, "--save-interval needs --save DIR");
    return WF_OK;
}

static bool asks_for_help(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0)
            return true;
    return false;
}

/* Finds --config, which is read before all other flags. */
static const char *config_of(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--config=", 9) == 0)
            return argv[i] + 9;
        if (strcmp(argv[i], "--config") == 0 && i + 1 < argc)
            return argv[i + 1];
    }
    return NULL;
}

wf_status wf_services_read(wf_services *s, int argc, char **argv, wf_error *error)
{
    const char *config = config_of(argc, argv);
    int64_t steps = s->program->job.steps;
    int first;

    s->start.options = s->program->job.mesh;
    s->stall_timeout = WF_PAR_STALL_TIMEOUT;
    s->trace_first = 2;
    s->trace_last = 3;
    if (wf_par_start_axes(&s->start, error) != WF_OK)
        return error->code;
    list_flags(s);
    s->help = asks_for_help(argc, argv);
    if (s->help) /* it shows the values of flags that are not given */
        return WF_OK;
    if ((config && wf_flags_config(config, s->flags, error) != WF_OK) ||
        wf_flags_read(s->start.program, argc, argv, s->flags, &first, error) != WF_OK)
        return error->code;
    if (first < argc)
        return wf_error_set(error, WF_EINVAL, "%s is no flag; see %s --help", argv[first],
                            s->start.program);
    return take_values(s, steps, error);
}

void wf_services_help(const wf_services *s)
{
    fprintf(s->out, "Usage: %s [FLAGS]\n", s->start.program);
    if (s->program->about)
        fprintf(s->out, "%s\n", s->program->about);
    fputc('\n', s->out);
    wf_flags_help(s->out, s->flags);
}

wf_status wf_services_plan(const wf_services *s, wf_error *error)
{
    const wf_par_job *job = &s->program->job;
    wf_plan plan;
    wf_plan_peak peak;
    char text[32];

    if (wf_plan_step(job, (int)s->rank, NULL, &plan, error) != WF_OK ||
        wf_plan_peaks(job, 0, &peak, error) != WF_OK)
        return error->code;
    fprintf(s->out, "plan of rank %lld of %lld\n", (long long)s->rank,
            (long long)wf_par_ranks(&job->mesh));
    fprintf(s->out, "  %-24s %14lld, of which this rank holds %lld\n", "parameters",
            (long long)plan.report.parameters, (long long)plan.report.share);
    wf_par_print_memory(s->out, &plan.report.memory);
    if (job->pipeline)
        fprintf(s->out, "  %-24s %14s on pipeline rank %d\n", "the fullest rank",
                wf_size_text(text, (double)peak.bytes), peak.rank);
    fputc('\n', s->out);
    wf_par_print_traffic(s->out, &plan.report);
    fprintf(s->out, "  %-24s %14.4g FLOPs a step\n", "work of the rank", plan.report.flops);
    if (*plan.inexact)
        fprintf(s->out, "%s\n", plan.inexact);
    return WF_OK;
}

/* ---- what a process has open ---- */

/* Opens the checkpoint to continue from: --resume, or the newest of --save. */
static wf_status open_checkpoint(wf_services *s, wf_error *error)
{
    const char *path = s->resume ? s->resume : s->save;
    char **paths = NULL;
    int64_t n = 0;

    if (!path || strcmp(path, "none") == 0)
        return WF_OK;
    if (wf_par_checkpoint_there(path)) {
        s->checkpoint = wf_par_checkpoint_open(path, error);
        return error->code;
    }
    if (wf_par_checkpoint_list(path, &paths, &n, error) == WF_OK && n)
        s->checkpoint = wf_par_checkpoint_open(paths[0], error);
    else if (error->code == WF_OK && s->resume)
        wf_error_set(error, WF_EIO, "--resume %s: there is no checkpoint", path);
    for (int64_t i = 0; i < n; i++)
        free(paths[i]);
    free((void *)paths);
    return error->code;
}

static wf_status open_log(wf_services *s, wf_error *error)
{
    const wf_par_options *o = &s->start.options;
    wf_run_axis axes[WF_MAX_AXES + 1] = {{NULL, 0}};
    char *settings = wf_flags_json(s->flags);
    int replicate = 1, shard = 1, n = 0;
    wf_run_log_options options = {.steps = s->program->job.steps,
                                  .path = s->log_jsonl,
                                  .continues = s->checkpoint != NULL,
                                  .tensorboard = s->tensorboard,
                                  .axes = axes,
                                  .transport = "threads",
                                  .settings = settings,
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

wf_status wf_services_open(wf_services *s, wf_error *error)
{
    const wf_par_job *job = &s->program->job;
    bool first = wf_launcher_detected().process <= 0;

    if (open_checkpoint(s, error) != WF_OK ||
        wf_par_job_pipeline(job, &s->pipeline, error) != WF_OK)
        return error->code;
    if (first && open_log(s, error) == WF_OK && s->trace)
        wf_timeline_open(s->trace, (int)wf_par_ranks(&job->mesh), &s->timeline, error);
    return error->code;
}

wf_status wf_services_close(wf_services *s, wf_error *error)
{
    wf_error timeline = {WF_OK, ""}, log = {WF_OK, ""};

    if (wf_timeline_close(s->timeline, &timeline) != WF_OK && error->code == WF_OK)
        wf_error_set(error, timeline.code, "%s", timeline.text);
    if (wf_run_log_close(s->log, &log) != WF_OK && error->code == WF_OK)
        wf_error_set(error, log.code, "%s", log.text);
    wf_par_checkpoint_close(s->checkpoint);
    wf_par_pipeline_free(s->pipeline);
    return error->code;
}

/* apps/gpt_train/launches.c - see the header. */
#include "apps/gpt_train/launches.h"
#include "apps/gpt_train/dry_run.h"
#include "apps/gpt_train/elastic_run.h"
#include "apps/gpt_train/recordings.h"
#include "apps/gpt_train/run_job.h"
#include "apps/gpt_train/train_loop.h"
#include "apps/program.h"
#include "parallel/recovery/signal_requests.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ELASTIC_GRACE_MS = 700 };

const char *app_launches_unless_auto(const char *choice)
{
    return strcmp(choice, "auto") == 0 ? NULL : choice;
}

static void warn(void *arg, const char *text)
{
    (void)arg;
    fprintf(stderr, "gpt_train: warning: %s; training goes on\n", text);
}

/* Opens the log, to which rank 0 alone writes, and changes nothing in it. */
wf_status app_launches_open_log(const app_options *o, bool continues,
                                const wf_launcher *launcher, const char *numerics,
                                wf_run_log **log, wf_error *error)
{
    const wf_par_options layout = app_setup_rank(o, false);
    wf_axis named[WF_MAX_AXES];
    wf_run_axis axes[WF_MAX_AXES];
    int n = wf_par_mesh_axes(&layout, named, error);
    wf_run_log_options options = {.steps = o->steps,
                                  .path = o->log_jsonl,
                                  .continues = continues,
                                  .tensorboard = o->tensorboard,
                                  .axes = axes,
                                  .axis_count = n,
                                  .numerics = numerics,
                                  .warning = warn,
                                  .transport = strcmp(o->transport, "auto") == 0
                                                   ? wf_launcher_transport(launcher)
                                                   : o->transport};
    json_t *json;
    char *settings;
    wf_status status = n ? WF_OK : error->code;

    *log = NULL;
    if (status == WF_OK)
        status = app_setup_peak(o, &options.peak, error);
    if (status != WF_OK || launcher->process > 0)
        return status;
    for (int i = 0; i < n; i++)
        axes[i] = (wf_run_axis){named[i].name, named[i].size};
    json = app_options_json(o);
    options.settings = settings = json ? json_dumps(json, 0) : NULL;
    wf_run_log_console(&options, stdout);
    status = settings ? wf_run_log_open(&options, log, error)
                      : wf_error_set(error, WF_ENOMEM, "no memory for the options as JSON");
    free(settings);
    json_decref(json);
    return status;
}

/* A failure of the ranks, in one process of all; and where their recorders are. */
static void report_failure(const app_train_job *job, const wf_error *error)
{
    char directory[400], more[500] = "", text[2 * sizeof(wf_error)];
    wf_error told = *error;

    wf_elastic_lost(job->elastic, 0);
    if (job->elastic->into && !job->options->recovery_dir)
        return; /* the next launch of this process reports it, or it comes again */
    app_recordings_directory(job->options, directory, sizeof directory);
    if (wf_elastic_whole(job->elastic))
        snprintf(more, sizeof more, "; the run had come to its end");
    else if (wf_recorder_written() > 0)
        snprintf(more, sizeof more, "; recorder_diff %s/rank-*.rec tells more", directory);
    if (told.code == WF_ENOMEM)
        app_plan_explain(job->options, &told);
    app_program_flush();
    fprintf(stderr, "gpt_train: %s%s\n", app_program_format(told.text, text, sizeof text),
            more);
}

static void report(const wf_error *error, void *launch)
{
    report_failure(((const app_launch *)launch)->job, error);
}

/* Where other processes do not come to their end. */
static void exit_now(wf_status status)
{
    _exit(wf_par_exit_status(status));
}

/* Launches the ranks; a failure also says where their recorders are. A wf_elastic_launch. */
static wf_status train(const void *options, void *arg, wf_launch_end *end, wf_error *error)
{
    const app_options *o = options;
    app_train_job *job = arg;
    app_launch *l = malloc(sizeof *l);
    wf_job *alike = app_run_job(o, job);
    bool several = job->launcher->processes > 1;
    wf_place_axis axis[WF_MAX_AXES];
    wf_error unplanned; /* what cannot be planned cannot be run, and says so then */
    int planned = several ? dry_run_axes(o, axis, &unplanned) : 0;
    const wf_launch_options launch = {.ranks = (int)app_options_ranks(o),
                                      .threads = o->bind_ranks ? (int)o->threads_per_rank : 0,
                                      .launcher = app_launches_unless_auto(o->launcher),
                                      .transport = app_launches_unless_auto(o->transport),
                                      .n_axes = planned,
                                      .axis = axis,
                                      .order = app_setup_rank_order(o),
                                      .stall_timeout = o->stall_timeout,
                                      .job = alike,
                                      .grace = o->recovery_dir ? ELASTIC_GRACE_MS * 1e-3 : 0,
                                      .exit_now = exit_now,
                                      .report = report,
                                      .end = end};
    char directory[400];

    app_recordings_directory(o, directory, sizeof directory);
    if (wf_launcher_detected().local_process == 0)
        app_recordings_forget(o);
    if (!o->save && wf_launcher_detected().processes > 1)
        wf_signal_requests_linger();
    if (!l) {
        wf_error_set(error, WF_ENOMEM, "no memory for a launch");
    } else if (wf_recorder_files(directory, true, error) == WF_OK) {
        app_launch_describe(l, o, job);
        wf_launch(&launch, app_train_rank, l, error);
    }
    wf_job_free(alike);
    if (!end->stuck) /* else ranks use it */
        free(l);
    return error->code;
}

/* Those of this run too. */
static wf_status find_checkpoints(const app_options *o, wf_resume *resume, wf_error *error)
{
    wf_resume_close(resume);
    if (app_resume_open(o, resume, error) == WF_OK && !resume->count)
        wf_error_set(error, WF_EDATA, "there is no checkpoint to go on from");
    return error->code;
}

/* A run is worth more than its timeline: a disk that is full is said, and ends nothing. */
void app_launches_close_timeline(wf_timeline *timeline)
{
    wf_error error = {WF_OK, ""};

    if (wf_timeline_close(timeline, &error) != WF_OK)
        fprintf(stderr, "gpt_train: warning: %s; the run goes on without its timeline\n",
                error.text);
}

/* For another mesh: what follows from it is made anew, and the log says so. */
static wf_status prepare_again(const void *options, void *arg, wf_error *error)
{
    const app_options *o = options;
    app_train_job *job = arg;

    if (!job->elastic->left_behind)
        wf_par_pipeline_free(job->pipeline);
    job->pipeline = NULL;
    job->options = o;
    wf_saving_failed(job->saved, false);
    if (job->elastic->incomplete && find_checkpoints(o, job->resume, error) != WF_OK)
        return error->code;
    app_launches_close_timeline(job->timeline);
    if (wf_run_log_close(job->log, error) == WF_OK &&
        app_setup_pipeline(o, &job->pipeline, error) == WF_OK &&
        app_setup_pace(o, &job->paced, error) == WF_OK)
        app_launches_open_log(o, true, job->launcher, job->numerics, &job->log, error);
    else
        job->log = NULL;
    job->timeline = NULL;
    return error->code;
}

static wf_status train_elastic(const app_options *o, app_train_job *job, wf_launch_end *end,
                               wf_error *error)
{
    const wf_elastic_run run = {.asked = o,
                                .meshes = &app_elastic_meshes,
                                .steps = o->steps,
                                .rejoin_after = o->rejoin_after,
                                .elastic = job->elastic,
                                .launch = train,
                                .prepare = prepare_again,
                                .job = job};
    wf_status status;

    if (o->recovery_dir) { /* one process too may be what is left of several */
        wf_signal_requests_outlast(true);
        status = wf_elastic_train_process(&run, end, error);
        wf_signal_requests_outlast(false);
        return status;
    }
    status = wf_elastic_train(&run, end, error);
    job->options = o;
    if (status != WF_OK)
        report_failure(job, error);
    end->reported = status != WF_OK;
    return status;
}
wf_status app_launches_run(const app_options *o, app_train_job *job, wf_launch_end *end,
                           wf_error *error)
{
    return o->elastic ? train_elastic(o, job, end, error) : train(o, job, end, error);
}

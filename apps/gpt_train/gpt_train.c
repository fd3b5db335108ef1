/* apps/gpt_train/gpt_train.c - trains a GPT on text or token ids, on any mesh of ranks: see gpt_train --help. */
#include "apps/gpt_train/calibrate.h"
#include "parallel/recovery/elastic_files.h"
#include "parallel/checkpoint/folder_lock.h"
#include "apps/gpt_train/dry_run.h"
#include "apps/gpt_train/elastic_run.h"
#include "apps/gpt_train/rank_parts.h"
#include "apps/gpt_train/recovery_job.h"
#include "apps/program.h"
#include "apps/gpt_train/recordings.h"
#include "apps/gpt_train/run_job.h"
#include "apps/gpt_train/setup.h"
#include "apps/gpt_train/train_loop.h"
#include "parallel/recovery/signal_requests.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { ELASTIC_GRACE_MS = 700 };

static const char *unless_auto(const char *choice)
{
    return strcmp(choice, "auto") == 0 ? NULL : choice;
}

static void warn(void *arg, const char *text)
{
    (void)arg;
    fprintf(stderr, "gpt_train: warning: %s; training goes on\n", text);
}

/* Opens the log, to which rank 0 alone writes, and changes nothing in it. */
static wf_status open_log(const app_options *o, bool continues, const wf_launcher *launcher,
                          const char *numerics, wf_run_log **log, wf_error *error)
{
    wf_run_axis axes[] = {{"pp", o->pp}, {"replicate", 1}, {"shard", 1}, {"tp", o->tp}};
    const wf_par_options layout = app_setup_rank(o, false);
    int replicate, shard;
    wf_run_log_options options = {.steps = o->steps,
                                  .path = o->log_jsonl,
                                  .continues = continues,
                                  .tensorboard = o->tensorboard,
                                  .axes = axes,
                                  .axis_count = 4,
                                  .numerics = numerics,
                                  .warning = warn,
                                  .transport = strcmp(o->transport, "auto") == 0
                                                   ? wf_launcher_transport(launcher)
                                                   : o->transport};
    json_t *json;
    char *settings;
    wf_status status = wf_par_axes(&layout, &replicate, &shard, error);

    *log = NULL;
    if (status == WF_OK)
        status = app_setup_peak(o, &options.peak, error);
    if (status != WF_OK || launcher->process > 0)
        return status;
    axes[1].size = replicate;
    axes[2].size = shard;
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
static void report(const wf_error *error, void *arg)
{
    const app_train_job *job = arg;
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
    wf_job *alike = app_run_job(o, job);
    bool several = job->launcher->processes > 1;
    wf_place_axis axis[DRY_RUN_AXES];
    wf_error unplanned; /* what cannot be planned cannot be run, and says so then */
    bool planned = several && dry_run_axes(o, axis, &unplanned) == WF_OK;
    const wf_launch_options launch = {.ranks = (int)app_options_ranks(o),
                                      .threads = o->bind_ranks ? (int)o->threads_per_rank : 0,
                                      .launcher = unless_auto(o->launcher),
                                      .transport = unless_auto(o->transport),
                                      .n_axes = planned ? DRY_RUN_AXES : 0,
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
    if (wf_recorder_files(directory, true, error) == WF_OK)
        wf_launch(&launch, app_train_rank, job, error);
    wf_job_free(alike);
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
static void close_timeline(wf_timeline *timeline)
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
    close_timeline(job->timeline);
    if (wf_run_log_close(job->log, error) == WF_OK &&
        app_setup_pipeline(o, &job->pipeline, error) == WF_OK &&
        app_setup_pace(o, &job->paced, error) == WF_OK)
        open_log(o, true, job->launcher, job->numerics, &job->log, error);
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
        report(error, job);
    end->reported = status != WF_OK;
    return status;
}

/* Reads the state that this host has kept. */
static wf_status load_left(const app_options *o, app_train_job *job, wf_error *error)
{
    char *text = o->recovery_dir ? app_recovery_job(o, job->data, error) : NULL;

    return text ? wf_elastic_files_load(job->elastic, text, error) : error->code;
}

/* Where something goes wrong in one process of several, the others hear of it when they meet. */
static wf_status launch(app_options *o, app_train_job *job, wf_resume *resume,
                        const wf_launcher *launcher, wf_launch_end *end, wf_error *error)
{
    wf_error *failed = &job->failed;

    job->launcher = launcher;
    if (app_recordings_check(o, failed) == WF_OK &&
        app_job_open_data(o, &job->data, failed) == WF_OK &&
        app_sample_prompt_open(o, !job->data || wf_dataset_is_text(job->data), &job->prompt,
                               failed) == WF_OK &&
        app_exam_open(o, !job->data || wf_dataset_is_text(job->data), &job->exam, failed) ==
            WF_OK &&
        app_saving_prepare(o, launcher, resume, job->saved, failed) == WF_OK &&
        app_setup_pipeline(o, &job->pipeline, failed) == WF_OK &&
        app_setup_pace(o, &job->paced, failed) == WF_OK &&
        app_memory_check(o, launcher, failed) == WF_OK && load_left(o, job, failed) == WF_OK &&
        app_run_numerics(o, job->numerics, failed) == WF_OK &&
        rank_parts_read(o, job->numerics, &job->replay, &job->flip, failed) == WF_OK &&
        open_log(o, app_resume_continues(o), launcher, job->numerics, &job->log, failed) ==
            WF_OK &&
        o->trace && launcher->process == 0)
        wf_timeline_open(o->trace, (int)app_options_ranks(o), &job->timeline, failed);
    if (job->failed.code != WF_OK && launcher->processes == 1)
        return wf_error_set(error, job->failed.code, "%s", job->failed.text);
    return o->elastic ? train_elastic(o, job, end, error) : train(o, job, end, error);
}

/* Warns, once, where a process has all ranks of a stage: neither buddies nor replicas of it are elsewhere. */
static void warn_of_stages(const app_options *o, const wf_launcher *launcher)
{
    int64_t each = app_options_ranks(o) / launcher->processes;

    if (launcher->process == 0 && launcher->processes > 1 && o->pp > 1 &&
        o->dp * o->tp <= each && !o->given[APP_OPTION_rank_order] &&
        !wf_elastic_files_restarts())
        fprintf(
            stderr,
            "gpt_train: warning: all %" PRId64 " ranks of a stage are in one process, so that "
            "a host that is lost takes its part of the model along, and the run goes on from "
            "a checkpoint: use a smaller --pp, or more hosts than stages\n",
            o->dp * o->tp);
}

/* Of an elastic run fewer processes may have been started than its mesh is for. */
static wf_status fit_processes(app_options *o, const wf_launcher *launcher, wf_error *error)
{
    int processes = launcher->processes;

    if (!o->recovery_dir || o->fit_nodes)
        return WF_OK;
    if (app_elastic_processes(o, &processes, error) == WF_OK && processes < launcher->processes)
        wf_error_set(error, WF_EINVAL,
                     "%d processes are started, and this run can use %d of them: start so many "
                     "(--fit-nodes tells)",
                     launcher->processes, processes);
    else if (error->code == WF_OK)
        warn_of_stages(o, launcher);
    return error->code;
}

static wf_status tell_fit(app_options *o, wf_error *error)
{
    int processes = (int)o->fit_nodes;

    if (app_elastic_processes(o, &processes, error) == WF_OK)
        printf("%d\n", processes);
    return error->code;
}

static wf_status run(app_options *o, wf_saving_result *result, wf_launch_end *end,
                     bool *launched, wf_error *error)
{
    wf_resume resume = {.count = 0};
    wf_elastic elastic = WF_ELASTIC("gpt_train", o->recovery_dir);
    app_train_job job = {.options = o,
                         .resume = &resume,
                         .saved = result,
                         .failed = {WF_OK, ""},
                         .elastic = &elastic};
    wf_launcher launcher = wf_launcher_detected();
    wf_error closing = {WF_OK, ""};
    wf_status status = WF_OK;
    app_plan plan;

    if (app_run_moves_nothing(o) && end->reported)
        return WF_OK;
    if (app_run_moves_nothing(o))
        launcher = (wf_launcher){.kind = "threads", .processes = 1, .local = 1};
    else if (fit_processes(o, &launcher, error) != WF_OK)
        status = error->code;
    else
        status = wf_launcher_choose(unless_auto(o->launcher), unless_auto(o->transport),
                                    (int)app_options_ranks(o), &launcher, error);
    if (status == WF_OK && o->elastic && launcher.processes > 1 && !o->recovery_dir)
        status = wf_error_set(error, WF_EINVAL,
                              "--elastic on of %d processes keeps what they hold in memory of "
                              "their hosts: give --recovery-dir DIR, as /dev/shm/weft-run1",
                              launcher.processes);
    if (status == WF_OK)
        status = app_choose_device(o, error);
    if (status == WF_OK)
        status = app_choose_threads(o, &launcher, error);
    if (status == WF_OK && !o->plan) /* a plan has its own choice for each strategy */
        app_choose_sums(o, launcher.process <= 0 && !o->fit_nodes);
    if (status == WF_OK && o->fit_nodes)
        return tell_fit(o, error);
    if (status == WF_OK && (o->plan || o->calibrate))
        return o->plan ? wf_plan_print(app_plan_of(o, &plan), stdout, error)
                       : calibrate_run(o, stdout, error);
    *launched = *launched || status == WF_OK;
    if (status == WF_OK)
        status = launch(o, &job, &resume, &launcher, end, error);
    if (end->stuck) /* all of it is in use */
        return status;
    if (status == WF_ENOMEM && !end->reported)
        app_plan_explain(o, error);
    close_timeline(job.timeline);
    if (job.log && wf_run_log_close(job.log, &closing) != WF_OK && status == WF_OK)
        status = wf_error_set(error, closing.code, "%s", closing.text);
    if (status != WF_OK && result->made)
        wf_folder_withdraw(o->save);
    wf_par_pipeline_free(job.pipeline);
    wf_par_snapshot_close(elastic.from); /* left by a start that failed */
    wf_dataset_close(job.data);
    app_sample_prompt_close(&job.prompt);
    app_exam_close(&job.exam);
    wf_replay_close(job.replay);
    wf_resume_close(&resume);
    free(elastic.job);
    return status;
}

/* Whether what is printed was wanted; else it tells how training went, which has its log. */
static bool is_asked(const app_options *o)
{
    return app_options_asks(o) || o->plan || o->steps == 0 || o->sample || o->show_layout ||
           o->comm_report || o->print_config;
}

int main(int argc, char **argv)
{
    wf_error error = {WF_OK, ""};
    app_options options;
    wf_saving_result saved = {.failed = false, .lock = -1};
    wf_launch_end end = {.reported = wf_launcher_reports_elsewhere()};
    bool launched; /* the other processes know of this one */
    wf_status status;
    int result;

    app_program_begin();
    wf_signal_requests_write_errors();
    wf_recorder_crashes(STDERR_FILENO);
    status = app_options_parse(argc, argv, &options, &error);
    saved.failed = options.bad_checkpoint;
    if (status == WF_OK && !app_options_asks(&options) && !end.reported && !options.fit_nodes)
        status = app_options_prepare_outputs(&options, &error);
    launched = status != WF_OK || app_run_task(&options) != NULL;
    if (launched)
        status = app_run_meet(&options, &end, &error);
    if (status == WF_OK && !app_options_asks(&options) && !end.reported)
        status = app_options_show(&options, stdout, &error);
    if (status == WF_OK && !app_options_asks(&options) && !options.print_config)
        status = run(&options, &saved, &end, &launched, &error);
    else if (status == WF_OK && !end.reported && !options.print_config)
        app_options_answer(&options, stdout);
    if (status != WF_OK && !launched)
        app_run_meet(&options, &end, &error);
    if (status != WF_OK)
        app_program_flush();
    if (status != WF_OK && !end.reported)
        app_program_error("gpt_train", &error);
    else if (status != WF_OK) /* launchers end all when one has: let the other say why */
        nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
    result = wf_saving_exit_status(status, &saved);
    if (result == 0 && is_asked(&options))
        result = app_program_end("gpt_train", result);
    if (end.stuck) /* ranks still run, and may never end */
        _exit(result);
    app_options_free(&options);
    return result;
}

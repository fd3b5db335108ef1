/* apps/gpt_train/gpt_train.c - trains a GPT on text or token ids, on any mesh of ranks: see
   gpt_train --help. Flags become a job, and the job a run of this process. */
#include "apps/gpt_train/calibrate.h"
#include "apps/gpt_train/job.h"
#include "apps/gpt_train/task.h"
#include "apps/program.h"
#include "mesh/health/flight_recorder.h"
#include "parallel/recovery/signal_requests.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Prints how many of --fit-nodes processes would be used. */
static wf_status print_fit(app_job *job, wf_process *p, wf_error *error)
{
    int processes = (int)job->options->fit_nodes;

    if (wf_process_fit(p, &processes, error) == WF_OK)
        printf("%d\n", processes);
    return error->code;
}

/* Plans, measures or runs. launched: the other processes know of this one. */
static wf_status work(app_job *job, wf_process *p, wf_launch_end *end, bool *launched,
                      wf_error *error)
{
    app_options *o = job->options;

    if (app_job_moves_nothing(o) && end->reported)
        return WF_OK;
    if (app_job_prepare(job, p, error) != WF_OK) {
        /* nothing runs */
    } else if (o->fit_nodes) {
        print_fit(job, p, error);
    } else if (o->plan) {
        wf_plan_print(app_job_request(job), stdout, error);
    } else if (o->calibrate) {
        app_calibrate(job, stdout, error);
    } else {
        *launched = true;
        app_job_open(job, error);
        if (error->code == WF_OK)
            app_job_process(job, p, error);
        wf_process_run(p, end, error);
    }
    if (!end->stuck)
        app_job_close(job);
    return error->code;
}

/* Returns true where what is printed was asked for; else it reports how training went, which
   has its log. */
static bool is_asked(const app_options *o)
{
    return app_options_asks(o) || o->plan || o->steps == 0 || o->sample || o->show_layout ||
           o->comm_report || o->print_config;
}

int main(int argc, char **argv)
{
    wf_error error = {WF_OK, ""};
    app_options options;
    app_job job = {.options = &options};
    wf_process process = WF_PROCESS("gpt_train");
    wf_launch_end end = {.reported = wf_launcher_reports_elsewhere()};
    bool launched;
    int result;

    app_program_begin();
    wf_signal_requests_write_errors();
    wf_recorder_crashes(STDERR_FILENO);
    app_options_parse(argc, argv, &options, &error);
    process.saved.failed = options.bad_checkpoint;
    if (error.code == WF_OK && !app_options_asks(&options) && !end.reported &&
        !options.fit_nodes)
        app_options_prepare_outputs(&options, &error);
    launched = error.code != WF_OK || app_task(&options);
    if (launched)
        app_task_meet(&options, &end, &error);
    if (error.code == WF_OK && !app_options_asks(&options) && !end.reported)
        app_options_show(&options, stdout, &error);
    if (error.code == WF_OK && !app_options_asks(&options) && !options.print_config)
        work(&job, &process, &end, &launched, &error);
    else if (error.code == WF_OK && !end.reported && !options.print_config)
        app_options_answer(&options, stdout);
    if (error.code != WF_OK && !launched)
        app_task_meet(&options, &end, &error);
    result = wf_process_end(&process, &end, &error);
    if (result == 0 && is_asked(&options))
        result = app_program_end("gpt_train", result);
    app_options_free(&options);
    return result;
}

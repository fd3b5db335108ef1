/* parallel/program/program.c - wf_par_run: flags, then help, a plan or a run; see program.h. */
#include "mesh/transport/launcher.h"
#include "parallel/checkpoint/folder_lock.h"
#include "parallel/program/services_internal.h"
#include <inttypes.h>
#include <stdio.h>

/* Values that a process may have of its own. */
static const char *const own[] = {"log-jsonl",       "tensorboard", "trace",
                                  "memory-timeline", "config",      "stall-timeout",
                                  "recovery-dir",    NULL};

static wf_status print_fit(wf_services *s, wf_error *error)
{
    int processes = (int)s->fit_nodes;

    if (wf_services_fit(s, &processes, error) == WF_OK)
        fprintf(s->out, "%d\n", processes);
    return error->code;
}

/* Answers flags that end the program without ranks. Returns whether one was given; its status
   is in the error. */
static bool answers(wf_services *s, wf_error *error)
{
    if (!s->help && !s->plan && !s->fit_nodes)
        return false;
    if (s->help)
        wf_services_help(s);
    else if (s->fit_nodes)
        print_fit(s, error);
    else if (wf_launcher_detected().process <= 0) /* one process of all prints */
        wf_services_plan(s, error);
    fflush(s->out);
    return true;
}

/* Opens, runs and reports. Returns the exit status. */
static int run(wf_services *s, wf_error *error)
{
    wf_launch_end end = {.reported = false};

    if (error->code == WF_OK)
        wf_services_open(s, error);
    s->start.alike = wf_job_new();
    wf_flags_job(s->flags, own, s->start.alike);
    wf_services_run(s, &end, error);
    if (error->code != WF_OK && !end.stuck && s->saved.made)
        wf_folder_withdraw(s->save);
    return wf_par_start_end(&s->start, &end, error,
                            wf_saving_exit_status(error->code, &s->saved));
}

int wf_par_run(int argc, char **argv, wf_par_program *program)
{
    const char *name = wf_par_program_name(argc, argv);
    wf_services s = {.program = program,
                     .out = stdout,
                     .saved = {.lock = -1},
                     .elastic = WF_ELASTIC(name, NULL)};
    wf_error error = {WF_OK, ""}, closed = {WF_OK, ""};
    int status;

    s.start.program = name;
    s.start.stall_timeout = WF_PAR_STALL_TIMEOUT;
    wf_flags_report(wf_flags_find, s.flags);
    if (wf_services_read(&s, argc, argv, &error) == WF_OK && !s.help && program->prepare)
        program->prepare(program, &error);
    s.elastic.recovery_dir = s.recovery_dir;
    if (error.code == WF_OK && answers(&s, &error)) {
        if (error.code != WF_OK)
            wf_par_report_line(name, "%s", error.text);
        status = wf_par_exit_status(error.code);
    } else {
        status = run(&s, &error);
    }
    if (wf_services_close(&s, &closed) != WF_OK && status == 0) {
        wf_par_report_line(name, "%s", closed.text);
        status = wf_par_exit_status(closed.code);
    }
    if (program->done)
        program->done(program);
    wf_flags_report(NULL, NULL);
    return status;
}

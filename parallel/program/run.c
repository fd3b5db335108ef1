/* parallel/program/run.c - wf_par_run: flags, then help, a plan or a run; see program.h. */
#include "mesh/transport/launcher.h"
#include "parallel/program/services_internal.h"
#include <stdio.h>

/* Values that a process may have of its own. */
static const char *const own[] = {"log-jsonl", "tensorboard",   "trace",
                                  "config",    "stall-timeout", NULL};

/* Flags that end the program without ranks. Returns whether one was given; its status is in the error. */
static bool answers(wf_services *s, wf_error *error)
{
    if (!s->help && !s->plan)
        return false;
    if (s->help)
        wf_services_help(s);
    else if (wf_launcher_detected().process <= 0) /* one process of all prints */
        wf_services_plan(s, error);
    fflush(s->out);
    return true;
}

int wf_par_run(int argc, char **argv, wf_par_program *program)
{
    wf_services s = {.program = program, .out = stdout};
    wf_error error = {WF_OK, ""}, closed = {WF_OK, ""};
    wf_launch_end end;
    int status;

    s.start.program = wf_par_program_name(argc, argv);
    s.start.function = wf_services_train;
    s.start.arg = &s;
    s.start.stall_timeout = WF_PAR_STALL_TIMEOUT;
    if (wf_services_read(&s, argc, argv, &error) == WF_OK && !s.help && program->prepare)
        program->prepare(program, &error);
    if (error.code == WF_OK && answers(&s, &error)) {
        if (error.code != WF_OK)
            fprintf(stderr, "%s: %s\n", s.start.program, error.text);
        status = wf_par_exit_status(error.code);
    } else {
        if (error.code == WF_OK)
            wf_services_open(&s, &error);
        s.start.alike = wf_job_new();
        wf_flags_job(s.flags, own, s.start.alike);
        wf_par_start_launch(&s.start, &end, &error);
        status = wf_par_start_end(&s.start, &end, &error, wf_par_exit_status(error.code));
    }
    if (wf_services_close(&s, &closed) != WF_OK && status == 0) {
        fprintf(stderr, "%s: %s\n", s.start.program, closed.text);
        status = wf_par_exit_status(closed.code);
    }
    if (program->done)
        program->done(program);
    return status;
}

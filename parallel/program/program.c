/* parallel/program/program.c - wf_par_run: flags, then help, a plan or a run; see program.h. */
#include "parallel/program/services_internal.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static wf_status print_fit(wf_services *s, wf_error *error)
{
    int processes = (int)s->fit_nodes;

    if (wf_process_fit(&s->process, &processes, error) == WF_OK)
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
    else if (s->process.launcher.process <= 0) /* one process of all prints */
        wf_services_plan(s, error);
    fflush(s->out);
    return true;
}

int wf_par_run(int argc, char **argv, wf_par_program *program)
{
    const char *name = wf_par_program_name(argc, argv);
    wf_services s = {.program = program, .out = stdout, .process = WF_PROCESS(name)};
    wf_error error = {WF_OK, ""};
    wf_launch_end end;
    int status;

    s.start.program = name;
    wf_flags_report(wf_flags_find, s.flags);
    if (wf_services_read(&s, argc, argv, &error) == WF_OK && !s.help && program->prepare)
        program->prepare(program, &error);
    if (error.code == WF_OK && !s.help && !s.plan)
        wf_services_describe(&s, &error);
    if (error.code == WF_OK && answers(&s, &error)) {
        if (error.code != WF_OK)
            wf_par_report_line(name, "%s", error.text);
        status = wf_par_exit_status(error.code);
    } else {
        if (error.code == WF_OK)
            wf_process_fit_started(&s.process, &error);
        wf_process_run(&s.process, &end, &error);
        status = wf_process_end(&s.process, &end, &error);
    }
    wf_services_close_training(&s);
    free(s.settings);
    if (program->done)
        program->done(program);
    wf_flags_report(NULL, NULL);
    return status;
}

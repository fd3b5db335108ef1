/* parallel/main.c - a program's main: the only code of the library that prints and exits. */
#include "parallel/main_internal.h"
#include "mesh/health/flight_recorder.h"
#include "mesh/transport/launcher.h"
#include "parallel/parallel_internal.h"
#include "parallel/flag_names.h"
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MOST_SECONDS = 1000000 };

typedef wf_par_start job;

void wf_par_report_inexact(wf_par *par)
{
    const char *inexact = par->ctx ? wf_par_inexact(par) : NULL;

    if (!inexact || par->reported_inexact || wf_context_dry_run(par->ctx) ||
        wf_context_rank(par->ctx) != par->inexact_rank)
        return;
    par->reported_inexact = true;
    fprintf(stderr, "%s\n", inexact);
}

void wf_par_print_warning(void *self, const char *text)
{
    const wf_context *ctx = ((const wf_par *)self)->ctx;
    const char *path = wf_context_path(ctx);

    if (wf_context_rank(ctx) == 0 && !wf_context_dry_run(ctx))
        fprintf(stderr, "weft: warning: %s%s%s\n", path ? path : "", path && *path ? ": " : "",
                text);
}

void wf_par_report_line(const char *program, const char *format, ...)
{
    char text[4096], spelled[4608];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(stderr, "%s%s%s\n", program ? program : "", program ? ": " : "",
            wf_flags_reported(text, spelled, sizeof spelled));
}

void wf_par_warn(void *program, const char *text)
{
    fprintf(stderr, "%s: warning: %s\n", program ? (const char *)program : "weft", text);
}

int wf_par_exit_status(wf_status status)
{
    switch (status) {
    case WF_OK:
        return 0;
    case WF_EINVAL:
    case WF_EUNSUPPORTED:
        return 2;
    case WF_EIO:
    case WF_EDATA:
        return 3;
    case WF_ELOST:
        return 4;
    case WF_EMISMATCH:
        return 5;
    case WF_ETIMEOUT:
        return 6;
    case WF_ENONFINITE:
        return 7;
    default:
        return 1;
    }
}

static wf_status run_rank(wf_rank *rank, void *arg)
{
    const job *j = arg;
    wf_par *par = wf_par_open(rank, &j->options, &rank->error);
    wf_status status;

    if (!par)
        return rank->error.code;
    if (rank->warning && rank->index == 0 && !j->quiet)
        fprintf(stderr, "%s: warning: %s\n", j->program, rank->warning);
    status = j->function(par, j->arg);
    if (wf_context_status(wf_par_context(par)) != WF_OK)
        rank->error = *wf_context_error(wf_par_context(par)); /* the first failure */
    else if (status != WF_OK && rank->error.code == WF_OK)
        wf_error_set(&rank->error, status,
                     "rank %d: its function returned status %d, and no error is in its context",
                     rank->index, (int)status);
    wf_par_close(par);
    return rank->error.code;
}

void wf_par_flush(void)
{
    struct pollfd console = {.fd = STDOUT_FILENO, .events = POLLOUT};

    if (ftrylockfile(stdout))
        return;
    if (poll(&console, 1, 0) > 0)
        fflush(stdout);
    funlockfile(stdout);
}

/* Reports a failure of the ranks, in one process of all. */
static void report(const wf_error *error, void *arg)
{
    const job *j = arg;

    wf_par_flush();
    if (j->report)
        j->report(error, j->arg);
    else
        wf_par_report_line(j->program, "%s", error->text);
}

/* The size that an argument --NAME sets: of an axis of the program's own, or tp and dp. NULL:
   none. */
static int *size_of(job *j, const char *argument)
{
    if (strncmp(argument, "--", 2) != 0)
        return NULL;
    for (int i = 0; j->options.axes && j->axis[i].name; i++)
        if (strcmp(argument + 2, j->axis[i].name) == 0)
            return &j->axis[i].size;
    if (j->options.axes)
        return NULL;
    return strcmp(argument, "--tp") == 0   ? &j->options.tp
           : strcmp(argument, "--dp") == 0 ? &j->options.dp
           : strcmp(argument, "--cp") == 0 ? &j->options.cp
                                           : NULL;
}

static wf_status unknown(const job *j, const char *argument, wf_error *error)
{
    char names[256] = "";

    for (int i = 0; j->options.axes && j->axis[i].name; i++)
        wf_par_add_name(names, sizeof names, j->axis[i].name);
    return wf_error_set(error, WF_EINVAL,
                        "unknown argument %s: there is --AXIS N for each axis of the mesh, %s, "
                        "and --stall-timeout SECONDS",
                        argument, j->options.axes ? names : "tp, dp");
}

static wf_status read_timeout(job *j, const char *text, wf_error *error)
{
    char *end = NULL;
    double seconds = text ? strtod(text, &end) : -1;

    if (!text || end == text || *end || !(seconds >= 0 && seconds <= MOST_SECONDS))
        return wf_error_set(error, WF_EINVAL,
                            "--stall-timeout %s: give it seconds from 0, which is never, to %d",
                            text ? text : "", MOST_SECONDS);
    j->launch.stall_timeout = seconds;
    return WF_OK;
}

static wf_status read_argument(job *j, const char *name, const char *text, wf_error *error)
{
    int *size = size_of(j, name);
    char *end = NULL;
    long value = size && text ? strtol(text, &end, 10) : 0;

    if (strcmp(name, "--stall-timeout") == 0)
        return read_timeout(j, text, error);
    if (!size)
        return unknown(j, name, error);
    if (value < 1 || value > WF_MAX_RANKS || *end)
        return wf_error_set(error, WF_EINVAL, "%s %s: give it a number from 1 to %d", name,
                            text ? text : "", WF_MAX_RANKS);
    *size = (int)value;
    return WF_OK;
}

/* Copies the options, and puts sizes that are given in them. */
static wf_status read_arguments(int argc, char **argv, job *j, wf_error *error)
{
    if (wf_par_start_axes(j, error) != WF_OK)
        return error->code;
    for (int i = 1; i < argc; i += 2)
        if (read_argument(j, argv[i], i + 1 < argc ? argv[i + 1] : NULL, error) != WF_OK)
            return error->code;
    return WF_OK;
}

const char *wf_par_program_name(int argc, char **argv)
{
    const char *slash = argc > 0 ? strrchr(argv[0], '/') : NULL;

    return slash ? slash + 1 : argc > 0 ? argv[0] : "weft";
}

/* Adds the mesh to the job, which the processes must have alike before their ranks meet.
   Trainers compare what else has to agree. */
static void add_mesh(const job *j, wf_job *made)
{
    const wf_par_options *o = &j->options;

    for (int i = 0; o->axes && j->axis[i].name; i++) {
        char name[WF_AXIS_NAME + 2];

        snprintf(name, sizeof name, "--%s", j->axis[i].name);
        wf_job_add(made, name, "%d", j->axis[i].size);
    }
    if (o->axes)
        return;
    wf_job_add(made, "--tp", "%d", o->tp);
    wf_job_add(made, "--dp", "%d", o->dp);
    wf_job_add(made, "pp", "%d", o->pp);
    wf_job_add(made, "ep", "%d", o->ep);
    wf_job_add(made, "etp", "%d", o->etp);
    wf_job_add(made, "--cp", "%d", o->cp ? o->cp : 1);
    wf_job_add(made, "cp_form", "%s", o->cp_form ? o->cp_form : "auto");
    wf_job_add(made, "strategy", "%s", o->strategy ? o->strategy : WF_PAR_STRATEGY);
    wf_job_add(made, "groups", "%d of %d", o->dp_replicate, o->shard_group_size);
}

static void exit_now(wf_status status)
{
    _exit(wf_par_exit_status(status));
}

wf_status wf_par_start_axes(wf_par_start *j, wf_error *error)
{
    const wf_axis *axes = j->options.axes;
    int n = 0;

    while (axes && axes[n].name)
        n++;
    if (n > WF_MAX_AXES)
        return wf_error_set(error, WF_EINVAL, "a mesh of %d axes: it has %d at most", n,
                            WF_MAX_AXES);
    if (axes) {
        memcpy(j->axis, axes, (size_t)n * sizeof *axes);
        j->options.axes = j->axis;
    }
    return WF_OK;
}

wf_status wf_par_start_launch(wf_par_start *j, wf_launch_end *end, wf_error *error)
{
    wf_launch_options launch = j->launch;
    int64_t ranks = wf_par_ranks(&j->options);
    wf_job *alike = j->alike;

    *end = (wf_launch_end){.reported = wf_launcher_reports_elsewhere()};
    j->alike = NULL;
    if (!j->is_embedded) {
        wf_recorder_crashes(STDERR_FILENO);
        launch.exit_now = exit_now;
    }
    launch.report = report;
    launch.end = end;
    launch.ranks = ranks < INT_MAX ? (int)ranks : INT_MAX;
    if (error->code == WF_OK) {
        if (!alike)
            add_mesh(j, alike = wf_job_new());
        launch.job = alike;
        wf_launch(&launch, run_rank, j, error);
    } else {
        end->reported = wf_launch_meet(NULL, error);
    }
    wf_job_free(alike); /* the launch has a copy */
    return error->code;
}

int wf_par_main_end(const char *program, const wf_launch_end *end, const wf_error *error,
                    int status)
{
    if (error->code != WF_OK || end->stuck)
        wf_par_flush();
    if (error->code != WF_OK && !end->reported)
        wf_par_report_line(program, "%s", error->text);
    else if (error->code != WF_OK) /* launchers end all when one has: let the other say why */
        nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
    if (end->stuck) /* ranks still run, and may never end */
        _exit(status);
    return status;
}

int wf_par_main(int argc, char **argv, const wf_par_options *options,
                wf_status (*function)(wf_par *par, void *arg), void *arg)
{
    wf_par_start j = {.program = wf_par_program_name(argc, argv),
                      .options = options ? *options : (wf_par_options){.tp = 1},
                      .function = function,
                      .arg = arg,
                      .launch = {.stall_timeout = WF_PAR_STALL_TIMEOUT}};
    wf_error error = {WF_OK, ""};
    wf_launch_end end;

    if (!options || !function)
        wf_error_set(&error, WF_EINVAL, "wf_par_main without %s (NULL)",
                     options ? "a function for ranks" : "options");
    else
        read_arguments(argc, argv, &j, &error);
    wf_par_start_launch(&j, &end, &error);
    return wf_par_main_end(j.program, &end, &error, wf_par_exit_status(error.code));
}

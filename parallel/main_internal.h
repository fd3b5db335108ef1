/* parallel/main_internal.h - the ranks of a program: started, reported, and their exit
   status. */
#ifndef WF_PARALLEL_MAIN_INTERNAL_H
#define WF_PARALLEL_MAIN_INTERNAL_H

#include "core/job.h"
#include "parallel/main.h"

typedef struct wf_par_start {
    const char *program;
    wf_par_options options;
    wf_axis
        axis[WF_MAX_AXES + 1]; /* those of the options, with other sizes: wf_par_start_axes */
    double stall_timeout;
    wf_job *alike; /* compared by processes beside the mesh, or NULL; wf_par_start_free */
    double grace;  /* wf_launch_options.grace */
    wf_status (*function)(wf_par *par, void *arg);
    void *arg;
    /* Reports a failure in one process of all, with `arg`; NULL: prints it. */
    void (*report)(const wf_error *error, void *arg);
} wf_par_start;

/* Returns the name of a program by its path. */
const char *wf_par_program_name(int argc, char **argv);

/* Copies the axes of the options, whose sizes may then be changed. Errors: WF_EINVAL: there are
   too many */
wf_status wf_par_start_axes(wf_par_start *start, wf_error *error);

/* Launches the ranks once, as wf_par_main does. end: filled in. error: of this process, which
   others hear of, or WF_OK; of the launch on return. Returns its status. */
wf_status wf_par_start_launch(wf_par_start *start, wf_launch_end *end, wf_error *error);

/* Prints the error where no other process does. Returns the exit status `status`, with which
   the process ends here where ranks are stuck. */
int wf_par_start_end(const wf_par_start *start, const wf_launch_end *end, const wf_error *error,
                     int status);

#endif

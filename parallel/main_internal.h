/* parallel/main_internal.h - the ranks of a program: started, reported, and their exit
   status. */
#ifndef WF_PARALLEL_MAIN_INTERNAL_H
#define WF_PARALLEL_MAIN_INTERNAL_H

#include "core/job.h"
#include "mesh/cluster/launch.h"
#include "parallel/main.h"

typedef struct wf_par_start {
    const char *program;
    wf_par_options options;
    /* those of the options, with other sizes: wf_par_start_axes */
    wf_axis axis[WF_MAX_AXES + 1];
    wf_launch_options launch; /* ranks, job, report, end and exit_now are filled in */
    bool is_embedded;         /* in another program's process: no handlers of signals */
    bool quiet;               /* the cost of the placement was reported by an earlier launch */
    wf_job *alike; /* compared by processes beside the mesh, or NULL; the launch frees it */
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

/* Flushes stdout, so that it comes before a line that reports a failure; does not wait where
   nothing reads the console, or another thread waits in it. */
void wf_par_flush(void);

#endif

/* parallel/main_internal.h - the ranks of a program: started, reported, and their exit status. */
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
    wf_job *
        alike; /* what processes compare beside the mesh, or NULL; wf_par_start_ranks frees it */
    wf_status (*function)(wf_par *par, void *arg);
    void *arg;
} wf_par_start;

/* Returns the name of a program by its path. */
const char *wf_par_program_name(int argc, char **argv);

/* Copies the axes of the options, whose sizes may then be changed. Errors: WF_EINVAL: there are too many */
wf_status wf_par_start_axes(wf_par_start *start, wf_error *error);

/* Runs the ranks as wf_par_main does. refused: an error of this process, which others hear of; or WF_OK. Returns: the exit
   status */
int wf_par_start_ranks(wf_par_start *start, wf_error *refused);

#endif

/* parallel/program/services_internal.h - what the flags of wf_par_run ask for, and what a process has open for them. */
#ifndef WF_PARALLEL_PROGRAM_SERVICES_INTERNAL_H
#define WF_PARALLEL_PROGRAM_SERVICES_INTERNAL_H

#include "parallel/checkpoint/checkpoint.h"
#include "parallel/main_internal.h"
#include "parallel/program/program.h"
#include "parallel/report/run_log.h"
#include "parallel/report/timeline.h"

typedef struct wf_services {
    wf_par_program *program;
    wf_par_start start; /* the mesh, with sizes that were given */
    int64_t axis[WF_MAX_AXES], stall_timeout;
    /* values of flags */
    int64_t save_interval, trace_first, trace_last, rank;
    const char *config, *log_jsonl, *tensorboard, *trace, *save, *resume;
    bool help, plan, show_layout, comm_report;
    wf_flag flags[WF_FLAGS + 1];
    /* shared by the ranks of a process */
    FILE *out;
    wf_par_pipeline *pipeline;     /* NULL: there is none */
    wf_par_checkpoint *checkpoint; /* NULL: the run begins at its first step */
    wf_run_log *log;               /* where rank 0 runs; else NULL */
    wf_timeline *timeline;         /* likewise, with --trace */
} wf_services;

/* Sets the flags to the program's values, and reads the command line and --config. Errors: WF_EINVAL, those of
   wf_flags_config */
wf_status wf_services_read(wf_services *s, int argc, char **argv, wf_error *error);

/* Prints --help. */
void wf_services_help(const wf_services *s);

/* Plans the job and prints what rank --rank takes and moves. Errors: those of wf_plan_step */
wf_status wf_services_plan(const wf_services *s, wf_error *error);

/* Opens what the flags ask for in this process. Owner: wf_services_close, in any case. */
wf_status wf_services_open(wf_services *s, wf_error *error);
wf_status wf_services_close(wf_services *s, wf_error *error);

/* Runs a rank of the job. Collective. Errors: in the context */
wf_status wf_services_train(wf_par *par, void *services);

#endif

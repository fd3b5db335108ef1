/* parallel/program/services_internal.h - what the flags of wf_par_run ask for, and what a
   process has open for them. */
#ifndef WF_PARALLEL_PROGRAM_SERVICES_INTERNAL_H
#define WF_PARALLEL_PROGRAM_SERVICES_INTERNAL_H

#include "parallel/main_internal.h"
#include "parallel/plan/request.h"
#include "parallel/program/program.h"
#include "parallel/program/run.h"

/* What changes of a job when ranks are lost: its data-parallel axis, or the outermost of
   several, and the micro-batches. */
typedef struct wf_services_shape {
    struct wf_services *services;
    int dp, dp_replicate;
    int64_t micro_batch;
    wf_par_accumulate accumulate;
    int accumulate_group;
} wf_services_shape;

/* Flags of settings and plans. */
typedef struct wf_plan_flags {
    wf_plan_request request; /* the settings, as flags have made them */
    wf_plan_job made;
    char name[WF_SETTINGS][WF_PLAN_FLAG], initial[WF_SETTINGS][WF_WORD];
    const char *word[WF_SETTINGS], *memory;
    bool search;
} wf_plan_flags;

typedef struct wf_services {
    wf_par_program *program;
    wf_par_start start; /* the mesh, with sizes that were given */
    wf_services_shape shape;
    int64_t axis[WF_MAX_AXES], stall_timeout;
    bool axis_given[WF_MAX_AXES], rank_given;
    wf_plan_flags planning;
    /* values of flags */
    int64_t save_interval, keep, trace_first, trace_last, profile, rank, min_dp, rejoin_after,
        nnodes, fit_nodes;
    double exit_minutes, ema;
    const char *config, *log_jsonl, *tensorboard, *trace, *save, *resume, *async_text,
        *elastic_text, *redundancy, *recovery_dir, *lr_schedule, *skip_steps, *memory_timeline;
    bool help, reset_optimizer, plan, show_layout, comm_report, async_save, save_best,
        is_elastic, schedule_is_read;
    wf_flag flags[WF_FLAGS + 1];
    /* shared by the ranks of a process */
    FILE *out;
    char *settings; /* a JSON object: the program's own flags, and the steps */
    wf_resume resume_from;
    wf_saving_result saved;
    wf_elastic elastic;
    wf_run_log *log;       /* where rank 0 runs; else NULL */
    wf_timeline *timeline; /* likewise, with --trace */
} wf_services;

/* A launch of the ranks: of an elastic run there may be several. It stays where ranks of it are
   stuck. */
typedef struct wf_services_launch {
    wf_services *services;
    wf_services_shape shape;
    wf_par_start start;
    wf_par_job job;            /* the program's, on the mesh of this launch */
    wf_par_pipeline *pipeline; /* NULL: there is none */
    wf_run run;
    char mesh[400];       /* "--dp 2 --tp 1" */
    const char *texts[2]; /* in checkpoints: the settings */
} wf_services_launch;

/* Sets the flags to the program's values, and reads the command line and --config. Errors:
   WF_EINVAL, those of wf_flags_config */
wf_status wf_services_read(wf_services *s, int argc, char **argv, wf_error *error);

/* Notes that a flag was given, in a bool; wf_flag.taken. */
wf_status wf_services_note_given(void *given, wf_error *error);

/* Takes "on" or "off" of a flag. Errors: WF_EINVAL */
wf_status wf_services_switch(const char *flag, const char *text, bool *value, wf_error *error);

/* Prints --help. */
void wf_services_help(const wf_services *s);

/* Plans the job and prints what rank --rank takes and moves. Errors: those of wf_plan_step */
wf_status wf_services_plan(const wf_services *s, wf_error *error);

/* Opens what the flags ask for in this process. Owner: wf_services_close, in any case. */
wf_status wf_services_open(wf_services *s, wf_error *error);
wf_status wf_services_close(wf_services *s, wf_error *error);

/* Opens the checkpoints to continue from; and the log, behind rows that it has where
   `continues`. */
wf_status wf_services_open_checkpoints(wf_services *s, wf_error *error);
wf_status wf_services_open_log(wf_services *s, bool continues, wf_error *error);

/* Describes the run of a launch, whose job and pipeline are made. */
void wf_services_describe(wf_services_launch *launch);

/* Launches the ranks; of an elastic run until it has ended. error: of this process, or
   WF_OK. */
void wf_services_run(wf_services *s, wf_launch_end *end, wf_error *error);

/* ---- elastic.c ---- */

/* Checks the flags of elastic runs, and sets the shape. Errors: WF_EINVAL */
wf_status wf_services_check_elastic(wf_services *s, wf_error *error);

/* Changes the shape to that of a run that is started with `processes` processes, as many of
   which are used. Errors: those of wf_elastic_processes */
wf_status wf_services_fit(wf_services *s, int *processes, wf_error *error);

/* Sets start and job of a launch. */
void wf_services_shaped(const wf_services_shape *shape, wf_services_launch *launch);

/* Writes "--dp 2 --tp 1". */
void wf_services_mesh_name(const void *shape, char *text, size_t size);

extern const wf_elastic_meshes wf_services_meshes;

/* ---- plan_flags.c ---- */

/* Lists flags of the job's settings, and of plans. */
void wf_services_list_plan(wf_services *s, wf_flag *flags, int *n, int most);

/* Checks them, and puts settings that were given into the job. Errors: WF_EINVAL */
wf_status wf_services_take_settings(wf_services *s, wf_error *error);

/* ---- training_flags.c ---- */

/* Lists flags of rates, groups of parameters and averages, but for those that the program has
   itself. */
void wf_services_list_training(wf_services *s, wf_flag *flags, int *n, int most);

/* Puts them into the job; reads a schedule's file, which wf_services_close_training frees.
   Errors: WF_EINVAL, those of wf_nn_schedule_read */
wf_status wf_services_take_training(wf_services *s, wf_error *error);
void wf_services_close_training(wf_services *s);

/* ---- settings.c ---- */

/* Returns the program's own flags, those of training and the steps as a JSON object. Owner: the
   caller, free; NULL: no memory */
char *wf_services_settings(wf_services *s);

/* Reports settings that differ from those of a checkpoint; wf_saving_options.loaded, of a
   wf_services. */
void wf_services_report_settings(void *services, const wf_par_checkpoint *checkpoint);

#endif

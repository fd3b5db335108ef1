/* parallel/program/services_internal.h - the flags of wf_par_run, and the process that they
   ask for. */
#ifndef WF_PARALLEL_PROGRAM_SERVICES_INTERNAL_H
#define WF_PARALLEL_PROGRAM_SERVICES_INTERNAL_H

#include "parallel/main_internal.h"
#include "parallel/program/process.h"
#include "parallel/program/program.h"
#include "parallel/program/recipe.h"

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
    int64_t axis[WF_MAX_AXES], stall_timeout;
    bool axis_given[WF_MAX_AXES], rank_given;
    wf_plan_flags planning;
    /* values of flags */
    int64_t save_interval, keep, trace_first, trace_last, profile, rank, min_dp, rejoin_after,
        nnodes, fit_nodes;
    double exit_minutes;
    wf_recipe recipe;
    const char *config, *log_jsonl, *tensorboard, *trace, *save, *resume, *async_text,
        *elastic_text, *redundancy, *recovery_dir, *memory_timeline, *trace_steps;
    bool help, reset_optimizer, plan, show_layout, comm_report, async_save, save_best,
        is_elastic, schedule_is_read;
    wf_flag flags[WF_FLAGS + 1];
    FILE *out;
    char *settings;       /* a JSON object: the program's own flags, and the steps */
    const char *texts[2]; /* in checkpoints: the settings */
    wf_process process;
} wf_services;

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

/* Describes the process that the flags ask for; it refers to the services. Errors: WF_EINVAL
   (elastic), WF_ENOMEM */
wf_status wf_services_describe(wf_services *s, wf_error *error);

/* ---- plan_flags.c ---- */

/* Fills in the job as planners see it, with what flags say of plans. */
void wf_services_request(const wf_services *s, wf_plan_request *request);

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

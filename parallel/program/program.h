/*
 * parallel/program/program.h - a program that trains: a job, and flags of its own, in one call.
 * Every such program has
 *
 *     --help --config FILE --steps N --eval-interval N --AXIS N --strategy NAME --stall-timeout
 *     SECONDS --micro-batch-size N --global-batch-size N --accumulate HOW --dtype TYPE
 *     --recompute TYPE --pp-schedule NAME ..: the settings of parallel/plan/settings.def
 *     --lr X --warmup-steps N --beta1 X ..: the rows of parallel/program/recipe.def
 *     --plan --rank N --device-memory SIZE --machine FILE --search --ranks N --find-batch
 *     --json FILE --chakra DIR --show-layout --comm-report --trace FILE --trace-steps A-B
 *     --log-jsonl FILE --tensorboard DIR
 *     --save DIR --save-interval N --keep N --async-save on|off --save-best
 *     --exit-duration-in-mins X --resume PATH --elastic on|off --redundancy HOW --min-dp N
 *     --rejoin-after N --recovery-dir DIR --nnodes N --fit-nodes N
 *
 * with the meanings that they have for gpt_train. With --save a signal is a request: SIGUSR1
 * saves after the step that is under way; SIGTERM, SIGHUP and SIGINT save and end the run with
 * status WF_EXIT_PREEMPTED, from where the same command continues.
 *
 *     int main(int argc, char **argv)
 *     {
 *         wf_par_program p = {.job = {.mesh = {.dp = 2}, .model = make, .train = training,
 *                                     .data = {.read = read_data}, .steps = 100}};
 *
 *         return wf_par_run(argc, argv, &p);
 *     }
 */
#ifndef WF_PARALLEL_PROGRAM_PROGRAM_H
#define WF_PARALLEL_PROGRAM_PROGRAM_H

#include "parallel/plan/job.h"
#include "parallel/program/flags.h"
#include "parallel/program/run.h"

WF_BEGIN_DECLS

typedef struct wf_par_program {
    wf_par_job job;       /* without flags; they change its mesh, strategy and steps */
    wf_run_hooks hooks;   /* called in a run, never in a plan */
    const wf_flag *flags; /* the program's own, beside those above; NULL: none */
    const char *about;    /* lines for --help; NULL: none */
    /* Called once in each process after flags are read, before anything is planned or run:
       opens data, and sets what of the job follows from the program's own flags. NULL: nothing
       does. */
    wf_status (*prepare)(struct wf_par_program *program, wf_error *error);
    void (*done)(
        struct wf_par_program *program); /* frees what prepare has opened; NULL: nothing */
    void *arg;                           /* for these two */
} wf_par_program;

/**
 * wf_par_run - runs, plans or explains a program, as its command line says
 *
 * A run trains job.steps steps from the beginning, or from the newest checkpoint of --save (or
 * --resume); evaluates, logs and saves on the way; and prints the digest of parameters and
 * optimizer at its end. --plan runs the same job on the fake device and prints what a rank
 * takes and moves.
 *
 * With --elastic on a run that loses ranks is relaunched, with those that are left
 * (parallel/recovery/elastic.h): model, begin and end are called on each rank of each launch,
 * `after` where a launch has made the last step, prepare and done once in a process. job.data
 * is asked for the step that comes next, by its number; other state of a program's own belongs
 * to wf_par_running.own, made in `begin`, and follows wf_par_running.steps.
 *
 * @param program  stays the caller's; its job is as the flags have made it on return
 * Collective:  of several processes, each calls it alike
 * Returns:     the exit status, wf_saving_exit_status (parallel/program/saving.h); 0 after
 *              --help and --plan
 */
WF_API int wf_par_run(int argc, char **argv, wf_par_program *program);

WF_END_DECLS

#endif

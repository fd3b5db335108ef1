/*
 * parallel/program/run.h - a run of a job without flags: what its processes and ranks are
 * given, and a rank's whole way through it. wf_par_run makes one of a command line; a program
 * with launches of its own makes it itself:
 *
 *     const wf_run run = {.job = &job, .program = "mine", .out = stdout, .log = log, .resume =
 *     &resume, .saved = &saved,
 *                         .elastic = &elastic, .saving = {.save = {.dir = "out"}, .interval =
 *                         100}};
 *
 *     wf_run_rank(par, &run);      on each rank of a launch
 */
#ifndef WF_PARALLEL_PROGRAM_RUN_H
#define WF_PARALLEL_PROGRAM_RUN_H

#include "parallel/plan/job.h"
#include "parallel/program/saving.h"
#include "parallel/recovery/elastic.h"
#include "parallel/recovery/parts_log.h"
#include "parallel/report/run_log.h"
#include "parallel/report/timeline.h"

WF_BEGIN_DECLS

/** wf_run_hooks - a program's own work in a run, never in a plan. Each may be NULL, is
 * given the job's `arg`, and leaves errors in the context of its rank. */
typedef struct wf_run_hooks {
    /* Loads values that are not a checkpoint's, as pretrained ones: the model is real, and no
       trainer is open. Collective. */
    wf_par_hook *load;
    /* Changes the options of checkpoints: texts that they keep, and hooks. The trainer is open;
       of a job without steps, which only loads, it may be NULL. Collective. */
    wf_status (*saving)(wf_par_running *rank, wf_saving_options *options, void *arg);
    /* Prints what the run is, before the first step of the first launch, on rank 0 alone. */
    wf_par_hook *introduce;
    /* Measures beside a validation loss: sets at most WF_LOG_SCALARS numbers of the step's row,
       and *count. Rank 0's are logged, unless rank->stop said that the run is to stop.
       Collective. */
    wf_status (*score)(wf_par_running *rank, wf_log_scalar *scalar, int *count, void *arg);
} wf_run_hooks;

/** wf_run_digest - digests of a step's state in the log: none, one, or one of each
 * tensor too */
typedef enum wf_run_digest {
    WF_RUN_DIGEST_OFF,
    WF_RUN_DIGEST_STEPS,
    WF_RUN_DIGEST_TENSORS
} wf_run_digest;

/** wf_run_between - work of a program's own between steps: after the run has what it continues
 * from, and after each step. function NULL: there is none. */
typedef struct wf_run_between {
    /*
     * Does the work: an evaluation, texts, a wait for the next batch.
     *
     * made  the step that was made, and is logged and saved; borrowed arrays of it are gone.
     *       NULL: none is made yet
     * stop  set on all ranks alike: the run ends, as after its last step
     * Collective: over the world. Errors: in the context of the rank
     */
    wf_status (*function)(wf_par_running *rank, const wf_step_log *made, bool *stop, void *arg);
    /* Called by each rank as it leaves the run, after errors too; NULL: nothing is. */
    void (*left)(void *arg);
    void *arg;
} wf_run_between;

/** wf_run - a launch of a job in one process. Its ranks share it, and only read it. */
typedef struct wf_run {
    const wf_par_job *job;
    wf_run_hooks hooks;
    wf_run_between between;
    const wf_par_pipeline *pipeline; /* the job's (wf_par_job_pipeline); NULL: none */
    const char *program;             /* names the reporter in lines on stderr */
    FILE *out;                       /* ranks print there */
    const char *mesh;                /* "--dp 2 --tp 1": names the mesh in lines */
    int rank;                        /* the one whose step and trace are printed */
    bool show_layout, comm_report;
    bool moe_report;         /* rows have the loads of experts, and a table comes at the end */
    const char *report_json; /* file of what a step takes and moves; NULL: none */
    bool traced;             /* steps trace_first to trace_last */
    const char *memory_timeline; /* file of a picture of `rank`'s memory; NULL: none */
    int profile;                 /* rows of a profile of these steps; 0: none */
    int64_t trace_first, trace_last;
    wf_run_digest digest;
    bool last_digest;         /* printed at the end */
    int64_t verify_every;     /* steps between comparisons of replicas; 0: none */
    const char *log_digests;  /* folder of every rank's digests (parts_log.h); NULL: none */
    const char *numerics;     /* the run's identity, for these; NULL or "": unknown */
    bool continues;           /* files of rows may be those of a run before */
    const wf_replay *replay;  /* digests of the run whose steps are repeated; NULL: none */
    int64_t replay_to;        /* the last such step; 0: all that there are */
    wf_flip flip;             /* a bit to flip, in a drill */
    const char *recovery_dir; /* as in wf_elastic */
    wf_saving_options saving; /* `steps` is the job's; dir NULL: nothing is saved */
    /* The process's own. */
    wf_run_log *log;         /* NULL in processes without rank 0 */
    wf_timeline *timeline;   /* likewise, of a run that is traced */
    const wf_resume *resume; /* checkpoints to continue from */
    wf_saving_result *saved;
    wf_elastic *elastic;
} wf_run;

/**
 * wf_run_rank - makes a rank's model and trainer, takes the steps that are left with
 * evaluations, rows and checkpoints, and frees all of it
 *
 * A job without steps loads its checkpoint and calls `after`, where it has one.
 *
 * Collective:  over the world
 * Returns:     how the rank has ended. Errors: in the context too
 */
WF_API wf_status wf_run_rank(wf_par *par, const wf_run *run);

WF_END_DECLS

#endif

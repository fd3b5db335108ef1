/*
 * parallel/program/process.h - a run of a job in this process, below its flags: launches of the
 * ranks, of an elastic run one after another, with checkpoints, logs, and recorders of what
 * failed. wf_par_run makes one of its flags; a program with flags of another kind makes it
 * itself:
 *
 *     wf_process p = WF_PROCESS("mine");
 *     wf_launch_end end;
 *
 *     p.job = job;
 *     p.run.out = stdout;
 *     wf_plan_request_of(&p.job, &p.request);
 *     p.run.saving = (wf_saving_options){.save = {.dir = "out"}, .interval = 100};
 *     p.resume.save = "out";
 *     wf_process_run(&p, &end, &error);
 *     return wf_process_end(&p, &end, &error);
 */
#ifndef WF_PARALLEL_PROGRAM_PROCESS_H
#define WF_PARALLEL_PROGRAM_PROCESS_H

#include "parallel/plan/request.h"
#include "parallel/program/run.h"

WF_BEGIN_DECLS

typedef struct wf_process {
    const char *program; /* names the reporter in lines on stderr */
    wf_par_job job;      /* on the mesh that is wanted */
    /* The same job as planners see it: what of it was asked for, a device's memory, files of
       machines. It says whether a mesh serves, fits, and where its ranks are placed. */
    wf_plan_request request;
    /* The work and the reports of ranks. The process sets job, pipeline and mesh for each
       launch, and numerics, continues, log, timeline, resume, saved and elastic, which are its
       own. */
    wf_run run;

    /* The start of the ranks. */
    wf_launcher launcher;            /* wf_launcher_detected, wf_launcher_choose */
    const char *started, *transport; /* "threads", "mpi"; a transport; NULL: the launcher's */
    bool bind_ranks;                 /* each rank has cores of its own */
    bool order_given;                /* else elastic processes have the order of their start */
    wf_rank_order order;
    double stall_timeout;        /* s; 0: never */
    const wf_pace_machine *pace; /* a machine whose time steps take; NULL: none */
    bool memory_check;           /* refuses what does not fit into the process's limits .. */
    bool plan_check;             /* .. and, as that does, what the plan of the start refuses */
    /* events of ranks that failed; NULL: a temporary one */
    const char *recorder_dir;

    /* Elastic runs; run.recovery_dir belongs to them. */
    bool is_elastic;
    int64_t min_dp, rejoin_after, nnodes; /* nnodes 0: as many processes as are started */

    /* The process is another program's, an interpreter's for instance: no signal gets a
       handler, and failures are reported by the status and the text of wf_process_run alone. */
    bool is_embedded;

    /* Outputs; NULL: none. */
    const char *log_jsonl, *tensorboard, *trace;
    double peak; /* FLOP/s of all devices, for MFU; 0: not known */
    wf_resume_options resume;

    /* Hooks, with `arg`; NULL: nothing is done. */
    void *arg;
    /* Returns the settings as a JSON object, for the first row of a log: those of a launch,
       whose mesh may be smaller. Owner: the caller, free; NULL: no memory */
    char *(*settings)(void *arg, const wf_par_job *launched);
    /* Returns the settings that decide the numbers, and the data, as text: only the same one
       restores what a host has kept. Owner: the caller, free; NULL: error */
    char *(*identity)(void *arg, wf_error *error);
    /* Adds what the processes of the run must have alike. */
    void (*compare)(void *arg, const struct wf_process *process, wf_job *alike);
    bool reads_numerics; /* the next hook reads `numerics` */
    /* Called when checkpoints are open and numerics are known, before ranks are launched. */
    wf_status (*opened)(void *arg, struct wf_process *process, wf_error *error);

    /* Its own. */
    wf_axis axes[WF_MAX_AXES + 1]; /* those of the job, where it has its own */
    char numerics[17];             /* the run's identity; "" where none is needed */
    wf_resume checkpoints;
    wf_saving_result saved;
    wf_elastic elastic;
    wf_run_log *log;       /* NULL in processes without rank 0 */
    wf_timeline *timeline; /* likewise, of a run that is traced */
    int ranks_left;        /* ranks that hang, and use all of this when a session has ended */
} wf_process;

/** WF_PROCESS - a process before anything is set; job, request and run.out have to be */
#define WF_PROCESS(name)                                                                       \
    {                                                                                          \
        .program = (name), .run = {.program = (name)}, .launcher = wf_launcher_detected(),     \
        .min_dp = 1, .saved = {.lock = -1}, .elastic = WF_ELASTIC(name, NULL), .resume = {     \
            .program = (name)                                                                  \
        }                                                                                      \
    }

/** wf_process_check - checks what an elastic run asks for. Errors: WF_EINVAL with the rule */
WF_API wf_status wf_process_check(const wf_process *process, wf_error *error);

/**
 * wf_process_fit - changes the job's mesh to that of a run that is started with `processes`
 * processes, of nnodes that it is for
 *
 * @param processes  changed to as many of them as the mesh uses
 * Errors:           those of wf_elastic_processes
 */
WF_API wf_status wf_process_fit(wf_process *process, int *processes, wf_error *error);

/** wf_process_fit_started - the same for the processes that the launcher has started, which
 * must all be used. Errors: WF_EINVAL: they are not */
WF_API wf_status wf_process_fit_started(wf_process *process, wf_error *error);

/**
 * wf_process_run - opens checkpoints and outputs, launches the ranks until the run has ended,
 * and closes all of it
 *
 * @param end    filled in; end->stuck ranks still use the process, and what it refers to
 * @param error  a failure of this process before, of which the others hear here; or WF_OK.
 *               That of the run on return
 * Collective:   over the processes
 * Errors:       those of wf_resume_open, wf_par_job_pipeline, wf_launch
 */
WF_API wf_status wf_process_run(wf_process *process, wf_launch_end *end, wf_error *error);

/** wf_process_end - reports as wf_par_main_end does, with the exit status of the run
 * (wf_saving_exit_status), which it returns */
WF_API int wf_process_end(const wf_process *process, const wf_launch_end *end,
                          const wf_error *error);

WF_END_DECLS

#endif

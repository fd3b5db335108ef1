/* mesh/cluster/launch.h - starts the ranks of a world and joins them. */
#ifndef WF_MESH_CLUSTER_LAUNCH_H
#define WF_MESH_CLUSTER_LAUNCH_H

#include "core/job.h"
#include "mesh/comm/collective.h"
#include "mesh/cluster/placement.h"

WF_BEGIN_DECLS

/* Bytes for the stack of a rank: modest, so that thousands of ranks fit; data lives on the
   heap. */
enum { WF_RANK_STACK = 4 << 20 };

/* One rank, as its function sees it. */
typedef struct wf_rank {
    int index, size;
    /* its number among the ranks of its host, where tp neighbours are side by side */
    int local_rank;
    int local_size; /* ranks of its process, whose local ranks follow each other */
    wf_comm *world; /* the launcher's; splits of it are closed by their openers */
    wf_error error; /* set by a failing rank_main, and passed to all */
    /* the cost of the placement of the ranks, for one of them to report; or NULL */
    const char *warning;
} wf_rank;

/* The end of a world, beside its status. */
typedef struct wf_launch_end {
    /* it failed, and the failure was reported: by `report`, or by another process */
    bool reported;
    /* Ranks here that have not returned though the world has failed: they hang, still use their
       arguments, and end with the process: it should _exit soon. */
    int stuck;
} wf_launch_end;

typedef struct wf_launch_options {
    int ranks; /* 1 .. WF_MAX_RANKS; any number on a transport that moves nothing */
    const char
        *launcher; /* "threads", "mpi"; NULL: what was detected (mesh/transport/launcher.h) */
    const char *transport; /* NULL: that of the launcher */
    int rank;              /* the rank to run where only one runs: on "fake" */
    /* Threads that each rank will use: it is bound to as many cores of its own where there are
       enough for all ranks, tp neighbours side by side. 0: the system schedules the ranks. */
    int threads;
    /* The mesh that the ranks will form, outermost axis first, with what a rank receives over
       each in a step; n_axes 0: processes run ranks in the order of their start. */
    int n_axes;
    const wf_placement_axis *axis;
    wf_rank_order order;
    /* Seconds after which a rank that neither progresses nor waits for others has failed; 0:
       never. Computing for so long without a collective counts; to read data, and to read or
       write checkpoints and models, may take any time. Processes have as long to meet, 20 s at
       least, and to exit when the world has ended, 5 s at least; with 0 they have 600 s for
       each. */
    double stall_timeout;
    /* NULL, or settings that all processes of the run must have alike: options, data, weights.
       They compare it, with the number of ranks, the transport, the axes and libweft's version,
       before a rank starts; WF_EMISMATCH names the differences, both values, processes and
       hosts. Nothing is compared where there is one process. */
    const wf_job *job;
    /* Seconds that the ranks of a process may take to return where another process was lost; 0:
       0.3, since launchers end all others a second later. Otherwise the end of the launcher is
       no more than SIGTERM to this process. */
    double grace;
    /* NULL, or ends the program at once (_exit), with its status for a failure: where processes
       wait for each other when they exit, and one of them is lost or hangs. It may be called
       from a signal handler, or by a thread of the library. NULL: SIGALRM ends it. */
    void (*exit_now)(wf_status status);
    /* NULL, or called when the world has failed, with the arg of the ranks, in one process; the
       others end after that. */
    void (*report)(const wf_error *error, void *arg);
    wf_launch_end *end; /* NULL, or filled in */
} wf_launch_options;

/**
 * wf_launch - runs rank_main once per rank, each on a thread of its own, and waits for all
 *
 * Where a launcher started several processes, each runs an equal share of the ranks, one or
 * more, and all return the same status and text. The ranks of a process follow from the
 * processes' hosts and `axis`; rank 0 is in the first process.
 *
 * All ranks start or none does. A rank that fails wakes the others with WF_ELOST; one that
 * returns while others wait for it is an error too. Processes that die, are stopped or cannot
 * be reached are detected by the others (mesh/health/failure_detector_internal.h), and with
 * stall_timeout ranks that hang. The text of a failure names its rank, and its state: host,
 * coordinates in the mesh, step, collective. Ranks that do not return then are abandoned
 * (wf_launch_end). Processes that a launcher started end when it does.
 *
 * @param rank_main  returns WF_OK, or a status with rank->error set
 * @param arg        passed to every rank
 * Returns:          WF_OK, or the failure that came first, its rank named in `error`
 * Errors:           WF_EINVAL, WF_EUNSUPPORTED (transport, launcher), WF_ENOMEM (ranks that
 *                   cannot be started), WF_EMISMATCH (processes with different jobs), WF_ELOST
 *                   (a process, or a rank that returned early), WF_ETIMEOUT (a stall, a
 *                   deadlock), else a rank's own
 */
WF_API wf_status wf_launch(const wf_launch_options *options,
                           wf_status (*rank_main)(wf_rank *rank, void *arg), void *arg,
                           wf_error *error);

/**
 * wf_launch_meet - meets the launcher's other processes, for a process that launches no ranks,
 * since it has failed before or has another task: others that do launch would wait for it
 *
 * Where all have the same job, or the same error, each continues; else all end with one error.
 * Nothing happens where the process is alone, or where processes cannot meet. A launch whose
 * options are refused does so by itself.
 *
 * @param job    the task of the process; not read where it has failed
 * @param error  the failure, or WF_OK; becomes that of all
 * Collective:   over the processes
 * Returns:      true where another process reports an error
 */
WF_API bool wf_launch_meet(const wf_job *job, wf_error *error);

WF_END_DECLS

#endif

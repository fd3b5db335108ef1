/*
 * parallel/recovery/elastic.h - elastic runs: a run that loses ranks continues with those that
 * are left, on a mesh that they fit on, and on the requested mesh as soon as ranks for it are
 * back.
 *
 * A run is then several launches, one after the other. Ranks of one leave their state
 * (parallel/recovery/snapshot.h), which those of the next restore
 * (parallel/recovery/elastic_rank.h). No step is lost, none is logged twice, and the digest is
 * that of a run that lost no rank. wf_par_run does all of it for a program (--elastic); a
 * program with launches of its own calls these.
 */
#ifndef WF_PARALLEL_RECOVERY_ELASTIC_H
#define WF_PARALLEL_RECOVERY_ELASTIC_H

#include "mesh/cluster/launch.h"
#include "parallel/recovery/snapshot.h"
#include <float.h>
#include <pthread.h>

WF_BEGIN_DECLS

/** wf_elastic_step - the result of a finished step, which may not have been logged yet */
typedef struct wf_elastic_step {
    int64_t step; /* 0: none */
    wf_par_step result;
    double ms;
} wf_elastic_step;

enum { WF_ELASTIC_RANKS = 4096, WF_ELASTIC_RUN = 96 };

/**
 * wf_elastic - the state that the launches of a run share, and their ranks write to; WF_ELASTIC
 * at first
 *
 * A run that is not elastic has one as well, without snapshots. Owner of `job`: the caller,
 * free.
 */
typedef struct wf_elastic {
    const char *program; /* names the reporter in lines on stderr */
    const char
        *recovery_dir; /* memory of the host that outlives a process; NULL: ranks are threads */
    wf_par_snapshot *from; /* restored by this launch; NULL: nothing is */
    wf_par_snapshot *into; /* its ranks leave their state there; NULL: nowhere */
    bool left_behind; /* ranks of an earlier launch are stuck, and use what they were given */
    int64_t leave_after; /* ranks leave after this step, for a mesh that has grown; 0: never */
    pthread_mutex_t lock;
    int holders;             /* ranks of this process that have a state to leave */
    wf_par_trainer **holder; /* [WF_ELASTIC_RANKS] theirs; NULL where ranks are threads alone */
    wf_elastic_step made;    /* the last step of any rank here */
    int64_t began;           /* the step after which this launch continues */
    int64_t logged, ended;   /* rank 0: the last step that is logged; that is saved too */
    bool whole;              /* all ranks have ended: one that is lost now is not missed */
    bool incomplete; /* the state that was left has gaps: the next launch needs a checkpoint */
    float best_loss; /* rank 0: the lowest of validation */
    double lost_at;  /* s, when ranks were lost that make this launch necessary; 0: none were */
    char report[2048];        /* printed by rank 0 when the state is restored; "" */
    char run[WF_ELASTIC_RUN]; /* the run that the processes belong to: wf_elastic_run_name */
    char *job; /* a JSON object of the settings that decide its numbers, and of its data */
} wf_elastic;

#define WF_ELASTIC(name, dir)                                                                  \
    {                                                                                          \
        .program = (name), .recovery_dir = (dir), .lock = PTHREAD_MUTEX_INITIALIZER,           \
        .best_loss = FLT_MAX                                                                   \
    }

/** wf_elastic_meshes - functions that read and change the mesh in a program's options, which
 * may be of any type */
typedef struct wf_elastic_meshes {
    size_t size; /* bytes of the options, which are copied */
    int64_t (*ranks)(const void *options);
    /* Changes the options to a mesh of at most `ranks` ranks (wf_elastic_shrink). WF_ELOST:
       there is none */
    wf_status (*shrink)(void *options, int64_t ranks, wf_error *error);
    void (*name)(const void *options, char *text, size_t size); /* "--pp 1 --dp 2 --tp 8" */
} wf_elastic_meshes;

/**
 * wf_elastic_launch - starts the ranks of one launch, and waits for their end (wf_launch)
 *
 * @param options  those of the run's meshes, with the mesh of this launch
 * @param job      the program's own
 * @param end      as in wf_launch
 * Errors:         of wf_launch
 */
typedef wf_status wf_elastic_launch(const void *options, void *job, wf_launch_end *end,
                                    wf_error *error);

typedef struct wf_elastic_run {
    const void *asked; /* options with the mesh that is wanted */
    const wf_elastic_meshes *meshes;
    int64_t steps;
    /* steps for which lost ranks are not replaced; 0: replaced at once */
    int64_t rejoin_after;
    wf_elastic *elastic;
    wf_elastic_launch *launch;
    /* Makes of a job one for a launch with other options: makes anew what depends on the mesh,
       and lists checkpoints where elastic->incomplete. WF_EDATA: there is none. */
    wf_status (*prepare)(const void *options, void *job, wf_error *error);
    void *job;
} wf_elastic_run;

/**
 * wf_elastic_train - launches until the run has ended, or cannot continue
 *
 * It ends with an error where ranks fail by their input (any status but WF_ELOST, WF_ETIMEOUT,
 * WF_EDEVICE and WF_EINTERNAL), where no mesh fits the remaining ranks, where lost ranks alone
 * had a part of the state, or where one step fails three times.
 *
 * @param end  end->stuck counts the stuck ranks of all launches
 * Errors:     those of the launch that failed last
 */
WF_API wf_status wf_elastic_train(const wf_elastic_run *run, wf_launch_end *end,
                                  wf_error *error);

/** wf_elastic_train_process - the launch of one process of several: restores the state that it
 * finds on its host, and leaves its own there for the next start */
WF_API wf_status wf_elastic_train_process(const wf_elastic_run *run, wf_launch_end *end,
                                          wf_error *error);

/**
 * wf_elastic_processes - changes options to the mesh of a run that was asked for `asked`
 * processes, and is started with fewer
 *
 * @param processes  changed to as many of them as the mesh is for
 * Errors:           WF_EINVAL: `asked` does not divide the ranks; WF_ELOST: no mesh is for so
 *                   few
 */
WF_API wf_status wf_elastic_processes(const wf_elastic_meshes *meshes, void *options,
                                      int64_t asked, int *processes, wf_error *error);

/** wf_elastic_shape - the sizes of a mesh and of its batch that change when ranks are lost */
typedef struct wf_elastic_shape {
    int64_t dp, others;                     /* data-parallel ranks; ranks of each: tp x pp */
    int64_t dp_replicate, shard_group_size; /* groups of hybrid strategies; 0: not given */
    int64_t global_batch, micro_batch;
} wf_elastic_shape;

/**
 * wf_elastic_shrink - finds the largest mesh of fewer data-parallel ranks for `ranks` ranks:
 * with the same other axes, and the same global batch in micro-batches as large as they were,
 * or smaller
 *
 * @param shape   changed
 * @param serves  returns true where a run on this shape has the numbers of the other one, and
 *                fits in memory
 * @param others  names the other axes in an error: "--tp 2 --pp 1"
 * Errors:        WF_ELOST: there is none, or none of min_dp
 */
WF_API wf_status wf_elastic_shrink(wf_elastic_shape *shape, int64_t ranks, int64_t min_dp,
                                   bool (*serves)(void *arg, const wf_elastic_shape *shape),
                                   void *arg, const char *others, wf_error *error);

/** wf_elastic_lost - notes that ranks were lost, `ago` seconds ago */
WF_API void wf_elastic_lost(wf_elastic *elastic, double ago);

/** wf_elastic_whole - returns whether all ranks have ended */
WF_API bool wf_elastic_whole(wf_elastic *elastic);

/** wf_elastic_made - notes that a rank has made a step */
WF_API void wf_elastic_made(wf_elastic *elastic, const wf_elastic_step *made);

/** wf_elastic_saved - notes that a step is logged and saved, on rank 0; best_loss: the lowest
 * of validation until then */
WF_API void wf_elastic_saved(wf_elastic *elastic, int64_t step, float best_loss);

WF_END_DECLS

#endif

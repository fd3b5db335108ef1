/*
 * apps/gpt_train/elastic.h - --elastic: a run that loses ranks goes on with those that are left, on a mesh that they
 * fit on, and on the mesh that was asked for as soon as there are ranks for it again.
 *
 * A run is then several launches, one after the other. What the ranks of one leave (parallel/recovery/snapshot.h) those of
 * the next take up. No step is lost, none is logged twice, and the digest is that of a run that lost no rank.
 */
#ifndef WF_APPS_ELASTIC_H
#define WF_APPS_ELASTIC_H

#include "apps/gpt_train/recovery_job.h"
#include "apps/options/options.h"
#include "parallel/recovery/snapshot.h"
#include <pthread.h>
#include <weft/weft.h>

/* A step that is made, of which nothing may have been told yet. */
typedef struct app_made_step {
    int64_t step; /* 0: none */
    wf_par_step result;
    double ms;
} app_made_step;

enum { APP_ELASTIC_RANKS = 4096 };

/* What the launches of a run share, and their ranks write to. Of a run without --elastic all is NULL and 0. */
typedef struct app_elastic {
    wf_par_snapshot *from; /* what this launch takes up; NULL: nothing */
    wf_par_snapshot *into; /* where its ranks leave what they hold; NULL: nowhere */
    bool left_behind; /* ranks of an earlier launch are stuck: what they were given stays */
    int64_t
        leave_after; /* they do so after this step, and end, for a mesh that has grown; 0: never */
    pthread_mutex_t lock;
    int holders; /* ranks of this process that have something to leave, and have not */
    wf_par_trainer *
        *holder;           /* [APP_ELASTIC_RANKS] theirs; NULL where ranks are threads alone */
    app_made_step made;    /* the last one of any rank here */
    int64_t began;         /* rank 0: the step after which this launch goes on */
    int64_t logged, ended; /* rank 0: the last step that has its row; its checkpoints too */
    bool whole;            /* all ranks have come to their end: none is missed any more */
    bool incomplete; /* what ranks left is not all: the next launch goes on from a checkpoint */
    float best_loss; /* rank 0: the lowest of validation */
    double
        lost_at; /* s, when the ranks were lost that make this launch necessary; 0: none were */
    char told[2048];            /* what rank 0 says when it has been taken up; "" */
    char run[APP_RECOVERY_RUN]; /* the run that processes are started for, */
    char *job;                  /* its job: see recovery_job.h */
} app_elastic;

/* One launch. job: the program's own. end, error: as wf_launch has them. */
typedef wf_status app_elastic_launch(const app_options *options, void *job, wf_launch_end *end,
                                     wf_error *error);

typedef struct app_elastic_run {
    const app_options *asked; /* the mesh that is wanted */
    app_elastic *elastic;
    app_elastic_launch *launch;
    /* Makes of a job one for a launch with other options: what depends on the mesh is made anew, and the list of
       checkpoints where the launch is to go on from one. WF_EDATA: there is none. */
    wf_status (*prepare)(const app_options *options, void *job, wf_error *error);
    void *job;
} app_elastic_run;

/**
 * app_elastic_train - launches until the run has come to its end, or cannot go on
 *
 * It cannot where ranks fail by what they were asked (all but WF_ELOST, WF_ETIMEOUT, WF_EDEVICE, WF_EINTERNAL), where no
 * mesh fits the ranks that are left, where something was held by lost ranks alone, or where the same step fails
 * again and again.
 *
 * @param end  stuck: ranks of any launch
 */
wf_status app_elastic_train(const app_elastic_run *run, wf_launch_end *end, wf_error *error);

/**
 * app_elastic_train_process - the launch of one process of several: it takes up what it finds on its host, and leaves what it
 * holds there for the next start
 */
wf_status app_elastic_train_process(const app_elastic_run *run, wf_launch_end *end,
                                    wf_error *error);

/**
 * app_elastic_processes - the mesh of a run that was asked for --nnodes processes, and is started with fewer
 *
 * @param processes  changed to as many of them as the mesh is for
 * Errors:           WF_ELOST: no mesh is for so few
 */
wf_status app_elastic_processes(app_options *options, int *processes, wf_error *error);

/**
 * app_elastic_mesh - the largest mesh of fewer data-parallel ranks for `ranks` ranks: the same tp and pp, the same
 * global batch in as large micro-batches, the same numbers
 *
 * @param options  what was asked for; changed
 * Errors:         WF_ELOST: there is none, or none of --min-dp
 */
wf_status app_elastic_mesh(app_options *options, int64_t ranks, wf_error *error);

/* A rank has something to leave from now on, and no longer: for who leaves it in its place where it does not return. */
void app_elastic_hold(app_elastic *elastic, wf_par_trainer *trainer);
void app_elastic_release(app_elastic *elastic, wf_par_trainer *trainer);

/* Seconds since ranks were lost; 0: none were. made: set to the last step that any rank here has made. */
double app_elastic_ago(app_elastic *elastic, int64_t *made);

/* Ranks were lost, so many seconds ago. */
void app_elastic_lost(app_elastic *elastic, double ago);

/* A rank goes on after this step. Returns the seconds since ranks were lost, which the first rank ends the count of. */
double app_elastic_began(app_elastic *elastic, int64_t step, bool first);

/* What ranks left is not taken up, since it is not all or a checkpoint is newer. A rank of each process calls it, where
   another launch follows (`again`) or before this one goes on. */
void app_elastic_give_up(app_elastic *elastic, bool again);

/* All ranks have come to their end; whether they have. */
void app_elastic_ended(app_elastic *elastic);
bool app_elastic_whole(app_elastic *elastic);

/* A rank has made a step. */
void app_elastic_made(app_elastic *elastic, const app_made_step *made);

#endif

/* parallel/program/rank_internal.h - a rank of a run, shared by the files of its way through
   it. */
#ifndef WF_PARALLEL_PROGRAM_RANK_INTERNAL_H
#define WF_PARALLEL_PROGRAM_RANK_INTERNAL_H

#include "parallel/program/run.h"
#include "parallel/recovery/elastic_rank.h"
#include "parallel/report/memory_timeline.h"
#include "parallel/report/rank_trace.h"
#include "parallel/report/expert_load.h"

typedef struct wf_run_rank_state {
    wf_par_running r; /* first: hooks are given it */
    const wf_run *run;
    const wf_par_job *job;
    wf_context *ctx;
    bool first; /* rank 0, which logs */
    wf_rank rank;
    wf_rank_trace trace;
    wf_memory_timeline *memory; /* NULL: none is drawn, or it is written already */
    wf_saving saving;
    wf_elastic_rank elastic;
    wf_parts_log parts;    /* run->log_digests has it */
    wf_expert_load *loads; /* run->moe_report has it */
    bool unwritten;        /* a row of it found no room, which was reported */
    int64_t resumed;       /* steps that were done before */
    unsigned asked;        /* requests of all ranks until the end of a step */
    unsigned requests;     /* the same, where it is done there */
    bool unevaluated; /* the run is to stop, and the evaluation was not made, or not whole */
    bool stop;
    bool ahead;   /* the step after the one that is finished was launched */
    double ended; /* milliseconds, when the step before was finished */
    double flops; /* the context's model FLOPs, by the launch of the step that is ahead */
} wf_run_rank_state;

/* Records an error of a call that leaves none in the context. Returns the context's status. */
wf_status wf_run_note(const wf_run_rank_state *r, const wf_error *error);

/* ---- rank_steps.c ---- */

/* Takes all steps, from a checkpoint or from what lost ranks left on. The trainer is open.
   Collective. Errors: in the context */
wf_status wf_run_steps(wf_run_rank_state *r);

/* Calls the program's work between steps. made: the step before; NULL: none. Collective.
   Errors: in the context */
wf_status wf_run_between_steps(wf_run_rank_state *r, const wf_step_log *made);

/* ---- rank_ahead.c ---- */

/* Returns true where the step after this one may be launched before this one is finished:
   nothing that is due in between reads or changes parameters, or reports a step by itself. */
bool wf_run_may_follow(const wf_run_rank_state *r, int64_t step);

/* Returns why no step of the run is, by name; NULL: some may be. */
const char *wf_run_waits(const wf_run_rank_state *r);

/* Returns the step that is reported: the second one, as in a plan, since the first may make
   what later ones find. */
int64_t wf_run_reported(const wf_run_rank_state *r);

/* ---- rank_step.c ---- */

/* Makes a step, and ends it. Collective. Errors: in the context */
wf_status wf_run_step(wf_run_rank_state *r, int64_t step);

/* Ends a step: measures, evaluates, logs and saves; after it or, where ranks were lost in that,
   in the next launch. flops: the context's, before the step. Collective. Errors: in the
   context */
wf_status wf_run_end_step(wf_run_rank_state *r, const wf_elastic_step *made, double flops);

/* ---- rank_evaluate.c ---- */

/* Returns this rank's requests; a wf_par_running.stop, which adds them up. */
uint64_t wf_run_requests(const wf_run_rank_state *r);
bool wf_run_stop(void *running);

/* Evaluates where that is due after a step. scalar: [WF_LOG_SCALARS], those of the program's
   own. Collective. Errors: in the context */
wf_status wf_run_evaluate(wf_run_rank_state *r, int64_t step, wf_step_log *record,
                          wf_log_scalar *scalar);

/* ---- rank_parts.c: digests of every rank, replays, and flipped bits ---- */

/* Returns the last step to make: a replay ends with what was logged, or before. */
int64_t wf_run_parts_last(const wf_run_rank_state *r);

/* Opens the rank's file, and changes nothing in it. Errors: in the context */
wf_status wf_run_parts_open(wf_run_rank_state *r);

/* Refuses rows of another run where this one does not continue it. Collective. Errors: in the
   context */
wf_status wf_run_parts_begin(wf_run_rank_state *r);

/* Flips the bit; writes the digests down, or compares them with those of the run that is
   replayed. Collective. Errors: in the context */
wf_status wf_run_parts_step(wf_run_rank_state *r, int64_t step);

/* Reports, on rank 0, which steps were replayed. Errors: in the context */
wf_status wf_run_parts_end(wf_run_rank_state *r);

#endif

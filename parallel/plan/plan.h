/*
 * parallel/plan/plan.h - plans: a training step as it would be, on one rank of any world (a dry
 * run).
 *
 * A plan is the run itself on the fake device and the fake transport: the same calls, no
 * memory, no arithmetic. It takes milliseconds, and a model of 405 billion parameters a quarter
 * of a second.
 */
#ifndef WF_PARALLEL_PLAN_PLAN_H
#define WF_PARALLEL_PLAN_PLAN_H

#include "core/oplog.h"
#include "parallel/plan/job.h"
#include "parallel/train/report.h"

WF_BEGIN_DECLS

typedef struct wf_plan {
    wf_par_report report; /* costs of the last step */
    /* the first module where the layout shows in the numbers, or "" */
    char inexact[WF_INEXACT];
    /* steps of the model, which a pipeline cuts (nn/chain.h); 0: it is no chain */
    int64_t chain_steps;
} wf_plan;

typedef struct wf_plan_options {
    /* the first step alone, and the memory of an evaluation and of the job's `after` */
    bool start;
    /* WF_ENOMEM as soon as the rank takes more bytes: faster where it does not fit; 0: none */
    size_t limit;
    /* NULL, or what writes down the ops, collectives and messages of the last step */
    const wf_oplog *oplog;
    /* NULL, or the file of a picture of the last step's memory (wf_memory_timeline_write) */
    const char *memory_timeline;
} wf_plan_options;

/**
 * wf_plan_step - plans a rank of a job: its second step, with what the first one leaves
 *
 * @param rank     of the world of job->mesh
 * @param options  NULL: none
 * Collective:  no; ranks of other numbers are not made
 * Errors:      what the run would be refused for, in its words, without the number of the rank;
 *              WF_ENOMEM by the limit
 */
WF_API wf_status wf_plan_step(const wf_par_job *job, int rank, const wf_plan_options *options,
                              wf_plan *plan, wf_error *error);

/** wf_plan_peak - the fullest pipeline rank of two steps, to the byte. */
typedef struct wf_plan_peak {
    size_t bytes;
    int rank; /* on axis pp */
    /* number of ranks that were planned; their unit profiles gave the others' */
    int64_t planned;
} wf_plan_peak;

/**
 * wf_plan_peaks - finds the rank that takes most
 *
 * @param limit  of bytes; 0: none
 * Errors:  those of wf_plan_step; WF_ENOMEM: a rank takes more than `limit` bytes
 */
WF_API wf_status wf_plan_peaks(const wf_par_job *job, size_t limit, wf_plan_peak *peak,
                               wf_error *error);

/** wf_plan_traffic - returns the bytes that the rank receives in the step, over all axes */
WF_API double wf_plan_traffic(const wf_plan *plan);

/** wf_comm_counters_received - returns the bytes that a rank has received, over all kinds of
 * collectives */
WF_API double wf_comm_counters_received(const wf_comm_counters *counters);

WF_END_DECLS

#endif

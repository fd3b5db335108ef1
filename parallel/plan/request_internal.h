/* parallel/plan/request_internal.h - plans of requests, for the files of this room. Not
   installed. */
#ifndef WF_PARALLEL_PLAN_REQUEST_INTERNAL_H
#define WF_PARALLEL_PLAN_REQUEST_INTERNAL_H

#include "parallel/plan/request.h"

/* Checks what a run of a request is refused for before it starts ranks (wf_par_job_check), and
   what was asked for of pipelines where there is none. Errors: WF_EINVAL */
wf_status wf_plan_request_check(const wf_plan_request *request, wf_error *error);

/* Returns whether it passes. */
bool wf_plan_request_runs(const wf_plan_request *request);

/* Draws the memory of its rank over a step, into request->memory_timeline. */
wf_status wf_plan_request_draw(const wf_plan_request *request, wf_error *error);

/* Plans the step of any rank, whose ops, collectives and messages are written down. Errors:
   those of wf_plan_step */
wf_status wf_plan_request_oplog(const wf_plan_request *request, int rank, const wf_oplog *oplog,
                                wf_plan *plan, wf_error *error);

/* Plans the first step of any rank, with the memory of an evaluation and of the job's
   `after`. */
wf_status wf_plan_request_start(const wf_plan_request *request, int rank, wf_plan *plan,
                                wf_error *error);

/* Plans the run of the request's rank: as wf_plan_request_start, or its steps, with the memory
   of what the job does after them where that is more. WF_ENOMEM as soon as it takes more than
   `limit` bytes, which is faster where it does not fit; 0: no limit. */
wf_status wf_plan_request_within(const wf_plan_request *request, bool start, size_t limit,
                                 wf_plan *plan, wf_error *error);

/* Finds the pipeline rank that takes most (wf_plan_peaks), in its steps or in what the job does
   after them. */
wf_status wf_plan_request_peaks(const wf_plan_request *request, size_t limit,
                                wf_plan_peak *peak, wf_error *error);

/* Finds the pipeline rank that takes most in its first step, an evaluation and the job's
   `after`, among those that are numbered as the request's rank is. */
wf_status wf_plan_request_start_peaks(const wf_plan_request *request, size_t limit,
                                      wf_plan_peak *peak, wf_error *error);

/* Returns the data-parallel ranks that split experts. */
int64_t wf_plan_ep(const wf_plan_request *request);

/* Spreads experts over `part` data-parallel ranks, beside those of tp, if these split experts
   too; 1: over these alone. */
void wf_plan_set_ep(wf_plan_request *request, int64_t part);

/* Sets the operands of products to what activations are stored as, where they are not given. */
void wf_plan_derive_compute(wf_plan_request *request);

#endif

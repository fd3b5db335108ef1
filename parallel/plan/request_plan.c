/* parallel/plan/request_plan.c - plans of a request's job; see request_internal.h. */
#include "parallel/plan/request_internal.h"
#include <string.h>

static wf_status plan_with(const wf_plan_request *r, int rank, const wf_plan_options *options,
                           wf_plan *plan, wf_error *error)
{
    wf_plan_job made;

    return wf_plan_step(wf_plan_request_job(r, &made), rank, options, plan, error);
}

wf_status wf_plan_request_step(const wf_plan_request *r, wf_plan *plan, wf_error *error)
{
    return plan_with(r, (int)r->rank, NULL, plan, error);
}

bool wf_plan_request_serves(const wf_plan_request *r, wf_plan *plan)
{
    wf_error error = {WF_OK, ""};

    return wf_plan_request_step(r, plan, &error) == WF_OK &&
           (!*plan->inexact || r->job.mesh.exact_off);
}

wf_status wf_plan_request_draw(const wf_plan_request *r, wf_error *error)
{
    wf_plan plan;

    return plan_with(r, (int)r->rank, &(wf_plan_options){.memory_timeline = r->memory_timeline},
                     &plan, error);
}

wf_status wf_plan_request_oplog(const wf_plan_request *r, int rank, const wf_oplog *oplog,
                                wf_plan *plan, wf_error *error)
{
    return plan_with(r, rank, &(wf_plan_options){.oplog = oplog}, plan, error);
}

wf_status wf_plan_request_within(const wf_plan_request *r, bool start, size_t limit,
                                 wf_plan *plan, wf_error *error)
{
    return plan_with(r, (int)r->rank, &(wf_plan_options){.start = start, .limit = limit}, plan,
                     error);
}

wf_status wf_plan_request_start(const wf_plan_request *r, int rank, wf_plan *plan,
                                wf_error *error)
{
    return plan_with(r, rank, &(wf_plan_options){.start = true}, plan, error);
}

wf_status wf_plan_request_peaks(const wf_plan_request *r, size_t limit, wf_plan_peak *peak,
                                wf_error *error)
{
    wf_plan_job made;

    return wf_plan_peaks(wf_plan_request_job(r, &made), limit, peak, error);
}

void wf_plan_derive_compute(wf_plan_request *r)
{
    if (!r->given[WF_SETTING_compute])
        memcpy(r->compute, r->dtype, sizeof r->compute);
}

/* parallel/plan/request_plan.c - plans of a request's job; see request_internal.h. */
#include "parallel/plan/request_internal.h"
#include <string.h>

wf_status wf_plan_request_check(const wf_plan_request *r, wf_error *error)
{
    wf_plan_job made;
    wf_par_job job = *wf_plan_request_job(r, &made);

    job.mesh.plan = true;
    if (r->pipeline_field && r->pp == 1)
        return wf_error_set(error, WF_EINVAL,
                            ".%s belongs to a pipeline, and .pp is 1: use .pp 2 or more, or "
                            "leave it out",
                            r->pipeline_field);
    if (wf_par_job_check(&job, error) != WF_OK || !r->elastic)
        return error->code;
    return wf_par_job_check_elastic(&job, (int)wf_plan_data_ranks(r), r->elastic, error);
}

bool wf_plan_request_runs(const wf_plan_request *r)
{
    wf_error refused = {WF_OK, ""};

    return wf_plan_request_check(r, &refused) == WF_OK;
}

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
    const wf_plan_options whole = {.start = true, .limit = limit};
    wf_plan after;

    if (start)
        return plan_with(r, (int)r->rank, &whole, plan, error);
    if (plan_with(r, (int)r->rank, &(wf_plan_options){.limit = limit}, plan, error) == WF_OK &&
        r->job.after && plan_with(r, (int)r->rank, &whole, &after, error) == WF_OK &&
        after.report.memory.peak > plan->report.memory.peak)
        plan->report.memory = after.report.memory;
    return error->code;
}

wf_status wf_plan_request_start(const wf_plan_request *r, int rank, wf_plan *plan,
                                wf_error *error)
{
    return plan_with(r, rank, &(wf_plan_options){.start = true}, plan, error);
}

wf_status wf_plan_request_peaks(const wf_plan_request *r, size_t limit, wf_plan_peak *peak,
                                wf_error *error)
{
    wf_plan_peak after;
    wf_plan_job made;

    if (wf_plan_peaks(wf_plan_request_job(r, &made), limit, peak, error) == WF_OK &&
        r->job.after && wf_plan_request_start_peaks(r, limit, &after, error) == WF_OK) {
        after.planned += peak->planned;
        if (after.bytes > peak->bytes)
            *peak = after;
    }
    return error->code;
}

wf_status wf_plan_request_start_peaks(const wf_plan_request *r, size_t limit,
                                      wf_plan_peak *peak, wf_error *error)
{
    const int64_t each = wf_plan_ranks(r) / r->pp;
    wf_plan_request one = *r;
    wf_plan run;

    *peak = (wf_plan_peak){.planned = r->pp};
    for (int pp = 0; pp < (int)r->pp; pp++) {
        one.rank = pp * each + r->rank % each;
        if (wf_plan_request_within(&one, true, limit, &run, error) != WF_OK)
            return error->code;
        if (run.report.memory.peak > peak->bytes) {
            peak->bytes = run.report.memory.peak;
            peak->rank = pp;
        }
    }
    return WF_OK;
}

void wf_plan_derive_compute(wf_plan_request *r)
{
    if (!r->given[WF_SETTING_compute])
        memcpy(r->compute, r->dtype, sizeof r->compute);
}

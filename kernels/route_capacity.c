/*
 * kernels/route_capacity.c - the choices that experts take of a sequence, where each takes a
 * number of tokens at most (kernels/moe.h):
 *
 *     route_capacity  indices, and that of no expert where an expert has its tokens already
 *
 * The CPU's kernel is in kernels/cpu/route_capacity.c.
 */
#include "core/distribution.h"
#include "kernels/route_capacity_internal.h"
#include "kernels/shared_internal.h"
#include <inttypes.h>
#include <string.h>

wf_tensor *wf_route_capacity(wf_tensor *index, const wf_route_limit *limit)
{
    const wf_capacity attr = {limit->experts, limit->most, limit->before != NULL};
    wf_tensor *with = limit->before ? limit->before : limit->first, *whole;

    whole = wf_apply(&wf_op_route_capacity, &attr, sizeof attr, with ? 2 : 1,
                     wf_resplit(index, 1, -1), with);
    return whole ? wf_laid_out_as(whole, index) : NULL;
}

static const char *signature(const wf_call *call, char *text)
{
    const wf_capacity *o = call->attr;

    (void)text;
    return call->n_in < 2 ? "bs!k!->bs!k!"
           : o->resumes   ? "bs!k!,be!->bs!k!"
                          : "bs!k!,bs!->bs!k!";
}

static wf_status shape(const wf_call *call, int out, int *ndim, wf_dim *dims)
{
    const wf_tensor *index = call->in[0];
    const wf_capacity *o = call->attr;

    (void)out;
    if (!o || o->most < 1 || o->experts < index->dim[2].size || o->experts > 1 << 24 ||
        (o->resumes && (call->n_in < 2 || call->in[1]->dim[1].size != o->experts)))
        return wf_fail(call->ctx, WF_EINVAL,
                       "route_capacity: %" PRId64 " tokens of a sequence at each of %" PRId64
                       " experts, of which a token chooses %" PRId64
                       ": give 1 or more, the experts of wf_route, and counts of all of them",
                       o ? o->most : 0, o ? o->experts : 0, index->dim[2].size);
    *ndim = index->ndim;
    memcpy(dims, index->dim, (size_t)index->ndim * sizeof *dims);
    return WF_OK;
}

wf_status wf_capacity_check(const wf_call *call, double (*at)(const void *data, int64_t e))
{
    const wf_capacity *o = call->attr;

    for (int64_t i = 0; i < wf_tensor_local_count(call->in[0]); i++)
        if (!wf_moe_is_expert(at(call->in[0]->data, i), o->experts))
            return wf_fail(call->ctx, WF_EINVAL,
                           "route_capacity: index %g, of %" PRId64
                           " experts: give it those of wf_route",
                           at(call->in[0]->data, i), o->experts);
    return WF_OK;
}

static double as_double(const void *data, int64_t e)
{
    return ((const double *)data)[e];
}

static size_t workspace(const wf_call *call)
{
    return (size_t)((const wf_capacity *)call->attr)->experts * sizeof(int32_t);
}

WF_CAPACITY_ROW(double)

static wf_status reference(const wf_call *call, void *count)
{
    if (wf_capacity_check(call, as_double) != WF_OK)
        return wf_context_status(call->ctx);
    for (int64_t b = 0; b < call->in[0]->local[0]; b++)
        wf_capacity_row(call, b, count);
    return WF_OK;
}

const wf_op wf_op_route_capacity = {WF_OP_ROW(route_capacity),
                                    .write_signature = signature,
                                    .integers = 1 << 1,
                                    .keep_fp32 = 1,
                                    .shape = shape,
                                    .reference = {.run = reference, .workspace = workspace}};

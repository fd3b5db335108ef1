/*
 * kernels/cpu/router.c - the router's rows on the CPU: exponentials by vectors, with the same
 * bits on every instruction set, all else number by number.
 */
#include "kernels/cpu/cpu_internal.h"
#include "kernels/cpu/row_exponentials_internal.h"
#include "kernels/cpu/task_size_internal.h"
#include "kernels/moe_internal.h"
#include <math.h>
#include <string.h>

#define T           float
#define ROUTER_LOOP static
#include "kernels/router_rows_internal.h"
#undef ROUTER_LOOP
#undef T

typedef struct job {
    const wf_call *call;
    float *scratch; /* n numbers for each worker */
    int64_t n;
} job;

static job job_of(const wf_call *call, void *workspace)
{
    const wf_tensor *x = call->in[0];

    return (job){call, workspace, x->local[x->ndim - 1]};
}

static void route_task(void *arg, int64_t begin, int64_t end, int worker)
{
    const job *j = arg;
    const wf_call *call = j->call;
    const wf_route_options *o = call->attr;

    for (int64_t r = begin; r < end; r++)
        route_row(o, wf_cpu_of(call)->simd, (const float *)call->in[0]->data + r * j->n,
                  wf_route_bias(call), j->n, j->scratch + worker * j->n,
                  (float *)call->out[0]->data + r * o->k,
                  (float *)call->out[1]->data + r * o->k);
}

static void grad_task(void *arg, int64_t begin, int64_t end, int worker)
{
    const job *j = arg;
    const wf_call *call = j->call;
    const wf_route_options *o = call->attr;

    for (int64_t r = begin; r < end; r++)
        route_grad_row(o, wf_cpu_of(call)->simd, (const float *)call->in[0]->data + r * j->n,
                       (const float *)call->in[1]->data + r * o->k,
                       (const float *)call->in[2]->data + r * o->k, j->n,
                       j->scratch + worker * j->n, (float *)call->out[0]->data + r * j->n);
}

/* Returns a NaN of a row, with the bias; -1: there is none. */
static int64_t nan_in(const wf_call *call, const float *logits, int64_t n)
{
    const float *bias = wf_route_bias(call);

    if (!bias && !isnan(wf_cpu_of(call)->simd->row_max(logits, n)))
        return -1;
    for (int64_t e = 0; e < n; e++)
        if (isnan(logits[e] + (bias ? bias[e] : 0)))
            return e;
    return -1;
}

static int64_t rows_of(const wf_call *call)
{
    return wf_extent(call->in[0], 0, call->in[0]->ndim - 1);
}

static wf_status route(const wf_call *call, void *workspace)
{
    job j = job_of(call, workspace);

    for (int64_t r = 0; r < rows_of(call); r++) {
        int64_t e = nan_in(call, (const float *)call->in[0]->data + r * j.n, j.n);

        if (e >= 0)
            return wf_route_is_nan(call, r, e);
    }
    wf_thread_pool_run(wf_cpu_of(call)->pool, rows_of(call), wf_task_rows(8 * j.n), route_task,
                       &j);
    return WF_OK;
}

static double as_float(const void *data, int64_t e)
{
    return (double)((const float *)data)[e];
}

static wf_status route_grad(const wf_call *call, void *workspace)
{
    job j = job_of(call, workspace);

    if (wf_route_grad_check(call, as_float) != WF_OK)
        return wf_context_status(call->ctx);
    wf_thread_pool_run(wf_cpu_of(call)->pool, rows_of(call), wf_task_rows(4 * j.n), grad_task,
                       &j);
    return WF_OK;
}

static size_t workspace(const wf_call *call)
{
    int64_t n = job_of(call, NULL).n;

    return (size_t)(wf_thread_pool_size(wf_cpu_of(call)->pool) * n) * sizeof(float);
}

const wf_kernel wf_cpu_route = {.run = route, .workspace = workspace};
const wf_kernel wf_cpu_route_grad = {.run = route_grad, .workspace = workspace};

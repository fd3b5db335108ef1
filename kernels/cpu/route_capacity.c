/* kernels/cpu/route_capacity.c - the choices that experts take on the CPU, a sequence at a
   time. */
#include "kernels/route_capacity_internal.h"
#include "kernels/cpu/cpu_internal.h"
#include "kernels/cpu/task_size_internal.h"
#include <string.h>

WF_CAPACITY_ROW(float)

typedef struct job {
    const wf_call *call;
    int32_t *count; /* [experts] for each worker */
} job;

static double as_float(const void *data, int64_t e)
{
    return (double)((const float *)data)[e];
}

static void task(void *arg, int64_t begin, int64_t end, int worker)
{
    const job *j = arg;

    for (int64_t b = begin; b < end; b++)
        wf_capacity_row(j->call, b,
                        j->count + worker * ((const wf_capacity *)j->call->attr)->experts);
}

static wf_status run(const wf_call *call, void *workspace)
{
    const wf_tensor *index = call->in[0];
    job j = {call, workspace};

    if (wf_capacity_check(call, as_float) != WF_OK)
        return wf_context_status(call->ctx);
    wf_thread_pool_run(wf_cpu_of(call)->pool, index->local[0],
                       wf_task_rows(index->local[1] * index->local[2]), task, &j);
    return WF_OK;
}

static size_t workspace(const wf_call *call)
{
    return (size_t)(wf_thread_pool_size(wf_cpu_of(call)->pool) *
                    ((const wf_capacity *)call->attr)->experts) *
           sizeof(int32_t);
}

const wf_kernel wf_cpu_route_capacity = {.run = run, .workspace = workspace};

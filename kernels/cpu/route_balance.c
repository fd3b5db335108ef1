/* kernels/cpu/route_balance.c - choices counted and losses of balance on the CPU, a sequence
   at a time, with the same bits on every instruction set. */
#include "kernels/cpu/cpu_internal.h"
#include "kernels/cpu/row_exponentials_internal.h"
#include "kernels/cpu/task_size_internal.h"
#include "kernels/route_balance_internal.h"
#include "core/numerics/math.h"

#define T            float
#define BALANCE_LOOP static
#include "kernels/route_balance_rows_internal.h"
#undef BALANCE_LOOP
#undef T

typedef struct job {
    const wf_call *call;
    wf_load_sizes sizes;
    float *scratch; /* 2 n numbers for each worker */
} job;

static double as_float(const void *data, int64_t e)
{
    return (double)((const float *)data)[e];
}

static void load_task(void *arg, int64_t begin, int64_t end, int worker)
{
    const job *j = arg;
    const wf_load_sizes *s = &j->sizes;

    (void)worker;
    for (int64_t b = begin; b < end; b++)
        load_row(s, (const float *)j->call->in[1]->data + b * s->tokens * s->k,
                 (float *)j->call->out[0]->data + b * s->experts);
}

static void balance_task(void *arg, int64_t begin, int64_t end, int worker)
{
    const job *j = arg;
    const wf_call *call = j->call;
    const wf_load_sizes *s = &j->sizes;
    float *dscore = j->scratch + worker * 2 * s->experts;

    for (int64_t b = begin; b < end; b++) {
        if (call->n_in > 2)
            counts_dscore(call->attr, s, call->in[2]->data, dscore);
        else
            balance_dscore(call->attr, s,
                           (const float *)call->in[1]->data + b * s->tokens * s->k, dscore);
        for (int64_t t = b * s->tokens; t < (b + 1) * s->tokens; t++)
            balance_row(call->attr, wf_cpu_of(call)->simd, s,
                        (const float *)call->in[0]->data + t * s->experts, dscore,
                        dscore + s->experts, (float *)call->out[0]->data + t * s->experts);
    }
}

static void losses_task(void *arg, int64_t begin, int64_t end, int worker)
{
    const job *j = arg;
    const wf_call *call = j->call;
    const wf_load_sizes *s = &j->sizes;

    for (int64_t b = begin; b < end; b++)
        sequence_losses(call->attr, wf_cpu_of(call)->simd, s,
                        (const float *)call->in[0]->data + b * s->tokens * s->experts,
                        (const float *)call->in[1]->data + b * s->tokens * s->k,
                        call->n_in > 2 ? call->in[2]->data : NULL,
                        j->scratch + worker * 2 * s->experts, (float *)call->out[0]->data + b,
                        (float *)call->out[1]->data + b);
}

static wf_status run(const wf_call *call, void *workspace, int64_t numbers,
                     void (*task)(void *, int64_t, int64_t, int))
{
    job j = {call, wf_load_sizes_of(call), workspace};

    if (wf_route_choices_check(call, as_float) != WF_OK)
        return wf_context_status(call->ctx);
    wf_thread_pool_run(wf_cpu_of(call)->pool, j.sizes.sequences,
                       wf_task_rows(j.sizes.tokens * numbers), task, &j);
    return WF_OK;
}

static wf_status load(const wf_call *call, void *workspace)
{
    return run(call, workspace, wf_load_sizes_of(call).k, load_task);
}

static wf_status losses(const wf_call *call, void *workspace)
{
    return run(call, workspace, 8 * wf_load_sizes_of(call).experts, losses_task);
}

static wf_status balance(const wf_call *call, void *workspace)
{
    return run(call, workspace, 8 * wf_load_sizes_of(call).experts, balance_task);
}

static size_t workspace(const wf_call *call)
{
    return (size_t)(wf_thread_pool_size(wf_cpu_of(call)->pool) * 2 *
                    wf_load_sizes_of(call).experts) *
           sizeof(float);
}

const wf_kernel wf_cpu_route_load = {.run = load};
const wf_kernel wf_cpu_route_losses = {.run = losses, .workspace = workspace};
const wf_kernel wf_cpu_route_balance = {.run = balance, .workspace = workspace};

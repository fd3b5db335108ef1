/* kernels/cpu/dropout.c - dropout, a run of neighbours in the whole sequence at a time. */
#include "kernels/cpu/dropout_internal.h"
#include "kernels/cpu/task_size_internal.h"

enum {
    NEAR = 2048
}; /* elements that stay in the first-level cache from one loop to the next */

void wf_cpu_dropout_range(const wf_simd *simd, const wf_dropout_attr *attr, const wf_tensor *x,
                          int64_t begin, int64_t end, float *y)
{
    int64_t per_sequence = wf_extent(x, 1, x->ndim), n;

    for (int64_t i = begin; i < end; i += n) {
        int64_t run, first = wf_global_index(x, 1, i % per_sequence, &run);
        uint32_t counter[3] = {
            (uint32_t)attr->site, (uint32_t)attr->step,
            (uint32_t)wf_sequence_of(&attr->sequences, x->start[0] + i / per_sequence)};

        n = wf_least(run, end - i);
        simd->dropout((const float *)x->data + i, y + (i - begin), n, attr->key, counter, first,
                      attr->p);
    }
}

static void task(void *arg, int64_t begin, int64_t end, int worker)
{
    const wf_call *call = arg;

    (void)worker;
    wf_cpu_dropout_range(wf_cpu_of(call)->simd, call->attr, call->in[0], begin, end,
                         (float *)call->out[0]->data + begin);
}

static void add_task(void *arg, int64_t begin, int64_t end, int worker)
{
    const wf_call *call = arg;
    const wf_simd *simd = wf_cpu_of(call)->simd;
    const float *x = call->in[0]->data;
    float *y = call->out[0]->data;

    (void)worker;
    for (int64_t i = begin; i < end; i += NEAR) {
        int64_t n = wf_least(NEAR, end - i);

        wf_cpu_dropout_range(simd, call->attr, call->in[1], i, i + n, y + i);
        simd->add(x + i, y + i, y + i, n);
    }
}

static wf_status run_dropout(const wf_call *call, void *workspace)
{
    (void)workspace;
    wf_team_run(wf_cpu_of(call)->team, wf_tensor_local_count(call->in[0]), WF_TASK_ELEMENTS,
                task, (void *)call);
    return WF_OK;
}

static wf_status run_dropout_add(const wf_call *call, void *workspace)
{
    (void)workspace;
    wf_team_run(wf_cpu_of(call)->team, wf_tensor_local_count(call->in[0]), WF_TASK_ELEMENTS,
                add_task, (void *)call);
    return WF_OK;
}

const wf_kernel wf_cpu_dropout = {.run = run_dropout};
const wf_kernel wf_cpu_dropout_add = {.run = run_dropout_add};

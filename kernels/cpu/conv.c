/* kernels/cpu/conv.c - patches of sequences and images on the CPU, and their gradient: the
   thread pool shares positions and pixels. Products over them are kernels/cpu/linear.c's. */
#include "kernels/conv_internal.h"
#include "kernels/cpu/cpu_internal.h"
#include "kernels/cpu/task_size_internal.h"

#define T float
#include "kernels/conv_loops_internal.h"
#undef T

typedef struct work {
    wf_patch_job j;
    const float *from;
    float *to;
} work;

static void patches_task(void *arg, int64_t begin, int64_t end, int worker)
{
    const work *w = arg;
    int64_t pixels = w->j.in[0] * w->j.in[1], n = w->j.out[0] * w->j.out[1];

    (void)worker;
    for (int64_t i = begin; i < end; i++)
        patches_position(&w->j, i % n, w->from + i / n * pixels * w->j.channels,
                         w->to + i / n * n * w->j.channels * w->j.taps);
}

static void patches_grad_task(void *arg, int64_t begin, int64_t end, int worker)
{
    const work *w = arg;
    int64_t pixels = w->j.in[0] * w->j.in[1], n = w->j.out[0] * w->j.out[1];

    (void)worker;
    for (int64_t i = begin; i < end; i++)
        patches_grad_pixel(&w->j, i % pixels,
                           w->from + i / pixels * n * w->j.channels * w->j.taps,
                           w->to + i / pixels * pixels * w->j.channels);
}

static wf_status patches(const wf_call *call, void *workspace)
{
    work w = {wf_patch_job_of(call, call->in[0], call->out[0]), call->in[0]->data,
              call->out[0]->data};

    (void)workspace;
    wf_thread_pool_run(wf_cpu_of(call)->pool, w.j.batch * w.j.out[0] * w.j.out[1],
                       wf_task_rows(w.j.channels * w.j.taps), patches_task, &w);
    return WF_OK;
}

static wf_status patches_grad(const wf_call *call, void *workspace)
{
    work w = {wf_patch_job_of(call, call->out[0], call->in[1]), call->in[1]->data,
              call->out[0]->data};

    (void)workspace;
    wf_thread_pool_run(wf_cpu_of(call)->pool, w.j.batch * w.j.in[0] * w.j.in[1],
                       wf_task_rows(w.j.channels * w.j.taps), patches_grad_task, &w);
    return WF_OK;
}

const wf_kernel wf_cpu_patches = {.run = patches};
const wf_kernel wf_cpu_patches_grad = {.run = patches_grad};

/*
 * kernels/cpu/init.c - initialisation, a run of neighbours in the whole tensor at a time; a
 * whole one on one thread, of which each rank keeps its part.
 */
#include "core/numerics/random.h"
#include "kernels/cpu/cpu_internal.h"
#include "kernels/cpu/task_size_internal.h"
#include "kernels/shared_internal.h"
#include <string.h>

typedef struct job job;

/* Elements x[0 .. n), which are neighbours in the whole from `first` on. */
typedef void neighbours(const job *j, float *x, int64_t n, int64_t first);

struct job {
    const wf_tensor *t;
    const wf_init_attr *attr;
    const wf_simd *simd;
    neighbours *make;
    wf_truncated truncated;
};

static void task(void *arg, int64_t begin, int64_t end, int worker)
{
    const job *j = arg;
    float *x = j->t->data;
    int64_t n;

    (void)worker;
    for (int64_t i = begin; i < end; i += n) {
        int64_t run, first = wf_global_index(j->t, 0, i, &run);

        n = wf_least(run, end - i);
        j->make(j, x + i, n, first);
    }
}

static job job_of(const wf_call *call, neighbours *make)
{
    return (job){
        .t = call->in[0], .attr = call->attr, .simd = wf_cpu_of(call)->simd, .make = make};
}

static wf_status run_job(const wf_call *call, job j)
{
    wf_thread_pool_run(wf_cpu_of(call)->pool, wf_tensor_local_count(j.t), WF_TASK_ELEMENTS,
                       task, &j);
    return WF_OK;
}

static wf_random_run run_of(const job *j, int64_t first)
{
    return (wf_random_run){j->attr->key, j->attr->stream, (uint64_t)first};
}

static void make_fill(const job *j, float *x, int64_t n, int64_t first)
{
    (void)first;
    for (int64_t i = 0; i < n; i++)
        x[i] = j->attr->arg[0];
}

static void make_normal(const job *j, float *x, int64_t n, int64_t first)
{
    wf_random_run run = run_of(j, first);

    j->simd->fill_normal(x, n, &run, j->attr->arg[0], j->attr->arg[1]);
}

static void make_uniform(const job *j, float *x, int64_t n, int64_t first)
{
    const float *range = j->attr->arg;
    wf_random_run run = run_of(j, first);

    j->simd->fill_uniform(x, n, &run, range[0], range[1] - range[0]);
}

static void make_truncated(const job *j, float *x, int64_t n, int64_t first)
{
    wf_random_run run = run_of(j, first);

    j->simd->fill_truncated(x, n, &run, &j->truncated);
}

static void make_scale(const job *j, float *x, int64_t n, int64_t first)
{
    (void)first;
    j->simd->scale(x, j->attr->arg[0], x, n);
}

static void make_elements(const job *j, float *x, int64_t n, int64_t first)
{
    const wf_init_site site = wf_init_site_of(j->attr);

    j->attr->elements(x, n, first, &site);
}

static wf_status init_fill(const wf_call *call, void *workspace)
{
    (void)workspace;
    return run_job(call, job_of(call, make_fill));
}

static wf_status init_normal(const wf_call *call, void *workspace)
{
    (void)workspace;
    return run_job(call, job_of(call, make_normal));
}

static wf_status init_uniform(const wf_call *call, void *workspace)
{
    (void)workspace;
    return run_job(call, job_of(call, make_uniform));
}

static wf_status init_truncated(const wf_call *call, void *workspace)
{
    job j = job_of(call, make_truncated);
    const float *a = j.attr->arg;

    (void)workspace;
    wf_truncate(&j.truncated, a[0], a[1], a[2], a[3]);
    return run_job(call, j);
}

static wf_status init_scale(const wf_call *call, void *workspace)
{
    (void)workspace;
    return run_job(call, job_of(call, make_scale));
}

static wf_status init_elements(const wf_call *call, void *workspace)
{
    (void)workspace;
    return run_job(call, job_of(call, make_elements));
}

/* Returns the bytes of the whole; a rank that holds all of it needs no second copy. */
static size_t whole_workspace(const wf_call *call)
{
    const wf_tensor *t = call->in[0];
    int64_t n = wf_tensor_count(t);

    return n == wf_tensor_local_count(t) ? 0 : (size_t)n * sizeof(float);
}

static wf_status init_whole(const wf_call *call, void *workspace)
{
    const wf_init_attr *attr = call->attr;
    const wf_init_site site = wf_init_site_of(attr);
    const wf_tensor *t = call->in[0];
    float *part = t->data, *whole = workspace ? workspace : part;
    int64_t count = wf_tensor_local_count(t), n;
    wf_status status = attr->whole(whole, t, &site);

    for (int64_t i = 0; status == WF_OK && whole != part && i < count; i += n) {
        int64_t first = wf_global_index(t, 0, i, &n);

        memcpy(part + i, whole + first, (size_t)n * sizeof *part);
    }
    return status;
}

const wf_kernel wf_cpu_init_fill = {.run = init_fill};
const wf_kernel wf_cpu_init_normal = {.run = init_normal};
const wf_kernel wf_cpu_init_uniform = {.run = init_uniform};
const wf_kernel wf_cpu_init_truncated = {.run = init_truncated};
const wf_kernel wf_cpu_init_scale = {.run = init_scale};
const wf_kernel wf_cpu_init_elements = {.run = init_elements};
const wf_kernel wf_cpu_init_whole = {.run = init_whole, .workspace = whole_workspace};

/* kernels/cpu/elementwise.c - runs an inner loop of one or two operands in the tasks of a team. */
#include "kernels/cpu/cpu_internal.h"
#include "kernels/cpu/task_size_internal.h"
#include "kernels/shared_internal.h"

typedef void loop1(const float *x, float *y, int64_t n);
typedef void loop2(const float *a, const float *b, float *y, int64_t n);

typedef struct job {
    const wf_simd *simd;
    loop1 *one;
    loop2 *two;
    const float *a, *b;
    float *y, constant;
} job;

static job job_of(const wf_call *call)
{
    return (job){.simd = wf_cpu_of(call)->simd,
                 .a = call->in[0]->data,
                 .b = call->n_in > 1 ? call->in[1]->data : NULL,
                 .y = call->out[0]->data};
}

static void task_of_one(void *arg, int64_t begin, int64_t end, int worker)
{
    const job *j = arg;

    (void)worker;
    j->one(j->a + begin, j->y + begin, end - begin);
}

static void task_of_two(void *arg, int64_t begin, int64_t end, int worker)
{
    const job *j = arg;

    (void)worker;
    j->two(j->a + begin, j->b + begin, j->y + begin, end - begin);
}

static void task_of_scale(void *arg, int64_t begin, int64_t end, int worker)
{
    const job *j = arg;

    (void)worker;
    j->simd->scale(j->a + begin, j->constant, j->y + begin, end - begin);
}

static wf_status run_one(const wf_call *call, loop1 *loop)
{
    job j = job_of(call);

    j.one = loop;
    wf_team_run(wf_cpu_of(call)->team, wf_tensor_local_count(call->out[0]), WF_TASK_ELEMENTS,
                task_of_one, &j);
    return WF_OK;
}

static wf_status run_two(const wf_call *call, loop2 *loop)
{
    job j = job_of(call);

    j.two = loop;
    wf_team_run(wf_cpu_of(call)->team, wf_tensor_local_count(call->out[0]), WF_TASK_ELEMENTS,
                task_of_two, &j);
    return WF_OK;
}

static wf_status add(const wf_call *call, void *workspace)
{
    (void)workspace;
    return run_two(call, wf_cpu_of(call)->simd->add);
}

static wf_status sub(const wf_call *call, void *workspace)
{
    (void)workspace;
    return run_two(call, wf_cpu_of(call)->simd->sub);
}

static wf_status mul(const wf_call *call, void *workspace)
{
    (void)workspace;
    return run_two(call, wf_cpu_of(call)->simd->mul);
}

static wf_status scale(const wf_call *call, void *workspace)
{
    job j = job_of(call);

    (void)workspace;
    j.constant = ((const wf_scale_attr *)call->attr)->factor;
    wf_team_run(wf_cpu_of(call)->team, wf_tensor_local_count(call->out[0]), WF_TASK_ELEMENTS,
                task_of_scale, &j);
    return WF_OK;
}

static void task_of_add_constant(void *arg, int64_t begin, int64_t end, int worker)
{
    const job *j = arg;

    (void)worker;
    for (int64_t i = begin; i < end; i++)
        j->y[i] = j->a[i] + j->constant;
}

static wf_status add_constant(const wf_call *call, void *workspace)
{
    job j = job_of(call);

    (void)workspace;
    j.constant = ((const wf_add_constant_attr *)call->attr)->value;
    wf_team_run(wf_cpu_of(call)->team, wf_tensor_local_count(call->out[0]), WF_TASK_ELEMENTS,
                task_of_add_constant, &j);
    return WF_OK;
}

static wf_status silu(const wf_call *call, void *workspace)
{
    (void)workspace;
    return run_one(call, wf_cpu_of(call)->simd->silu);
}

static wf_status silu_grad(const wf_call *call, void *workspace)
{
    (void)workspace;
    return run_two(call, wf_cpu_of(call)->simd->silu_grad);
}

static wf_status gelu(const wf_call *call, void *workspace)
{
    (void)workspace;
    return run_one(call, wf_cpu_of(call)->simd->gelu);
}

static wf_status gelu_grad(const wf_call *call, void *workspace)
{
    (void)workspace;
    return run_two(call, wf_cpu_of(call)->simd->gelu_grad);
}

static wf_status swiglu(const wf_call *call, void *workspace)
{
    (void)workspace;
    return run_two(call, wf_cpu_of(call)->simd->swiglu);
}

static void task_of_swiglu_grad(void *arg, int64_t begin, int64_t end, int worker)
{
    const wf_call *call = arg;
    const float *gate = call->in[0]->data, *up = call->in[1]->data, *dy = call->in[2]->data;
    float *dgate = call->out[0]->data, *dup = call->out[1]->data;

    (void)worker;
    wf_cpu_of(call)->simd->swiglu_grad(gate + begin, up + begin, dy + begin, dgate + begin,
                                       dup + begin, end - begin);
}

static wf_status swiglu_grad(const wf_call *call, void *workspace)
{
    (void)workspace;
    wf_team_run(wf_cpu_of(call)->team, wf_tensor_local_count(call->out[0]), WF_TASK_ELEMENTS,
                task_of_swiglu_grad, (void *)call);
    return WF_OK;
}

const wf_kernel wf_cpu_swiglu = {.run = swiglu};
const wf_kernel wf_cpu_swiglu_grad = {.run = swiglu_grad};
const wf_kernel wf_cpu_add = {.run = add};
const wf_kernel wf_cpu_sub = {.run = sub};
const wf_kernel wf_cpu_mul = {.run = mul};
const wf_kernel wf_cpu_scale = {.run = scale};
const wf_kernel wf_cpu_add_constant = {.run = add_constant};
const wf_kernel wf_cpu_silu = {.run = silu};
const wf_kernel wf_cpu_silu_grad = {.run = silu_grad};
const wf_kernel wf_cpu_gelu = {.run = gelu};
const wf_kernel wf_cpu_gelu_grad = {.run = gelu_grad};

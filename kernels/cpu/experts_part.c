/* kernels/cpu/experts_part.c - experts of a part of their features on the CPU: sums of their
   rows over the experts of a token; the rest is the kernels of experts. */
#include "kernels/cpu/moe_internal.h"

const wf_kernel wf_cpu_experts_part = {.run = wf_moe_forward,
                                       .workspace = wf_moe_workspace,
                                       .mixed_ok = WF_OUT(0),
                                       .all_bf16 = WF_MOE_FORWARD};
const wf_kernel wf_cpu_experts_part_dx = {.run = wf_moe_gradient,
                                          .workspace = wf_moe_workspace,
                                          .mixed_ok = WF_OUT(0),
                                          .all_bf16 = WF_MOE_GRAD};
const wf_kernel wf_cpu_experts_part_grad = {.run = wf_moe_gradient,
                                            .workspace = wf_moe_workspace,
                                            .mixed_ok = WF_OUT(3),
                                            .all_bf16 = WF_MOE_GRAD};

/* Describes the rows as those of a job whose slots are choices. */
static wf_moe_job job_of(const wf_call *call, void *workspace)
{
    const wf_tensor *index = call->in[1], *rows = call->in[2];
    wf_moe_job j = {.call = call,
                    .cpu = wf_cpu_of(call),
                    .bf16 = rows->dtype == WF_BF16,
                    .bytes = (int64_t)wf_dtype_size(rows->dtype),
                    .rows = rows->data,
                    .scratch = workspace};

    j.s = (wf_moe_sizes){.tokens = wf_extent(index, 0, index->ndim - 1),
                         .k = index->local[index->ndim - 1],
                         .d = rows->local[rows->ndim - 1],
                         .all = ((const wf_experts_sum_attr *)call->attr)->experts};
    j.scratch_size = ((j.s.k + 1) * j.s.d + 15) / 16 * 16;
    return j;
}

static size_t sum_workspace(const wf_call *call)
{
    const wf_moe_job j = job_of(call, NULL);

    return (size_t)(wf_thread_pool_size(j.cpu->pool) * j.scratch_size) * sizeof(float);
}

static double as_float(const void *data, int64_t e)
{
    return (double)((const float *)data)[e];
}

static wf_status sum(const wf_call *call, void *workspace)
{
    const wf_experts_sum_attr *a = call->attr;
    wf_moe_job j = job_of(call, workspace);
    wf_moe_combination c = {.j = &j,
                            .weights = a->unweighted ? NULL : call->in[0]->data,
                            .index = call->in[1]->data,
                            .y = call->out[0],
                            .round = a->rounds};

    if (wf_moe_check_choices(call, call->in[1], &j.s, as_float) != WF_OK)
        return WF_EINVAL;
    wf_thread_pool_run(j.cpu->pool, j.s.tokens, wf_task_rows(j.s.k * j.s.d),
                       wf_moe_combine_task, &c);
    return WF_OK;
}

const wf_kernel wf_cpu_experts_sum = {
    .run = sum, .workspace = sum_workspace, .mixed_ok = WF_IN(2) | WF_OUT(0)};

static void dot_rows(const wf_row_run *r)
{
    const wf_tensor *c = r->call->in[0];
    const int64_t f = c->local[c->ndim - 1];

    for (int64_t i = 0; i < r->n; i++)
        r->out[0][i] = r->simd->dot(r->in[0] + i * f, r->in[1] + i * f, f) + 0.0F;
}

static wf_status dot(const wf_call *call, void *workspace)
{
    return wf_cpu_run_rows(call, workspace, wf_tensor_local_count(call->out[0]),
                           WF_IN(0) | WF_IN(1) | WF_OUT(0), dot_rows);
}

const wf_kernel wf_cpu_experts_dot = {.run = dot};

/*
 * kernels/cuda/route_capacity.cu - the choices that experts take on the GPU: a thread for an
 * expert of a sequence goes through all choices of it, and writes those of its own.
 *
 * An index of no expert, which the CPU refuses, is NaN.
 */
#include "kernels/cuda/operands_internal.h"
#include "kernels/route_capacity_internal.h"

namespace
{
struct capacity_job {
    wf_capacity capacity;
    const float *index;
    const int32_t *with; /* firsts of documents, or counts of earlier tokens; or NULL */
    float *out;
    int64_t sequences, tokens, k;
};

/* Takes what is no expert's, too, where e is the first one. */
__device__ void take_choices(const capacity_job &j, int64_t b, int64_t e)
{
    const int64_t each = j.tokens * j.k, experts = j.capacity.experts;
    const float *from = j.index + b * each;
    float *to = j.out + b * each;
    int64_t count = j.with && j.capacity.resumes ? j.with[b * experts + e] : 0;

    for (int64_t i = 0; i < each; i++) {
        const int64_t t = i / j.k;

        if (i == t * j.k && j.with && !j.capacity.resumes && j.with[b * j.tokens + t] == t)
            count = 0;
        if (from[i] == (float)e)
            to[i] = count++ < j.capacity.most ? (float)e : (float)experts;
        else if (e == 0 && !wf_moe_is_expert(from[i], experts))
            to[i] = NAN;
    }
}

__global__ void __launch_bounds__(WF_BLOCK) capacity_kernel(capacity_job j)
{
    const int64_t step = (int64_t)gridDim.x * WF_BLOCK, n = j.capacity.experts;

    for (int64_t i = (int64_t)blockIdx.x * WF_BLOCK + threadIdx.x; i < j.sequences * n;
         i += step)
        take_choices(j, i / n, i % n);
}

wf_status route_capacity(const wf_call *call, void *)
{
    const wf_tensor *index = call->in[0];
    capacity_job j = {};

    j.capacity = *(const wf_capacity *)call->attr;
    j.index = (const float *)index->data;
    j.with = call->n_in > 1 ? (const int32_t *)call->in[1]->data : NULL;
    j.out = (float *)call->out[0]->data;
    j.sequences = index->local[0];
    j.tokens = index->local[1];
    j.k = index->local[2];
    return wf_run(call, [&](auto) {
        return wf_launch(capacity_kernel, wf_grid(j.sequences * j.capacity.experts, WF_BLOCK),
                         WF_BLOCK, 0, wf_cuda_of(call)->stream, j);
    });
}
} // namespace

const wf_kernel wf_cuda_route_capacity = {route_capacity, NULL, 0, 0};

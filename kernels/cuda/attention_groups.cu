/*
 * kernels/cuda/attention_groups.cu - query heads that share keys and values: a group's copied
 * to each of its heads, for attention that knows no groups; and dk, dv of a group from those of
 * its heads.
 *
 * The sum is the midpoint tree over the 8 chunks of the (global) query heads; a chunk is the
 * chain over its heads that belong to the group, +0 where there is none.
 */
#include "kernels/cuda/attention_internal.h"
#include "kernels/cuda/launch_internal.h"
#include "kernels/cuda/tree_internal.h"

namespace
{

/* A thread for each pack of a head: k and v of its group, to [batch, tokens, heads, dim]. */
__global__ void spread_kernel(wf_cuda_heads a, uint4 *k, uint4 *v)
{
    int64_t packs = a.dim / wf_pack<wf_bf16>::N, step = (int64_t)gridDim.x * blockDim.x;
    int64_t n = a.batch * a.key_tokens.count * a.heads * packs;

    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        int64_t head = i / packs % a.heads, token = i / packs / a.heads;
        int64_t group = (a.first_head + head) / a.per_group - a.first_group;
        int64_t at = (token * a.groups + group) * packs + i % packs;

        k[i] = ((const uint4 *)a.k)[at];
        v[i] = ((const uint4 *)a.v)[at];
    }
}

/* Returns the chain over the group's heads in one chunk. */
template <class P>
__device__ __forceinline__ float chunk_sum(const P *parts, int64_t begin, int64_t end,
                                           int64_t step)
{
    float sum = 0.0f;

    for (int64_t head = begin; head < end; head++)
        sum = head == begin ? wf_get(parts[head * step]) : sum + wf_get(parts[head * step]);
    return sum + 0.0f;
}

/* One thread for an element of dk and of dv; P: the type of the heads', T: of the results. */
template <int CHUNKS, class P, class T> __global__ void group_kernel(wf_cuda_heads a)
{
    int64_t n = a.batch * a.dk_tokens.count * a.groups * a.dim;
    int64_t step = (int64_t)gridDim.x * blockDim.x;

    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        int64_t d = i % a.dim, group = i / a.dim % a.groups, token = i / a.dim / a.groups;
        int64_t first = (a.first_group + group) * a.per_group - a.first_head;
        int64_t at = token * a.heads * a.dim + d;
        float dk[CHUNKS], dv[CHUNKS];

#pragma unroll
        for (int l = 0; l < CHUNKS; l++) {
            int64_t begin = a.chunk[l] > first ? a.chunk[l] : first;
            int64_t last = first + a.per_group,
                    end = a.chunk[l + 1] < last ? a.chunk[l + 1] : last;

            dk[l] = chunk_sum((const P *)a.dk_parts + at, begin, end, a.dim);
            dv[l] = chunk_sum((const P *)a.dv_parts + at, begin, end, a.dim);
        }
        wf_put((T *)a.dk + i, wf_tree_of<CHUNKS>(dk));
        wf_put((T *)a.dv + i, wf_tree_of<CHUNKS>(dv));
    }
}

template <class P, class T> cudaError_t launch_sums(cudaStream_t stream, const wf_cuda_heads *a)
{
    int64_t elements = a->batch * a->dk_tokens.count * a->groups * a->dim;

    return wf_launch(a->chunks == 1 ? group_kernel<1, P, T> : group_kernel<WF_MAX_CHUNKS, P, T>,
                     wf_grid(elements, WF_BLOCK), WF_BLOCK, 0, stream, *a);
}

template <class P> cudaError_t launch_sums_of(cudaStream_t stream, const wf_cuda_heads *a)
{
    return a->dk_type == WF_BF16 ? launch_sums<P, wf_bf16>(stream, a)
                                 : launch_sums<P, float>(stream, a);
}

} // namespace

cudaError_t wf_cuda_launch_group_sums(cudaStream_t stream, const wf_cuda_heads *a)
{
    return a->parts_type == WF_BF16 ? launch_sums_of<wf_bf16>(stream, a)
                                    : launch_sums_of<float>(stream, a);
}

cudaError_t wf_cuda_launch_spread(cudaStream_t stream, const wf_cuda_heads *a, void *k, void *v)
{
    int64_t n = a->batch * a->key_tokens.count * a->heads * (a->dim / wf_pack<wf_bf16>::N);

    return wf_launch(spread_kernel, wf_grid(n, WF_BLOCK), WF_BLOCK, 0, stream, *a, (uint4 *)k,
                     (uint4 *)v);
}

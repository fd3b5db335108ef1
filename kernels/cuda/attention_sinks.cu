/*
 * kernels/cuda/attention_sinks.cu - sinks added to attention of bf16 that was made without
 * them, as cuDNN makes it: a sink s is one more term e^s of each row's sum, of value 0, so
 *
 *     lse' = log(e^lse + e^s)        y' = y e^(lse - lse')
 *
 * y is rounded to bf16 before and after.
 */
#include "kernels/cuda/attention_internal.h"
#include "kernels/cuda/launch_internal.h"

namespace
{

/* Returns log(e^a + e^b). */
__device__ __forceinline__ float log_of_sum(float a, float b)
{
    return (a > b ? a : b) + log1pf(expf(-fabsf(a - b)));
}

/* A thread for each pack of whole rows: one of them writes what all of a row have read. */
__global__ void __launch_bounds__(WF_BLOCK) add_sinks_kernel(wf_cuda_heads a)
{
    constexpr int PACK = wf_pack<wf_bf16>::N;
    const int64_t packs = a.dim / PACK, per_block = WF_BLOCK / packs;
    const int64_t rows = a.batch * a.query_tokens.count * a.heads;

    for (int64_t first = blockIdx.x * per_block; first < rows; first += gridDim.x * per_block) {
        const int64_t row = first + threadIdx.x / packs, pack = threadIdx.x % packs;
        const bool here = (int64_t)threadIdx.x < per_block * packs && row < rows;
        float sum = 0.0f;

        if (here) {
            wf_bf16 *y = (wf_bf16 *)a.y + row * a.dim + pack * PACK;
            float part[PACK], factor;

            sum = log_of_sum(a.lse[row], a.sinks[row % a.heads]);
            factor = expf(a.lse[row] - sum);
            wf_unpack(wf_read(y, PACK, true), part);
            for (int i = 0; i < PACK; i++)
                part[i] *= factor;
            wf_store_pack(y, part);
        }
        __syncthreads();
        if (here && pack == 0)
            a.lse[row] = sum;
    }
}

} // namespace

cudaError_t wf_cuda_launch_add_sinks(cudaStream_t stream, const wf_cuda_heads *a)
{
    const int64_t rows = a->batch * a->query_tokens.count * a->heads;
    const int64_t packs = a->dim / wf_pack<wf_bf16>::N;

    return wf_launch(add_sinks_kernel, wf_grid(rows, WF_BLOCK / packs), WF_BLOCK, 0, stream,
                     *a);
}

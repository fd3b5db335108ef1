/*
 * kernels/cuda/attention_mma.cu - attention of bf16 by mma.sync, which every GPU from
 * compute capability 8.0 on has; and what its gradients begin with, by whatever they are made.
 */
#include "kernels/cuda/attention_mma_internal.h"
#include "kernels/cuda/attention_tensor_forward_internal.h"
#include "kernels/cuda/attention_tensor_grad_internal.h"

namespace
{

/* delta = y . dy: a row has as many lanes as its packs, up to the next power of two, a pack
   each. */
__global__ void __launch_bounds__(WF_BLOCK)
    tensor_delta_kernel(const WF_GRID_CONSTANT wf_cuda_heads a)
{
    constexpr int PACK = wf_pack<wf_bf16>::N;
    const int64_t rows = a.batch * a.query_tokens.count * a.heads;
    const int packs = (int)a.dim / PACK, lanes = packs > 16 ? 32 : packs > 8 ? 16 : 8;
    const int own = (int)threadIdx.x % lanes, per_block = WF_BLOCK / lanes;

    for (int64_t first = blockIdx.x * (int64_t)per_block; first < rows;
         first += gridDim.x * (int64_t)per_block) {
        const int64_t row = first + (int)threadIdx.x / lanes, at = row * a.dim + own * PACK;
        float sum = 0.0f;

        if (row < rows && own < packs) {
            const wf_pack<wf_bf16> one = wf_read((const wf_bf16 *)a.y + at, PACK, true);
            const wf_pack<wf_bf16> other = wf_read((const wf_bf16 *)a.dy + at, PACK, true);
            float y[PACK], dy[PACK];

            wf_unpack(one, y);
            wf_unpack(other, dy);
#pragma unroll
            for (int i = 0; i < PACK; i++)
                sum = fmaf(y[i], dy[i], sum);
        }
        for (int step = lanes / 2; step > 0; step /= 2)
            sum += __shfl_xor_sync(0xffffffffu, sum, step);
        if (own == 0 && row < rows)
            a.delta[row] = sum;
    }
}

} // namespace

const wf_attention_kernels wf_cuda_attention_mma = {launch_outputs<attention_mma>,
                                                    launch_gradients<attention_mma>};

cudaError_t wf_cuda_launch_tensor_delta(cudaStream_t stream, const wf_cuda_heads *a)
{
    const int64_t packs = a->batch * a->query_tokens.count * a->heads * (a->dim / 8);

    return wf_launch(tensor_delta_kernel, wf_grid(packs, WF_BLOCK), WF_BLOCK, 0, stream, *a);
}

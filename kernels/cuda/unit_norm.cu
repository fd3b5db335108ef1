/*
 * kernels/cuda/unit_norm.cu - the row unit_norm of kernels/optimizer.c: squares are added as
 * those of a norm of gradients are, and each thread has the factor from the exact sum.
 */
#include "kernels/cuda/operands_internal.h"
#include "kernels/unit_norm_internal.h"

namespace
{
__global__ void __launch_bounds__(WF_BLOCK)
    unit_kernel(float *x, const wf_exact_sum *squares, double eps, int64_t n, bool wide)
{
    constexpr int PACK = wf_pack<float>::N;
    WF_SHARED(float, factor, 1);
    WF_SHARED(wf_exact_sum, sum, 1); /* its limbs are indexed */
    const int64_t step = (int64_t)gridDim.x * WF_BLOCK * PACK;

    if (threadIdx.x == 0) {
        *sum = *squares;
        *factor = wf_unit_factor(sum, eps);
    }
    __syncthreads();
    for (int64_t i = ((int64_t)blockIdx.x * WF_BLOCK + threadIdx.x) * PACK; i < n; i += step) {
        float v[PACK];

        wf_load(x + i, n - i, wide, v);
#pragma unroll
        for (int k = 0; k < PACK; k++)
            v[k] = *factor * v[k];
        wf_store(x + i, n - i, wide, v);
    }
}

size_t unit_norm_bytes(const wf_call *)
{
    return sizeof(wf_exact_sum);
}

wf_status unit_norm(const wf_call *call, void *workspace)
{
    wf_device *device = wf_cuda_host_table->context_device(call->ctx);
    wf_exact_sum *squares = (wf_exact_sum *)workspace;
    wf_tensor *x = call->in[0];
    const int64_t n = wf_count(x);

    device->memory->fill(device, squares, 0, (int64_t)(sizeof *squares / sizeof(uint32_t)));
    device->sum_squares(1, &x, squares);
    return wf_run(call, [&](auto) {
        return wf_launch(unit_kernel, wf_grid(wf_ceil(n, wf_pack<float>::N), WF_BLOCK),
                         WF_BLOCK, 0, wf_cuda_of(call)->stream, (float *)x->data, squares,
                         *(const double *)call->attr, n, (uintptr_t)x->data % 16 == 0);
    });
}
} // namespace

const wf_kernel wf_cuda_unit_norm = {unit_norm, unit_norm_bytes, 0, 0};

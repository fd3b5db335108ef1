/* kernels/cuda/conv.cu - the rows of kernels/conv.c: a thread for each element of the
   result. */
#include "kernels/conv_internal.h"
#include "kernels/cuda/operands_internal.h"

namespace
{
/* y[b, position, c, k] */
template <class T>
__global__ void __launch_bounds__(WF_BLOCK)
    patches_kernel(const T *x, T *y, int64_t count, wf_patch_job j)
{
    const int64_t step = (int64_t)gridDim.x * WF_BLOCK, n = j.out[0] * j.out[1];

    for (int64_t e = (int64_t)blockIdx.x * WF_BLOCK + threadIdx.x; e < count; e += step) {
        int64_t k = e % j.taps, c = e / j.taps % j.channels, at = e / (j.taps * j.channels);
        int64_t pixel = wf_patch_pixel(&j, at % n, k);

        if (pixel < 0)
            wf_put(y + e, 0.0f);
        else
            y[e] = x[(at / n * j.in[0] * j.in[1] + pixel) * j.channels + c];
    }
}

/* dx[b, pixel, c] */
template <class T>
__global__ void __launch_bounds__(WF_BLOCK)
    patches_grad_kernel(const T *dy, T *dx, int64_t count, wf_patch_job j)
{
    const int64_t step = (int64_t)gridDim.x * WF_BLOCK;
    const int64_t n = j.out[0] * j.out[1], pixels = j.in[0] * j.in[1];

    for (int64_t e = (int64_t)blockIdx.x * WF_BLOCK + threadIdx.x; e < count; e += step) {
        int64_t c = e % j.channels, at = e / j.channels;
        float sum = 0.0f;

        for (int64_t k = 0; k < j.taps; k++) {
            int64_t position = wf_patch_position(&j, at % pixels, k);

            if (position >= 0)
                sum += wf_get(dy[((at / pixels * n + position) * j.channels + c) * j.taps + k]);
        }
        wf_put(dx + e, sum);
    }
}

wf_status patches(const wf_call *call, void *)
{
    const wf_tensor *x = call->in[0], *y = call->out[0];
    const wf_patch_job j = wf_patch_job_of(call, x, y);

    return wf_run(call, [&](auto zero) {
        typedef decltype(zero) T;

        return wf_launch(patches_kernel<T>, wf_grid(wf_count(y), WF_BLOCK), WF_BLOCK, 0,
                         wf_cuda_of(call)->stream, (const T *)x->data, (T *)y->data,
                         wf_count(y), j);
    });
}

wf_status patches_grad(const wf_call *call, void *)
{
    const wf_tensor *dy = call->in[1], *dx = call->out[0];
    const wf_patch_job j = wf_patch_job_of(call, dx, dy);

    return wf_run(call, [&](auto zero) {
        typedef decltype(zero) T;

        return wf_launch(patches_grad_kernel<T>, wf_grid(wf_count(dx), WF_BLOCK), WF_BLOCK, 0,
                         wf_cuda_of(call)->stream, (const T *)dy->data, (T *)dx->data,
                         wf_count(dx), j);
    });
}
} // namespace

const wf_kernel wf_cuda_patches = {patches, NULL, 0, WF_IN(0) | WF_OUT(0)};
const wf_kernel wf_cuda_patches_grad = {patches_grad, NULL, 0, WF_IN(1) | WF_OUT(0)};

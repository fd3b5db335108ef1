/* kernels/cuda/dropout.cu - the rows of kernels/dropout.c. */
#include "kernels/cuda/dropout_internal.h"

namespace
{
/* y = (base +) dropout(x) */
template <class T>
__global__ void __launch_bounds__(WF_BLOCK)
    dropout_kernel(wf_dropper d, const T *base, const T *x, T *y, int64_t n, bool wide)
{
    constexpr int PACK = wf_pack<T>::N;
    const int64_t step = (int64_t)gridDim.x * WF_BLOCK * PACK;

    for (int64_t i = ((int64_t)blockIdx.x * WF_BLOCK + threadIdx.x) * PACK; i < n; i += step) {
        wf_pack<T> raw = wf_read(x + i, n - i, wide), below = raw;
        float v[PACK], sum[PACK];

        if (base)
            below = wf_read(base + i, n - i, wide);
        wf_unpack(raw, v);
        wf_drop<PACK>(d, i, n - i, v);
        if (base) {
            wf_unpack(below, sum);
#pragma unroll
            for (int e = 0; e < PACK; e++)
                v[e] = sum[e] + v[e];
        }
        wf_store(y + i, n - i, wide, v);
    }
}

wf_status dropout(const wf_call *call, void *)
{
    bool add = call->n_in == 2;
    const wf_tensor *x = call->in[add];
    wf_dropper d = wf_dropper_of(call, (const wf_dropout_attr *)call->attr, x);
    int64_t n = wf_count(x);

    return wf_run(call, [&](auto zero) {
        typedef decltype(zero) T;
        const T *base = add ? (const T *)call->in[0]->data : NULL;
        uintptr_t bits = (uintptr_t)base | (uintptr_t)x->data | (uintptr_t)call->out[0]->data;

        return wf_launch(dropout_kernel<T>, wf_grid(wf_ceil(n, wf_pack<T>::N), WF_BLOCK),
                         WF_BLOCK, 0, wf_cuda_of(call)->stream, d, base, (const T *)x->data,
                         (T *)call->out[0]->data, n, bits % 16 == 0);
    });
}
} // namespace

const wf_kernel wf_cuda_dropout = {dropout, NULL, 0, WF_IN(0) | WF_OUT(0)};
const wf_kernel wf_cuda_dropout_add = {dropout, NULL, 0, WF_IN(0) | WF_IN(1) | WF_OUT(0)};

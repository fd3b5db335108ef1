/* kernels/cuda/rows.cu - rows of a table by position, their gradient, and their sum with
   tokens. */
#include "kernels/cuda/operands_internal.h"
#include "kernels/cuda/row_map_internal.h"

namespace
{
struct first_of_two {
    __device__ float operator()(float, float v) const
    {
        return v;
    }
};

struct plus_row {
    __device__ float operator()(float x, float row) const
    {
        return x + row;
    }
};

/* Copies a table's first rows, which are its first elements. */
wf_status rows(const wf_call *call, void *)
{
    wf_row_map a = {NULL, wf_vector_of(call->in[0]), call->out[0]->data,
                    1,    wf_count(call->out[0]),    false};

    return wf_run(call, [&](auto zero) {
        return wf_map_rows<decltype(zero), false>(wf_cuda_of(call)->stream, first_of_two{}, a);
    });
}

template <class T>
__global__ void __launch_bounds__(WF_BLOCK)
    pad_rows_kernel(wf_vector x, T *y, int64_t n, int64_t all)
{
    const int64_t step = (int64_t)gridDim.x * WF_BLOCK;

    for (int64_t i = (int64_t)blockIdx.x * WF_BLOCK + threadIdx.x; i < all; i += step)
        wf_put(y + i, i < n ? wf_at(x, i) : 0.0f);
}

wf_status rows_grad(const wf_call *call, void *)
{
    int64_t n = wf_count(call->in[1]), all = wf_count(call->out[0]);

    return wf_run(call, [&](auto zero) {
        typedef decltype(zero) T;

        return wf_launch(pad_rows_kernel<T>, wf_grid(all, WF_BLOCK), WF_BLOCK, 0,
                         wf_cuda_of(call)->stream, wf_vector_of(call->in[1]),
                         (T *)call->out[0]->data, n, all);
    });
}

wf_status position_add(const wf_call *call, void *)
{
    wf_row_map a = {call->in[0]->data,     wf_vector_of(call->in[1]), call->out[0]->data,
                    call->in[0]->local[0], wf_count(call->in[1]),     false};

    return wf_run(call, [&](auto zero) {
        return wf_map_rows<decltype(zero), true>(wf_cuda_of(call)->stream, plus_row{}, a);
    });
}
} // namespace

const wf_kernel wf_cuda_rows = {rows, NULL, WF_IN(0), WF_OUT(0)};
const wf_kernel wf_cuda_rows_grad = {rows_grad, NULL, WF_IN(1), WF_OUT(0)};
const wf_kernel wf_cuda_position_add = {position_add, NULL, WF_IN(1), WF_IN(0) | WF_OUT(0)};

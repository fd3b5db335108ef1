/* kernels/cuda/row_ops.cu - the rows of kernels/row_ops.c: a thread for each row. */
#include "kernels/cuda/operands_internal.h"
#include "kernels/row_ops_internal.h"

namespace
{
#define T        float
#define ROW_LOOP __device__ inline
#include "kernels/row_loops_internal.h"
#undef ROW_LOOP
#undef T

template <class LOOP>
__global__ void __launch_bounds__(WF_BLOCK) row_loop_kernel(LOOP loop, wf_row_job j)
{
    const int64_t step = (int64_t)gridDim.x * WF_BLOCK;

    for (int64_t r = (int64_t)blockIdx.x * WF_BLOCK + threadIdx.x; r < j.rows; r += step) {
        const float *in[3] = {};
        float *out[2] = {};

        for (int i = 0; i < j.n_in; i++)
            in[i] = (const float *)j.in[i] + r * j.width_in[i];
        for (int o = 0; o < j.n_out; o++)
            out[o] = (float *)j.out[o] + r * j.width_out[o];
        loop(&j, r, in, out);
    }
}

#define ROW_OP(name)                                                                           \
    struct name##_loop {                                                                       \
        __device__ void operator()(const wf_row_job *j, int64_t row, const float *const *in,   \
                                   float *const *out) const                                    \
        {                                                                                      \
            name##_row(j, row, in, out);                                                       \
        }                                                                                      \
    };                                                                                         \
    wf_status name(const wf_call *call, void *)                                                \
    {                                                                                          \
        const wf_row_job j = wf_row_job_of(call);                                              \
                                                                                               \
        return wf_run(call, [&](auto) {                                                        \
            return wf_launch(row_loop_kernel<name##_loop>, wf_grid(j.rows, WF_BLOCK),          \
                             WF_BLOCK, 0, wf_cuda_of(call)->stream, name##_loop{}, j);         \
        });                                                                                    \
    }
ROW_OPS
#undef ROW_OP
} // namespace

#define ROW_OP(name) const wf_kernel wf_cuda_##name = {name, NULL, 0, 0};
ROW_OPS
#undef ROW_OP

/*
 * kernels/cuda/moe_part.cu - rows of choices on the GPU (kernels/experts_part.h): between them
 * and the rows of experts.
 */
#include "kernels/cuda/moe_rows_internal.h"
#include "kernels/cuda/operands_internal.h"

namespace
{
/* Choices of other ranks' experts are zeros, those of none NaN. */
__global__ void __launch_bounds__(WF_BLOCK)
    clear_rows_kernel(const int *expert, float *rows, int64_t choices, int64_t n)
{
    const int64_t step = (int64_t)gridDim.x * WF_BLOCK;

    for (int64_t i = (int64_t)blockIdx.x * WF_BLOCK + threadIdx.x; i < choices * n; i += step)
        rows[i] = expert[i / n] == WF_MOE_NONE ? NAN : 0.0f;
}

template <class T>
__global__ void __launch_bounds__(WF_BLOCK) put_rows_kernel(wf_moe_row_copy c)
{
    const int64_t step = (int64_t)gridDim.x * WF_BLOCK, all = *c.rows * c.n;

    for (int64_t i = (int64_t)blockIdx.x * WF_BLOCK + threadIdx.x; i < all; i += step)
        c.of_choices[c.choice[i / c.n] * c.n + i % c.n] = wf_get(((const T *)c.matrix.data)[i]);
}

template <class T>
__global__ void __launch_bounds__(WF_BLOCK) get_rows_kernel(wf_moe_row_copy c)
{
    const int64_t step = (int64_t)gridDim.x * WF_BLOCK, all = *c.rows * c.n;

    for (int64_t i = (int64_t)blockIdx.x * WF_BLOCK + threadIdx.x; i < all; i += step)
        wf_put((T *)c.out + i, c.of_choices[c.choice[i / c.n] * c.n + i % c.n] * c.factor);
}

/* of_choices: their weights. */
template <class T>
__global__ void __launch_bounds__(WF_BLOCK) weigh_rows_kernel(wf_moe_row_copy c)
{
    const int64_t step = (int64_t)gridDim.x * WF_BLOCK, all = *c.rows * c.n;

    for (int64_t i = (int64_t)blockIdx.x * WF_BLOCK + threadIdx.x; i < all; i += step) {
        const int64_t r = i / c.n, from = c.matrix.token ? c.matrix.token[r] : r;

        wf_put((T *)c.out + i, wf_get(((const T *)c.matrix.data)[from * c.n + i % c.n]) *
                                   c.of_choices[c.choice[r]]);
    }
}

__global__ void __launch_bounds__(WF_BLOCK) identity_kernel(wf_moe_lists l)
{
    const int64_t step = (int64_t)gridDim.x * WF_BLOCK;

    for (int64_t c = (int64_t)blockIdx.x * WF_BLOCK + threadIdx.x; c < l.choices; c += step) {
        l.expert[c] = wf_moe_own_expert(&l, c);
        l.row[c] = l.expert[c] < 0 ? -1 : (int)c;
    }
}

__global__ void __launch_bounds__(WF_BLOCK)
    round_rows_kernel(const float *rows, wf_bf16 *to, int64_t count)
{
    const int64_t step = (int64_t)gridDim.x * WF_BLOCK;

    for (int64_t i = (int64_t)blockIdx.x * WF_BLOCK + threadIdx.x; i < count; i += step)
        wf_put(to + i, rows[i]);
}

cudaError_t launch_copy(cudaStream_t stream, const wf_moe_row_copy *c, const wf_moe_lists *l,
                        void (*floats)(wf_moe_row_copy), void (*halves)(wf_moe_row_copy))
{
    return wf_launch(c->type == WF_BF16 ? halves : floats, wf_grid(l->choices * c->n, WF_BLOCK),
                     WF_BLOCK, 0, stream, *c);
}
} // namespace

cudaError_t wf_cuda_launch_moe_clear(cudaStream_t stream, const wf_moe_lists *l, float *rows,
                                     int64_t n)
{
    return wf_launch(clear_rows_kernel, wf_grid(l->choices * n, WF_BLOCK), WF_BLOCK, 0, stream,
                     l->expert, rows, l->choices, n);
}

cudaError_t wf_cuda_launch_moe_put(cudaStream_t stream, const wf_moe_row_copy *c,
                                   const wf_moe_lists *l)
{
    return launch_copy(stream, c, l, put_rows_kernel<float>, put_rows_kernel<wf_bf16>);
}

cudaError_t wf_cuda_launch_moe_get(cudaStream_t stream, const wf_moe_row_copy *c,
                                   const wf_moe_lists *l)
{
    return launch_copy(stream, c, l, get_rows_kernel<float>, get_rows_kernel<wf_bf16>);
}

cudaError_t wf_cuda_launch_moe_weigh(cudaStream_t stream, const wf_moe_row_copy *c,
                                     const wf_moe_lists *l)
{
    return launch_copy(stream, c, l, weigh_rows_kernel<float>, weigh_rows_kernel<wf_bf16>);
}

cudaError_t wf_cuda_launch_moe_identity(cudaStream_t stream, const wf_moe_lists *l)
{
    return wf_launch(identity_kernel, wf_grid(l->choices, WF_BLOCK), WF_BLOCK, 0, stream, *l);
}

cudaError_t wf_cuda_launch_moe_round(cudaStream_t stream, const float *rows, void *to,
                                     int64_t count)
{
    return wf_launch(round_rows_kernel, wf_grid(count, WF_BLOCK), WF_BLOCK, 0, stream, rows,
                     (wf_bf16 *)to, count);
}

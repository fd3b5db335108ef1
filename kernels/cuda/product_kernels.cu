/*
 * kernels/cuda/product_kernels.cu - what products of chunks need beside cuBLASLt: the midpoint
 * tree over up to eight chunks in one pass, and copies with zeros after them.
 *
 * A chunk counts as chunk + 0: a product that underflows may be -0, and an empty chunk of
 * another layout would make it +0 (core/numerics/tree.h). So every zero of a tree is +0.
 */
#include "kernels/cuda/product_finish_internal.h"
#include "kernels/cuda/tree_internal.h"

enum { QUAD = 4, MOST_ROWS = 32768 };

namespace
{

/* The rows of a matrix that a thread of launch_plane takes. */
__device__ __forceinline__ int64_t first_row(void)
{
    return (int64_t)blockIdx.y * blockDim.y + threadIdx.y;
}

__device__ __forceinline__ int64_t row_step(void)
{
    return (int64_t)gridDim.y * blockDim.y;
}

/* Four neighbours of the tree; chunks are read 16 bytes at a time, their rows are aligned. */
template <int N>
__device__ __forceinline__ void join_four(const wf_cuda_join &j, int64_t row, int64_t column,
                                          float (&sum)[QUAD])
{
    float chunk[QUAD][N > 0 ? N : 1];

#pragma unroll
    for (int l = 0; l < N; l++) {
        float4 x = make_float4(0.0f, 0.0f, 0.0f, 0.0f);

        if (j.from[l])
            x = *(const float4 *)(j.from[l] + row * j.from_ld + column);
        chunk[0][l] = x.x + 0.0f;
        chunk[1][l] = x.y + 0.0f;
        chunk[2][l] = x.z + 0.0f;
        chunk[3][l] = x.w + 0.0f;
    }
#pragma unroll
    for (int c = 0; c < QUAD; c++)
        sum[c] = wf_tree_of<N>(chunk[c]);
}

/* One thread for four neighbours; where heads are rotated for those of the second half too. */
template <int N, class T> __global__ void join_kernel(wf_cuda_join j)
{
    int64_t column = QUAD * ((int64_t)blockIdx.x * blockDim.x + threadIdx.x);
    const int half = j.result.rotation.cosine ? j.result.rotation.half : 0;

    if (column >= j.columns || (half && column / half % 2))
        return;
    for (int64_t row = first_row(); row < j.rows; row += row_step()) {
        float sum[QUAD], second[QUAD];

        join_four<N>(j, row, column, sum);
        if (half) {
            join_four<N>(j, row, column + half, second);
            wf_finish_rotated(j.result, (T *)j.result.to, row, column, sum, second);
            continue;
        }
#pragma unroll
        for (int c = 0; c < QUAD; c++) {
            if (column + c < j.columns)
                wf_finish(j.result, (T *)j.result.to, row, column + c, sum[c]);
        }
    }
}

template <class T> __global__ void pad_kernel(wf_cuda_padding p)
{
    int64_t column = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    const T *from = (const T *)p.from;
    T *to = (T *)p.to;

    if (column >= p.to_ld)
        return;
    for (int64_t row = first_row(); row < p.to_rows; row += row_step()) {
        bool inside = row < p.rows && column < p.columns;

        to[row * p.to_ld + column] = inside ? from[row * p.from_ld + column] : (T)0;
    }
}

/* Launches a thread for each of `columns`; blocks of narrow matrices have several rows. */
template <class F, class A>
cudaError_t launch_plane(F *kernel, int64_t columns, int64_t rows, cudaStream_t stream,
                         const A &a)
{
    unsigned wide = WF_WARP;
    dim3 grid, block;

    while (wide < WF_BLOCK && wide < columns)
        wide *= 2;
    block = dim3(wide, WF_BLOCK / wide);
    rows = wf_ceil(rows, block.y);
    grid = dim3((unsigned)wf_ceil(columns, wide),
                (unsigned)(rows < MOST_ROWS ? rows : (int64_t)MOST_ROWS));
    return wf_launch(kernel, grid, block, 0, stream, a);
}

template <class T> cudaError_t launch_join(cudaStream_t stream, const wf_cuda_join *j)
{
    static void (*const kernel[])(wf_cuda_join) = {
        join_kernel<0, T>, join_kernel<1, T>, join_kernel<2, T>,
        join_kernel<3, T>, join_kernel<4, T>, join_kernel<5, T>,
        join_kernel<6, T>, join_kernel<7, T>, join_kernel<8, T>};

    return launch_plane(kernel[j->n_from], wf_ceil(j->columns, QUAD), j->rows, stream, *j);
}

} // namespace

cudaError_t wf_cuda_launch_join(cudaStream_t stream, const wf_cuda_join *j)
{
    return j->result.type == WF_BF16 ? launch_join<wf_bf16>(stream, j)
                                     : launch_join<float>(stream, j);
}

cudaError_t wf_cuda_launch_pad(cudaStream_t stream, const wf_cuda_padding *p)
{
    return launch_plane(p->size == 2 ? pad_kernel<uint16_t> : pad_kernel<uint32_t>, p->to_ld,
                        p->to_rows, stream, *p);
}

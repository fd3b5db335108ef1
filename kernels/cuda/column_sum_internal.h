/*
 * kernels/cuda/column_sum_internal.h - sums inside each sequence over its tokens, for every column:
 *
 *     out[k][b, i] = midpoint tree over 8 leaves of sum over the leaf's rows r of term k of (b, r, i)
 *
 * Leaves are those of the tokens, or of the heads (wf_leaf_dim): then a leaf's rows are some of every
 * token's. They are dealt to 8 lanes in their order, row q of the leaf to lane q % 8; a lane is a chain of additions from +0
 * (so no sum is ever -0), and the lanes are added 4, 2, 1 apart. A block has 8 packs of columns of one sequence: the
 * 8 leaves times 8 lanes of each are threads, which meet in shared memory.
 */
#ifndef WF_KERNELS_CUDA_COLUMN_SUM_INTERNAL_H
#define WF_KERNELS_CUDA_COLUMN_SUM_INTERNAL_H

#include "kernels/cuda/operands_internal.h"

enum { WF_SUM_PACKS = 8, WF_SUM_LANES = 8, WF_SUM_ROWS = WF_LEAVES * WF_SUM_LANES };

/* The rows of a sequence, `runs` runs of `step` rows: leaf l has those from at[l] to at[l + 1] of
   every run. */
struct wf_row_leaves {
    int64_t at[WF_LEAVES + 1];
    int64_t runs, step;
};

/* Of a tensor [b, tokens.., n], whose dims [1, end) are summed. Where the sum has one leaf, as it
   has under exact off, it is cut in 8 all the same: any fixed order will do. */
static inline wf_row_leaves wf_row_leaves_of(const wf_tensor *x, int end)
{
    wf_row_leaves leaves = {};
    int d = wf_leaf_dim(x->dim, 1, end), first = d < 0 ? 1 : d;
    int64_t inner = d < 0 ? 1 : wf_extent(x, d + 1, end);

    leaves.runs = wf_extent(x, 1, first);
    leaves.step = wf_extent(x, first, end);
    if (d < 0 || wf_cuda_host_table->leaf_cuts(x, d, leaves.at) == 1)
        for (int l = 0; l <= WF_LEAVES; l++)
            leaves.at[l] = wf_cut(leaves.step / inner, 1, WF_LEAVES, l);
    for (int l = 0; l <= WF_LEAVES; l++)
        leaves.at[l] *= inner;
    return leaves;
}

/* Row q of a leaf that has `length` rows of every run, counted in its sequence. */
static __device__ __forceinline__ int64_t wf_row_of_leaf(const wf_row_leaves &leaves, int l,
                                                         int64_t length, int64_t q)
{
    return leaves.at[l] + (leaves.runs == 1 ? q : q / length * leaves.step + q % length);
}

template <int OUT> struct wf_sums {
    float *out[OUT];
    wf_row_leaves leaves;
    int64_t sequences, n;
};

/* Leaf l of column c, of the lanes in shared memory. */
static __device__ __forceinline__ float wf_leaf_of_lanes(const float *sum, int l, int c,
                                                         int columns)
{
    float lane[WF_SUM_LANES];

#pragma unroll
    for (int j = 0; j < WF_SUM_LANES; j++)
        lane[j] = sum[(l * WF_SUM_LANES + j) * columns + c];
#pragma unroll
    for (int apart = WF_SUM_LANES / 2; apart > 0; apart /= 2)
#pragma unroll
        for (int j = 0; j < apart; j++)
            lane[j] += lane[j + apart];
    return lane[0];
}

/* f.terms(b, r, i, n, out): terms of columns i .. i + n - 1 of row r, counted over all sequences:
   out[OUT][PACK], of which those beyond n are not used. */
template <class T, int OUT, class F>
__global__ void __launch_bounds__(WF_SUM_PACKS *WF_SUM_ROWS)
    wf_column_sum_kernel(F f, wf_sums<OUT> a)
{
    constexpr int PACK = wf_pack<T>::N, COLUMNS = WF_SUM_PACKS * PACK;
    WF_SHARED(float, sum, OUT *WF_SUM_ROWS *COLUMNS);
    const int pack = (int)(threadIdx.x % WF_SUM_PACKS), y = (int)(threadIdx.x / WF_SUM_PACKS);
    const int64_t first = (int64_t)blockIdx.x * COLUMNS, i = first + pack * PACK;
    const int mine = y / WF_SUM_LANES;
    const int64_t rows = a.leaves.runs * a.leaves.step;
    const int64_t length = a.leaves.at[mine + 1] - a.leaves.at[mine];
    const int64_t end = a.leaves.runs * length;

    for (int64_t b = blockIdx.y; b < a.sequences; b += gridDim.y) {
        float own[OUT][PACK] = {};

#pragma unroll 4
        for (int64_t q = y % WF_SUM_LANES; q < end && i < a.n; q += WF_SUM_LANES) {
            float term[OUT][PACK];

            f.terms(b, b * rows + wf_row_of_leaf(a.leaves, mine, length, q), i, a.n - i, term);
#pragma unroll
            for (int k = 0; k < OUT; k++)
#pragma unroll
                for (int e = 0; e < PACK; e++)
                    own[k][e] += term[k][e];
        }
#pragma unroll
        for (int k = 0; k < OUT; k++)
#pragma unroll
            for (int e = 0; e < PACK; e++)
                sum[(k * WF_SUM_ROWS + y) * COLUMNS + pack * PACK + e] = own[k][e];
        __syncthreads();
        for (int t = (int)threadIdx.x; t < OUT * COLUMNS; t += (int)blockDim.x) {
            int k = t / COLUMNS, c = t % COLUMNS;
            const float *of = sum + k * WF_SUM_ROWS * COLUMNS;
            float leaf[WF_LEAVES];

#pragma unroll
            for (int l = 0; l < WF_LEAVES; l++)
                leaf[l] = wf_leaf_of_lanes(of, l, c, COLUMNS);
            if (first + c < a.n)
                a.out[k][b * a.n + first + c] = ((leaf[0] + leaf[1]) + (leaf[2] + leaf[3])) +
                                                ((leaf[4] + leaf[5]) + (leaf[6] + leaf[7]));
        }
        __syncthreads();
    }
}

template <class T, int OUT, class F>
static inline cudaError_t wf_column_sum(cudaStream_t stream, F f, const wf_sums<OUT> &a)
{
    constexpr int COLUMNS = WF_SUM_PACKS * wf_pack<T>::N;
    return wf_launch(wf_column_sum_kernel<T, OUT, F>,
                     dim3((unsigned)wf_ceil(a.n, COLUMNS), wf_grid(a.sequences, 1)),
                     WF_SUM_PACKS * WF_SUM_ROWS, 0, stream, f, a);
}

#endif

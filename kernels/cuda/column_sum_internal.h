/*
 * kernels/cuda/column_sum_internal.h - sums inside each sequence over its tokens, for every
 * column:
 *
 *     out[k][b, i] = midpoint tree over chunks of sum over the chunk's rows r of term k of (b,
 *     r, i)
 *
 * There are 8 chunks, of long sequences 16 or 32, of which 8 are made at a time.
 * Chunks are those of the tokens, or of the heads (wf_chunk_dim): then a chunk's rows are some
 * of every token's. They are dealt to 8 lanes in their order, row q of the chunk to lane q % 8;
 * a lane is a chain of additions from +0 (so no sum is ever -0), and the lanes are added 4, 2,
 * 1 apart. A block has 8 packs of columns of one sequence: the 8 chunks times 8 lanes of each
 * are threads, which meet in shared memory.
 */
#ifndef WF_KERNELS_CUDA_COLUMN_SUM_INTERNAL_H
#define WF_KERNELS_CUDA_COLUMN_SUM_INTERNAL_H

#include "kernels/cuda/operands_internal.h"
#include "kernels/row_chunks_internal.h"

enum { WF_SUM_PACKS = 8, WF_SUM_LANES = 8, WF_SUM_ROWS = WF_MAX_CHUNKS * WF_SUM_LANES };

/* The rows of a sequence, `runs` runs of `step` rows: chunk l has those from at[l] to at[l + 1]
   of every run. There are `eights` times eight chunks: 1, 2 or 4. */
struct wf_row_chunks {
    int64_t at[WF_MAX_TOKEN_CHUNKS + 1];
    int64_t runs, step;
    int eights;
};

/* Returns the chunks of a tensor [b, tokens.., n], whose dims [1, end) are summed: at least
   eight pieces. */
static inline wf_row_chunks wf_row_chunks_of(const wf_tensor *x, int end)
{
    wf_row_chunks chunks = {};
    int d = wf_chunk_dim(x->dim, 1, end), first = d < 0 ? 1 : d;
    int64_t inner = d < 0 ? 1 : wf_extent(x, d + 1, end);
    int n = 1;

    chunks.runs = wf_extent(x, 1, first);
    chunks.step = wf_extent(x, first, end);
    chunks.at[1] = chunks.step;
    if (d >= 0)
        n = wf_cut_tokens(x, d, wf_cuda_host_table->chunk_cuts(x, d, chunks.at),
                          wf_cuda_host_table->context_exact(x->ctx), chunks.at);
    if (n < WF_MAX_CHUNKS)
        wf_cut_to_eight(chunks.at, n);
    chunks.eights = n < WF_MAX_CHUNKS ? 1 : n / WF_MAX_CHUNKS;
    for (int l = 0; l <= chunks.eights * WF_MAX_CHUNKS; l++)
        chunks.at[l] *= inner;
    return chunks;
}

/* Returns row q of a chunk that has `length` rows of every run, counted in its sequence. */
static __device__ __forceinline__ int64_t wf_row_of_chunk(const wf_row_chunks &chunks, int l,
                                                          int64_t length, int64_t q)
{
    return chunks.at[l] + (chunks.runs == 1 ? q : q / length * chunks.step + q % length);
}

template <int OUT> struct wf_sums {
    float *out[OUT];
    wf_row_chunks chunks;
    int64_t sequences, n;
};

/* Nodes of eight chunks as they come: the tree over one, two or four of them. */
struct wf_tree_of_eights {
    float first, half;

    /* Node i; returns the tree over all nodes so far where that is whole. */
    __device__ __forceinline__ float add(float node, int i)
    {
        node = i & 1 ? first + node : node;
        first = node;
        if (i == 1)
            half = node;
        return i == 3 ? half + node : node;
    }
};

/* The node over eight chunks. */
static __device__ __forceinline__ float wf_node_of_eight(const float *chunk)
{
    return ((chunk[0] + chunk[1]) + (chunk[2] + chunk[3])) +
           ((chunk[4] + chunk[5]) + (chunk[6] + chunk[7]));
}

/* Chunk l of column c, of the lanes in shared memory. */
static __device__ __forceinline__ float wf_chunk_of_lanes(const float *sum, int l, int c,
                                                          int columns)
{
    float lane[WF_SUM_LANES];

#pragma unroll
    for (int j = 0; j < WF_SUM_LANES; j++)
        lane[j] = sum[(l * WF_SUM_LANES + j) * columns + c];
#pragma unroll
    for (int step = WF_SUM_LANES / 2; step > 0; step /= 2)
#pragma unroll
        for (int j = 0; j < step; j++)
            lane[j] += lane[j + step];
    return lane[0];
}

/* The terms of one row, counted over all sequences, are added to a lane's sums. */
template <class T, int OUT, class F>
static __device__ __forceinline__ void wf_add_row(const F &f, const typename F::row &row,
                                                  int64_t r, int64_t i, int64_t left,
                                                  float (*own)[wf_pack<T>::N])
{
    constexpr int PACK = wf_pack<T>::N;
    float term[OUT][PACK];

    f.terms(row, r, i, left, term);
#pragma unroll
    for (int k = 0; k < OUT; k++)
#pragma unroll
        for (int e = 0; e < PACK; e++)
            own[k][e] += term[k][e];
}

/* Adds a thread's rows of its chunk of sequence b, from row `first` of it on. */
template <class T, int OUT, class F>
static __device__ __forceinline__ void wf_sum_chunk(const F &f, const wf_row_chunks &chunks,
                                                    int64_t b, int mine, int64_t first,
                                                    int64_t i, int64_t n,
                                                    float (*own)[wf_pack<T>::N])
{
    constexpr int AHEAD = F::AHEAD;
    const int64_t rows = chunks.runs * chunks.step;
    const int64_t length = chunks.at[mine + 1] - chunks.at[mine];
    const int64_t end = i < n ? chunks.runs * length : 0;
    int64_t q = first;

    for (; q + (AHEAD - 1) * WF_SUM_LANES < end; q += AHEAD * WF_SUM_LANES) {
        typename F::row row[AHEAD];
        int64_t r[AHEAD];

#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            r[u] = b * rows + wf_row_of_chunk(chunks, mine, length, q + u * WF_SUM_LANES);
            row[u] = f.read(r[u], i, n - i);
        }
#pragma unroll
        for (int u = 0; u < AHEAD; u++)
            wf_add_row<T, OUT>(f, row[u], r[u], i, n - i, own);
    }
    for (; q < end; q += WF_SUM_LANES) {
        int64_t r = b * rows + wf_row_of_chunk(chunks, mine, length, q);

        wf_add_row<T, OUT>(f, f.read(r, i, n - i), r, i, n - i, own);
    }
}

/* f.read(r, i, n): what is read of columns i .. i + n - 1 of row r, counted over all sequences;
   f.terms(that, r, i, n, out): their terms, out[OUT][PACK], of which those beyond n are not
   used. F::AHEAD rows are read before the first is added. */
template <class T, int OUT, class F>
__global__ void __launch_bounds__(WF_SUM_PACKS *WF_SUM_ROWS, 2)
    wf_column_sum_kernel(const WF_GRID_CONSTANT F f, const WF_GRID_CONSTANT wf_sums<OUT> a)
{
    constexpr int PACK = wf_pack<T>::N, COLUMNS = WF_SUM_PACKS * PACK;
    WF_SHARED(float, sum, OUT *WF_SUM_ROWS *COLUMNS);
    const int pack = (int)(threadIdx.x % WF_SUM_PACKS), y = (int)(threadIdx.x / WF_SUM_PACKS);
    const int64_t first = (int64_t)blockIdx.x * COLUMNS, i = first + pack * PACK;
    /* A thread adds one column of one output in the end. */
    const int t = (int)threadIdx.x, k = t / COLUMNS, c = t % COLUMNS;
    static_assert(OUT * COLUMNS <= WF_SUM_PACKS * WF_SUM_ROWS, "a thread has one column");

    for (int64_t b = blockIdx.y; b < a.sequences; b += gridDim.y) {
        wf_tree_of_eights tree = {0.0f, 0.0f};
        float all = 0.0f;

        for (int eight = 0; eight < a.chunks.eights; eight++) {
            float own[OUT][PACK] = {};

            wf_sum_chunk<T, OUT>(f, a.chunks, b, eight * WF_MAX_CHUNKS + y / WF_SUM_LANES,
                                 y % WF_SUM_LANES, i, a.n, own);
#pragma unroll
            for (int o = 0; o < OUT; o++)
#pragma unroll
                for (int e = 0; e < PACK; e++)
                    sum[(o * WF_SUM_ROWS + y) * COLUMNS + pack * PACK + e] = own[o][e];
            __syncthreads();
            if (t < OUT * COLUMNS) {
                const float *of = sum + k * WF_SUM_ROWS * COLUMNS;
                float chunk[WF_MAX_CHUNKS];

#pragma unroll
                for (int l = 0; l < WF_MAX_CHUNKS; l++)
                    chunk[l] = wf_chunk_of_lanes(of, l, c, COLUMNS);
                all = tree.add(wf_node_of_eight(chunk), eight);
            }
            __syncthreads();
        }
        if (t < OUT * COLUMNS && first + c < a.n)
            a.out[k][b * a.n + first + c] = all;
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

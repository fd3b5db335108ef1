/*
 * kernels/cuda/float_product.cu - products of f32 in exact mode: what tensor_product_mma.cu
 * makes of bf16, by multiply-adds. A chunk is the chain of its terms, each added by fmaf to the
 * sum of those before, from +0 on: the CPU's expression (kernels/cpu), so products have the
 * CPU's bits.
 *
 * Kernels are instances of one, by how many rows a product has: of many, where what counts is
 * how many multiply-adds there are for each element that comes from shared memory, and of few,
 * where the weights have to come in time. And by how these are stored: as f32, or as nf4, which
 * is widened on its way to shared memory.
 *
 * A tile is 32 terms of some rows of a factor, in lines of 128 bytes of a row's terms where
 * they lie side by side in memory, whose units of 16 bytes lie at their number xor the row's
 * lowest bits, so that rows side by side are in other banks; else in lines of a term's rows.
 */
#include "kernels/cuda/tensor_tile_internal.h"

enum {
    DEPTH = 32,
    STEP = 4,   /* terms that a thread has in registers */
    WAITING = 3 /* sums of a tree over eight chunks that wait at a time */
};

namespace
{

/* A block's part of the result: a thread has DOWN x ACROSS elements, of SIDE_DOWN x SIDE_ACROSS
   threads. Tiles are on their way to STAGES - 1 buffers while others are multiplied, as many as
   99 KiB have room for: no GPU gives a block less. */
template <int DOWN_, int ACROSS_, int SIDE_DOWN_, int SIDE_ACROSS_, int STAGES_>
struct block_shape {
    enum {
        STAGES = STAGES_,
        DOWN = DOWN_,
        ACROSS = ACROSS_,
        SIDE_DOWN = SIDE_DOWN_,
        SIDE_ACROSS = SIDE_ACROSS_,
        ROWS = DOWN * SIDE_DOWN,
        COLUMNS = ACROSS * SIDE_ACROSS,
        SUMS = DOWN * ACROSS,
        THREADS = SIDE_DOWN * SIDE_ACROSS
    };
};

using many_rows = block_shape<8, 8, 16, 16, 3>;
using some_rows = block_shape<8, 2, 2, 64, 5>;
using few_rows = block_shape<8, 1, 1, 128, 5>;
enum { SOME = 64, FEW = 8 }; /* most rows of a product that these kernels are for */

/* Floats of both factors' tiles. */
template <class S> struct stage_size {
    enum { N = (S::ROWS + S::COLUMNS) * DEPTH };
};

/* The position of a block and its thread: stages of tiles, the next one, the thread's position,
   and the rows of the block's part. */
struct thread_slot {
    float *stages;
    int stage, t, row, column, rows;
};

/* Returns where four terms of a row from `term` on are, of ALONG. */
__device__ __forceinline__ int tile_offset(int row, int term)
{
    return row * DEPTH + (term ^ row % 8 * 4);
}

/* Loads terms k to k + DEPTH of `depth` of ROWS rows from `first` of `rows` on, zeros after
   both; by THREADS threads. */
template <int ROWS, int THREADS, bool ALONG>
__device__ __forceinline__ void load_tile(float *to, const float *f, int64_t ld, int64_t first,
                                          int64_t rows, int64_t k, int64_t depth, int t)
{
    constexpr int UNITS = (ALONG ? DEPTH : ROWS) / 4, ALL = UNITS * (ALONG ? ROWS : DEPTH);

#pragma unroll
    for (int i = 0; i < (ALL + THREADS - 1) / THREADS; i++) {
        int number = t + i * THREADS, line = number / UNITS, unit = number % UNITS * 4;
        int64_t row = first + (ALONG ? line : unit), term = k + (ALONG ? unit : line);
        bool valid = row < rows && term < depth;
        const float *from = f + (ALONG ? row * ld + term : term * ld + row);

        if (number < ALL)
            wf_copy_unit(to + (ALONG ? tile_offset(line, unit) : line * ROWS + unit),
                         valid ? from : f, valid);
    }
}

/* Returns the i-th of the N rows of a tile that belong to thread `slot` of SIDE: four side by
   side where a term's rows are. */
template <int N, int SIDE, bool ALONG> __device__ __forceinline__ int row_of(int slot, int i)
{
    constexpr int FOUR = N < 4 ? N : 4;

    return ALONG ? slot + i * SIDE : i / FOUR * (FOUR * SIDE) + slot * FOUR + i % FOUR;
}

/* STEP terms of the i-th of them, of ALONG. */
template <int SIDE>
__device__ __forceinline__ void load_row(float (&x)[STEP], const float *tile, int slot, int i,
                                         int term)
{
    float4 v = *(const float4 *)(tile + tile_offset(slot + i * SIDE, term));

    x[0] = v.x;
    x[1] = v.y;
    x[2] = v.z;
    x[3] = v.w;
}

/* STEP terms of all of them, of the other way. */
template <int N, int SIDE>
__device__ __forceinline__ void load_terms(float (&x)[N][STEP], const float *tile, int slot,
                                           int term)
{
#pragma unroll
    for (int k = 0; k < STEP; k++) {
        const float *line = tile + (term + k) * N * SIDE;

#pragma unroll
        for (int i = 0; i < (N < 4 ? N : 0); i++)
            x[i][k] = line[slot * N + i];
#pragma unroll
        for (int i = 0; i < N / 4 * 4; i += 4) {
            float4 v = *(const float4 *)(line + i * SIDE + slot * 4);

            x[i][k] = v.x;
            x[i + 1][k] = v.y;
            x[i + 2][k] = v.z;
            x[i + 3][k] = v.w;
        }
    }
}

/* The first `used` of them; a block of one thread across its rows knows how many there are. */
template <int N, int SIDE, bool ALONG>
__device__ __forceinline__ void load_rows(float (&x)[N][STEP], const float *tile, int slot,
                                          int term, int used)
{
    if (!ALONG)
        load_terms<N, SIDE>(x, tile, slot, term);
#pragma unroll
    for (int i = 0; i < (ALONG ? N : 0); i++)
        if (SIDE > 1 || i < used)
            load_row<SIDE>(x[i], tile, slot, i, term);
}

/* Terms `term` to term + STEP of a thread's elements: sum[ACROSS i + j] is of its rows i of a
   and j of b. */
template <class S, bool A, bool B>
__device__ __forceinline__ void multiply(float (&sum)[S::SUMS], const float *a, const float *b,
                                         int term, const thread_slot &at)
{
    float x[S::DOWN][STEP], y[S::ACROSS][STEP];

    load_rows<S::DOWN, S::SIDE_DOWN, A>(x, a, at.row, term, at.rows);
    load_rows<S::ACROSS, S::SIDE_ACROSS, B>(y, b, at.column, term, S::ACROSS);
#pragma unroll
    for (int i = 0; i < S::DOWN; i++)
        if (S::SIDE_DOWN > 1 || i < at.rows) {
#pragma unroll
            for (int k = 0; k < STEP; k++)
#pragma unroll
                for (int j = 0; j < S::ACROSS; j++)
                    sum[i * S::ACROSS + j] = fmaf(x[i][k], y[j][k], sum[i * S::ACROSS + j]);
        }
}

/* The first `left` terms of two tiles, which are DEPTH mostly. */
template <class S, bool A, bool B>
__device__ __forceinline__ void multiply_tiles(float (&sum)[S::SUMS], const float *a,
                                               const float *b, int64_t left,
                                               const thread_slot &at)
{
    if (left >= DEPTH) {
        /* Many sums leave no registers for the addresses of more than one step. */
#pragma unroll(S::SUMS > 16 ? 1 : DEPTH / STEP)
        for (int term = 0; term < DEPTH; term += STEP)
            multiply<S, A, B>(sum, a, b, term, at);
        return;
    }
#pragma unroll 1
    for (int term = 0; term < left; term += STEP)
        multiply<S, A, B>(sum, a, b, term, at);
}

/* ---- the second factor: where a tile of it comes from ---- */

/* The factor where it is f32: it is copied on its way. */
template <class S, bool B> struct float_weights {
    enum { ALONG = B, TABLES = 0 };

    __device__ __forceinline__ void begin(const wf_tensor_product &, float *)
    {
    }

    __device__ __forceinline__ void load(const wf_tensor_product &p, int q, float *tile,
                                         int64_t first, int64_t k, int t)
    {
        const wf_tensor_piece &x = p.piece[q];

        load_tile<S::COLUMNS, S::THREADS, B>(tile, (const float *)x.b, x.b_ld, first, p.n, k,
                                             x.depth, t);
    }

    __device__ __forceinline__ void finish(const wf_tensor_product &, int)
    {
    }
};

/* Eight numbers as two units of a row, or of a term's line. */
template <class S, bool B> struct put_float_units {
    typedef float tile;

    static __device__ __forceinline__ void put(float *to, int line, int unit, const float *x)
    {
#pragma unroll
        for (int k = 0; k < WF_NF4_EACH; k += 4)
            wf_put_four(to + (B ? tile_offset(line, unit * WF_NF4_EACH + k)
                                : line * S::COLUMNS + unit * WF_NF4_EACH + k),
                        x + k);
    }
};

/* The factor where it is nf4. */
template <class S, bool B>
using coded_float_weights =
    wf_coded_weights<float_weights<S, B>, put_float_units<S, B>, S::COLUMNS, DEPTH, S::THREADS>;

/* The next tiles of both factors on their way to a stage, where there are some. */
template <class S, class W, bool A>
__device__ __forceinline__ void load_next(const wf_tensor_product &p, const wf_tile_job &job,
                                          wf_tile_walk *w, W *weights, float *stage, int t)
{
    if (w->piece < w->end) {
        const wf_tensor_piece &x = p.piece[w->piece];

        load_tile<S::ROWS, S::THREADS, A>(stage, (const float *)x.a, x.a_ld,
                                          (int64_t)job.row * S::ROWS, p.m, w->k, x.depth, t);
        weights->load(p, w->piece, stage + S::ROWS * DEPTH, (int64_t)job.column * S::COLUMNS,
                      w->k, t);
        w->k += DEPTH;
        wf_skip_empty(p, w);
    } else {
        weights->finish(p, t);
    }
    wf_copy_commit(); /* an empty group too: waits count them */
}

/* Computes the sum of chunk l of a job, whose tiles come by the stages one after the other. */
template <class S, class W, bool A>
__device__ __forceinline__ void sum_chunk(const wf_tensor_product &p, const wf_tile_job &job,
                                          int l, float (&sum)[S::SUMS], wf_tile_walk *w,
                                          W *weights, thread_slot *at)
{
    constexpr int STAGE = stage_size<S>::N;
    int first = (job.first + l) * p.members;

    wf_clear(sum);
    for (int q = first; q < first + p.members; q++)
        for (int64_t k = 0; k < p.piece[q].depth; k += DEPTH) {
            const float *a = at->stages + at->stage * STAGE;

            wf_copy_wait<S::STAGES - 2>();
            __syncthreads();
            load_next<S, W, A>(p, job, w, weights,
                               at->stages + (at->stage + S::STAGES - 1) % S::STAGES * STAGE,
                               at->t);
            multiply_tiles<S, A, (bool)W::ALONG>(sum, a, a + S::ROWS * DEPTH,
                                                 p.piece[q].depth - k, *at);
            at->stage = (at->stage + 1) % S::STAGES;
        }
}

/* The midpoint tree over a job's chunks. Sums that wait are in the thread's own memory, which
   is written once a chunk: registers have none left. */
template <class S, class W, bool A>
__device__ __forceinline__ void sum_node(const wf_tensor_product &p, const wf_tile_job &job,
                                         float (&sum)[S::SUMS], wf_tile_walk *w, W *weights,
                                         thread_slot *at)
{
    float waits[WAITING][S::SUMS];
    int waiting = 0;

#pragma unroll 1
    for (int l = 0; l < job.count; l++) {
        sum_chunk<S, W, A>(p, job, l, sum, w, weights, at);
#pragma unroll 1
        for (int ends = wf_unit_of(l, job.count, 1).ends; ends > 0; ends--)
            wf_add_to(sum, waits[--waiting]);
        if (l + 1 < job.count)
            wf_put_aside(waits[waiting++], sum);
    }
}

template <class S, class W, bool A>
__global__ void __launch_bounds__(S::THREADS, S::THREADS == WF_BLOCK ? 1 : 2)
    float_kernel(const WF_GRID_CONSTANT wf_tensor_product p)
{
    constexpr bool B = W::ALONG;
    WF_DYNAMIC_SHARED(float, stages);
    int t = (int)threadIdx.x, in_warp = S::SIDE_ACROSS < 32 ? 8 : 32, lane = t % WF_WARP;
    int across = (int)((p.n + S::COLUMNS - 1) / S::COLUMNS), warps = S::SIDE_ACROSS / in_warp;
    int down = (int)((p.m + S::ROWS - 1) / S::ROWS);
    thread_slot at = {stages,
                      0,
                      t,
                      t / WF_WARP / warps * (WF_WARP / in_warp) + lane / in_warp,
                      t / WF_WARP % warps * in_warp + lane % in_warp,
                      0};
    W weights;

    weights.begin(p, stages + S::STAGES * stage_size<S>::N);
    for (int j = (int)blockIdx.x; j < down * across << p.levels; j += (int)gridDim.x) {
        wf_tile_job job = wf_job_of(p, j, down, across);
        wf_tile_walk w = {job.first * p.members, (job.first + job.count) * p.members, 0};
        int64_t row = (int64_t)job.row * S::ROWS, column = (int64_t)job.column * S::COLUMNS;
        float sum[S::SUMS];

        wf_clear(sum);
        wf_skip_empty(p, &w);
        at.stage = 0;
        at.rows = p.m - row < S::ROWS ? (int)(p.m - row) : (int)S::ROWS;
        for (int s = 0; s < S::STAGES - 1; s++)
            load_next<S, W, A>(p, job, &w, &weights, stages + s * stage_size<S>::N, t);
        sum_node<S, W, A>(p, job, sum, &w, &weights, &at);
        wf_copy_wait<0>();
        __syncthreads();
#pragma unroll
        for (int i = 0; i < S::SUMS; i++)
            *wf_sum_at<S::COLUMNS>(
                stages, row_of<S::DOWN, S::SIDE_DOWN, A>(at.row, i / S::ACROSS),
                row_of<S::ACROSS, S::SIDE_ACROSS, B>(at.column, i % S::ACROSS)) = sum[i];
        __syncthreads();
        if (p.result.type == WF_BF16)
            wf_finish_tile<wf_bf16, S::ROWS, S::COLUMNS, S::THREADS>(
                p, (wf_bf16 *)p.result.to + job.node * p.stride, stages, row, column, t);
        else
            wf_finish_tile<float, S::ROWS, S::COLUMNS, S::THREADS>(
                p, (float *)p.result.to + job.node * p.stride, stages, row, column, t);
        __syncthreads();
    }
}

template <class S, class W, bool A>
cudaError_t launch(cudaStream_t stream, const wf_tensor_product *p)
{
    constexpr int FLOATS = S::STAGES * stage_size<S>::N;
    static_assert(FLOATS >= S::ROWS * S::COLUMNS, "sums have room where the stages are");
    constexpr size_t bytes = (FLOATS + (int)W::TABLES) * sizeof(float);
    auto *k = float_kernel<S, W, A>;
    int64_t jobs = wf_ceil(p->m, S::ROWS) * wf_ceil(p->n, S::COLUMNS) << p->levels;
    cudaError_t code =
        cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);

    return code == cudaSuccess ? wf_launch(k, wf_grid(jobs, 1), S::THREADS, bytes, stream, *p)
                               : code;
}

template <class S, bool B>
cudaError_t launch_along(cudaStream_t stream, const wf_tensor_product *p)
{
    if (p->coded && !p->a_along)
        return cudaErrorNotSupported; /* activations are, where weights are the other factor */
    if (p->coded)
        return launch<S, coded_float_weights<S, B>, true>(stream, p);
    return p->a_along ? launch<S, float_weights<S, B>, true>(stream, p)
                      : launch<S, float_weights<S, B>, false>(stream, p);
}

template <class S> cudaError_t launch_shape(cudaStream_t stream, const wf_tensor_product *p)
{
    return p->b_along ? launch_along<S, true>(stream, p) : launch_along<S, false>(stream, p);
}

} // namespace

cudaError_t wf_cuda_launch_float_product(cudaStream_t stream, const wf_tensor_product *p)
{
    return p->m <= FEW    ? launch_shape<few_rows>(stream, p)
           : p->m <= SOME ? launch_shape<some_rows>(stream, p)
                          : launch_shape<many_rows>(stream, p);
}

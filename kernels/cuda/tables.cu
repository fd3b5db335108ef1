/*
 * kernels/cuda/tables.cu - embeddings: rows of a table by token.
 *
 * The gradient of an embedding: the tokens of each row of the table are brought in order
 * (counted, placed anyhow, then each ranked among its fellows, so no order of atomics is left),
 * and a block sums a row: a chain over the tokens of a sequence, or of each chunk of a
 * long one, and the tree over these. Those without the token would add +0, which changes
 * nothing: they, and whole subtrees, are skipped.
 *
 * A token outside of the vocabulary cannot be reported by a kernel: its embedding is NaN, and
 * so the loss; its gradient goes nowhere.
 */
#include "kernels/cuda/operands_internal.h"
#include "kernels/cuda/tree_internal.h"
#include "kernels/row_chunks_internal.h"
#include "kernels/shared_internal.h"

namespace
{

struct lookup {
    wf_vector table;
    const int32_t *token;
    int64_t tokens, d, start, rows, size;
    bool wide;
};

template <class T>
__global__ void __launch_bounds__(WF_WARP *WF_WARPS) embedding_kernel(lookup a, T *y)
{
    constexpr int PACK = wf_pack<T>::N;
    const int64_t step = (int64_t)gridDim.x * WF_WARPS;

    for (int64_t k = (int64_t)blockIdx.x * WF_WARPS + threadIdx.y; k < a.tokens; k += step) {
        const int64_t row = a.token[k] - a.start;
        const bool here = row >= 0 && row < a.rows;
        const float other = a.token[k] >= 0 && a.token[k] < a.size ? 0.0f : NAN;

        for (int64_t i = threadIdx.x * PACK; i < a.d; i += WF_WARP * PACK) {
            float v[PACK];

            if (here)
                wf_load_vector<PACK>(a.table, row * a.d + i, a.d - i, a.wide, v);
#pragma unroll
            for (int e = 0; e < PACK; e++)
                v[e] = here ? v[e] + 0.0f : other; /* -0 would become +0 over ranks */
            wf_store(y + k * a.d + i, a.d - i, a.wide, v);
        }
    }
}

wf_status embedding(const wf_call *call, void *)
{
    const wf_tensor *table = call->in[0], *tokens = call->in[1];
    lookup a = {wf_vector_of(table), (const int32_t *)tokens->data,
                wf_count(tokens),    table->local[1],
                table->start[0],     table->local[0],
                table->dim[0].size,  false};

    return wf_run(call, [&](auto zero) {
        typedef decltype(zero) T;

        a.wide = wf_wide((const T *)call->out[0]->data, a.d) && wf_wide_vector(a.table, a.d);
        return wf_launch(embedding_kernel<T>, wf_grid(a.tokens, WF_WARPS),
                         dim3(WF_WARP, WF_WARPS), 0, wf_cuda_of(call)->stream, a,
                         (T *)call->out[0]->data);
    });
}

/* ---- its gradient ---- */

struct sorting {
    const int32_t *token;
    int64_t tokens, rows, start;
    uint32_t *first;  /* [rows + 1]: row r's tokens are order[first[r] .. first[r + 1]) */
    uint32_t *placed; /* [rows]: how many of its tokens are sorted in */
    uint32_t *anyhow; /* [tokens]: in their row's range */
    uint32_t *order;  /* [tokens]: in order there */
};

sorting sorting_of(const wf_call *call, void *workspace)
{
    const wf_tensor *table = call->out[0], *tokens = call->in[1];
    sorting s = {};

    s.token = (const int32_t *)tokens->data;
    s.tokens = wf_count(tokens);
    s.rows = table->local[0];
    s.start = table->start[0];
    s.first = (uint32_t *)workspace;
    s.placed = s.first + s.rows + 1;
    s.anyhow = s.placed + s.rows;
    s.order = s.anyhow + s.tokens;
    return s;
}

size_t sorting_bytes(const wf_call *call)
{
    wf_sequence_call row;
    sorting s;

    if (wf_linear_in_rows(call))
        wf_sequence_call_of(call, 1, 0, &row);
    s = sorting_of(wf_linear_in_rows(call) ? &row.call : call, NULL);
    if (s.tokens > UINT32_MAX || s.rows >= UINT32_MAX)
        wf_cuda_host_table->fail(call->ctx, WF_EUNSUPPORTED,
                                 "embedding_dw: more than 2^32 tokens or rows on a GPU");
    return (size_t)(2 * s.rows + 1 + 2 * s.tokens) * sizeof(uint32_t);
}

/* Returns the row of token i in this part of the table, or -1. */
__device__ __forceinline__ int64_t row_of(const sorting &s, int64_t i)
{
    int64_t row = s.token[i] - s.start;

    return row < s.rows ? row : -1;
}

__global__ void __launch_bounds__(WF_BLOCK) count_kernel(sorting s)
{
    const int64_t i = (int64_t)blockIdx.x * WF_BLOCK + threadIdx.x;
    const int64_t row = i < s.tokens ? row_of(s, i) : -1;

    if (row >= 0)
        atomicAdd(&s.first[row + 1], 1u);
}

enum { SCAN = 1024 };

/* first[r + 1] becomes the sum of first[0 .. r + 1]; one block. */
__global__ void __launch_bounds__(SCAN) add_up_kernel(sorting s)
{
    WF_SHARED(uint32_t, sum, SCAN);
    const int64_t each = (s.rows + SCAN) / SCAN, begin = threadIdx.x * each;
    const int64_t end = begin + each < s.rows + 1 ? begin + each : s.rows + 1;
    uint32_t before = 0;

    for (int64_t r = begin; r < end; r++)
        before += s.first[r];
    sum[threadIdx.x] = before;
    for (int step = 1; step < SCAN; step *= 2) {
        uint32_t more;

        __syncthreads();
        more = (int)threadIdx.x >= step ? sum[threadIdx.x - step] : 0;
        __syncthreads();
        sum[threadIdx.x] += more;
    }
    before = sum[threadIdx.x] - before;
    for (int64_t r = begin; r < end; r++) {
        before += s.first[r];
        s.first[r] = before;
    }
}

__global__ void __launch_bounds__(WF_BLOCK) scatter_kernel(sorting s)
{
    const int64_t i = (int64_t)blockIdx.x * WF_BLOCK + threadIdx.x;
    const int64_t row = i < s.tokens ? row_of(s, i) : -1;

    if (row >= 0)
        s.anyhow[s.first[row] + atomicAdd(&s.placed[row], 1u)] = (uint32_t)i;
}

__global__ void __launch_bounds__(WF_BLOCK) rank_kernel(sorting s)
{
    const int64_t k = (int64_t)blockIdx.x * WF_BLOCK + threadIdx.x;

    if (k < s.first[s.rows]) {
        uint32_t i = s.anyhow[k], rank = 0;
        int64_t row = row_of(s, i);
        uint32_t begin = s.first[row], end = s.first[row + 1];

        for (uint32_t other = begin; other < end; other++)
            rank += s.anyhow[other] < i;
        s.order[begin + rank] = i;
    }
}

/* Finds where in order[begin .. end) the tokens from `token` on begin. */
__device__ uint32_t find(const uint32_t *order, uint32_t begin, uint32_t end, int64_t token)
{
    while (begin < end) {
        uint32_t middle = begin + (end - begin) / 2;

        if (order[middle] < token)
            begin = middle + 1;
        else
            end = middle;
    }
    return begin;
}

struct rows_job {
    sorting s;
    const void *dy;
    float *dtable;
    int64_t d;
    wf_token_cuts cuts;
    bool wide;
};

/* Subtree w of the 8 that the tree over all chunks has three levels down; n may be 0. */
__device__ __forceinline__ void subtree(const wf_token_cuts &cuts, int w, int64_t *first,
                                        int64_t *n)
{
    *first = 0;
    *n = wf_token_chunks_of(&cuts);
    for (int bit = WF_WARPS / 2; bit > 0; bit /= 2) {
        int64_t left = wf_tree_left(*n, cuts.chunks);

        if (*n <= 1) { /* a chunk stays on the left */
            *n = w & bit ? 0 : *n;
        } else if (w & bit) {
            *first += left;
            *n -= left;
        } else {
            *n = left;
        }
    }
}

/* The node over chunks [first, first + n), whose tokens are order[k .. end): at least one. */
template <class T>
__device__ void sum_node(const rows_job &a, int64_t first, int64_t n, uint32_t k, uint32_t end,
                         int64_t i, float *sum)
{
    constexpr int PACK = wf_pack<T>::N;
    float node[WF_OPEN_NODES][PACK];
    int64_t chunk_of[WF_OPEN_NODES];
    int open = 0;

    while (k < end) {
        int64_t chunk = wf_token_chunk_with(&a.cuts, a.s.order[k]) - first, next = -1;
        float v[PACK] = {};

        for (; k < end && next < 0; k++) {
            float x[PACK];

            wf_load((const T *)a.dy + a.s.order[k] * a.d + i, a.d - i, a.wide, x);
#pragma unroll
            for (int e = 0; e < PACK; e++)
                v[e] += x[e];
            if (k + 1 < end) {
                int64_t after = wf_token_chunk_with(&a.cuts, a.s.order[k + 1]) - first;

                next = after != chunk ? after : -1;
            }
        }
        /* Nodes that lie in the tree below where the next chunk branches off are complete. */
        while (open > 0 &&
               (next < 0 || wf_tree_parts(n, a.cuts.chunks, chunk_of[open - 1], chunk) >
                                wf_tree_parts(n, a.cuts.chunks, chunk, next))) {
            open--;
#pragma unroll
            for (int e = 0; e < PACK; e++)
                v[e] = node[open][e] + v[e];
            chunk = chunk_of[open];
        }
        chunk_of[open] = chunk;
#pragma unroll
        for (int e = 0; e < PACK; e++)
            node[open][e] = v[e];
        open++;
    }
#pragma unroll
    for (int e = 0; e < PACK; e++)
        sum[e] = node[0][e];
}

/* Warps sum the 8 subtrees of 32 packs of a row's columns, and those are added in their
   tree. */
template <class T> __global__ void __launch_bounds__(WF_WARP *WF_WARPS) rows_kernel(rows_job a)
{
    constexpr int PACK = wf_pack<T>::N;
    WF_SHARED(float, part, WF_WARPS *WF_WARP *PACK);
    WF_SHARED(int, there, WF_WARPS);
    const int w = (int)threadIdx.y, lane = (int)threadIdx.x;
    const int64_t i = ((int64_t)blockIdx.y * WF_WARP + lane) * PACK;

    for (int64_t r = blockIdx.x; r < a.s.rows; r += gridDim.x) {
        const uint32_t begin = a.s.first[r], end = a.s.first[r + 1];
        int64_t first, n;
        uint32_t from, to;
        float v[PACK] = {};

        subtree(a.cuts, w, &first, &n);
        from = find(a.s.order, begin, end, wf_token_chunk_at(&a.cuts, first));
        to = find(a.s.order, from, end, wf_token_chunk_at(&a.cuts, first + n));
        if (from < to && i < a.d)
            sum_node<T>(a, first, n, from, to, i, v);
        if (begin < end) { /* the same in all threads of the block */
#pragma unroll
            for (int e = 0; e < PACK; e++)
                part[(w * WF_WARP + lane) * PACK + e] = v[e];
            there[w] = from < to;
            for (int step = 1; step < WF_WARPS; step *= 2) {
                __syncthreads();
                for (int e = 0; w % (2 * step) == 0 && there[w + step] && e < PACK; e++)
                    part[(w * WF_WARP + lane) * PACK + e] +=
                        part[((w + step) * WF_WARP + lane) * PACK + e];
                __syncthreads();
                if (w % (2 * step) == 0 && lane == 0)
                    there[w] |= there[w + step];
            }
            __syncthreads();
#pragma unroll
            for (int e = 0; e < PACK; e++)
                v[e] = part[lane * PACK + e];
            __syncthreads();
        }
        if (w == 0)
            for (int e = 0; e < PACK && i + e < a.d; e++)
                a.dtable[r * a.d + i + e] = v[e];
    }
}

cudaError_t sort(const sorting &s, cudaStream_t stream)
{
    unsigned grid = (unsigned)wf_ceil(s.tokens, WF_BLOCK);
    cudaError_t error =
        cudaMemsetAsync(s.first, 0, (size_t)(2 * s.rows + 1) * sizeof(uint32_t), stream);

    if (error == cudaSuccess)
        error = wf_launch(count_kernel, grid, WF_BLOCK, 0, stream, s);
    if (error == cudaSuccess)
        error = wf_launch(add_up_kernel, 1, SCAN, 0, stream, s);
    if (error == cudaSuccess)
        error = wf_launch(scatter_kernel, grid, WF_BLOCK, 0, stream, s);
    if (error == cudaSuccess)
        error = wf_launch(rank_kernel, grid, WF_BLOCK, 0, stream, s);
    return error;
}

wf_status embedding_dw_whole(const wf_call *call, void *workspace)
{
    const wf_tensor *tokens = call->in[1];
    rows_job a = {};

    a.s = sorting_of(call, workspace);
    a.dy = call->in[2]->data;
    a.dtable = (float *)call->out[0]->data;
    a.d = call->out[0]->local[1];
    a.cuts = wf_token_cuts_of(tokens, tokens->ndim, true); /* more chunks are faster, too */
    return wf_run(call, [&](auto zero) {
        typedef decltype(zero) T;
        cudaStream_t stream = wf_cuda_of(call)->stream;
        unsigned columns = (unsigned)wf_ceil(a.d, WF_WARP * wf_pack<T>::N);
        cudaError_t error = sort(a.s, stream);

        a.wide = wf_wide((const T *)a.dy, a.d);
        return error != cudaSuccess
                   ? error
                   : wf_launch(rows_kernel<T>, dim3(wf_grid(a.s.rows, 1), columns),
                               dim3(WF_WARP, WF_WARPS), 0, stream, a);
    });
}

wf_status embedding_dw(const wf_call *call, void *workspace)
{
    return wf_linear_in_rows(call) ? wf_run_by_sequence(call, 1, embedding_dw_whole, workspace)
                                   : embedding_dw_whole(call, workspace);
}

} // namespace

const wf_kernel wf_cuda_embedding = {embedding, NULL, WF_IN(0), WF_OUT(0)};
const wf_kernel wf_cuda_embedding_dw = {embedding_dw, sorting_bytes, 0, WF_IN(2)};

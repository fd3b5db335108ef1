/*
 * kernels/cuda/attention_tensor_cached.cu - attention to a cache of bf16 on tensor cores: the
 * tiles, the order and so the bits of attention_tensor_forward_internal.h, of the same tokens
 * of the whole sequence, however many come at once.
 *
 * A block's rows are those of all heads that share keys, token after token: a single token has
 * as many rows as a group has heads, and reads its keys once.
 */
#include "kernels/cuda/attention_mma_internal.h"
#include "kernels/cuda/attention_softmax_internal.h"

namespace
{

typedef attention_mma cached_shape;

enum { CACHED_ROWS = cached_shape::OWN }; /* a block's */

/* The rows of a block: row r of its group is of token r / heads and of head first + r % heads,
   both local; `row` is the block's first, and `position` that of the sequence's first token. */
struct cached_rows {
    int64_t sequence;
    int group, first, heads, rows;
    int row, position;
};

/* Returns the blocks of a group of a sequence. */
__device__ __host__ __forceinline__ int64_t cached_blocks(const wf_cuda_heads &a)
{
    return (a.query_tokens.count * a.per_group + CACHED_ROWS - 1) / CACHED_ROWS;
}

__device__ __forceinline__ cached_rows cached_rows_of(const wf_cuda_cached &c)
{
    const wf_cuda_heads &a = c.heads;
    const int64_t blocks = cached_blocks(a), sequence = blockIdx.x / blocks;
    const int64_t begin = (a.first_group + blockIdx.y) * a.per_group - a.first_head;
    const int64_t end = begin + a.per_group, first = begin > 0 ? begin : 0;
    const int64_t heads = (end < a.heads ? end : a.heads) - first;

    return {sequence,
            (int)blockIdx.y,
            (int)first,
            (int)heads,
            heads > 0 ? (int)(heads * a.query_tokens.count) : 0,
            (int)(blockIdx.x % blocks * CACHED_ROWS),
            c.first[sequence]};
}

/* Returns the head of row r of the block. */
__device__ __forceinline__ int cached_head(const cached_rows &b, int r)
{
    return b.first + (b.row + r) % b.heads;
}

/* Returns the view of row r of the block (view_of): chunks count from the text's first
   token. */
__device__ __forceinline__ query_view cached_view(const wf_cuda_cached &c, const cached_rows &b,
                                                  int r)
{
    const int64_t window = c.heads.window, at = b.position + (b.row + r) / b.heads;
    const int from = (int)wf_attention_from(NULL, window, at);

    if (b.row + r >= b.rows)
        return {0, 0, NO_TOKEN};
    return {from, (int)at + 1, window < 0 ? from : 0};
}

/* Returns where row r of the block begins in [batch, tokens, heads, dim]. */
__device__ __forceinline__ int64_t cached_row_at(const wf_cuda_cached &c, const cached_rows &b,
                                                 int r)
{
    const wf_cuda_heads &a = c.heads;
    const int64_t token = b.sequence * a.query_tokens.count + (b.row + r) / b.heads;

    return (token * a.heads + cached_head(b, r)) * a.dim;
}

/* The block's queries on their way to their tile, zeros for rows that are not there. */
template <int DIM>
__device__ __forceinline__ void load_rows_of_group(char *tile, const wf_cuda_cached &c,
                                                   const cached_rows &b)
{
    constexpr int UNITS = WF_TILE_DEPTH / 8, LINES = cached_shape::THREADS / UNITS;
    const int line = (int)threadIdx.x / UNITS, unit = (int)threadIdx.x % UNITS * 8;

    for (int i = line; i < CACHED_ROWS; i += LINES) {
        const wf_bf16 *from = (const wf_bf16 *)c.heads.q + cached_row_at(c, b, i);

#pragma unroll
        for (int d = unit; d < DIM; d += WF_TILE_DEPTH) {
            const bool valid = b.row + i < b.rows && d < c.heads.dim;

            wf_copy_unit(features_at<cached_shape>(tile, i, d), valid ? from + d : c.heads.q,
                         valid);
        }
    }
}

template <int DIM>
__global__ void __launch_bounds__(cached_shape::THREADS)
    tensor_cached_kernel(const WF_GRID_CONSTANT wf_cuda_cached c)
{
    constexpr int KEYS = keys_of_tile(DIM);
    WF_DYNAMIC_SHARED(char, queries);
    const wf_cuda_heads &a = c.heads;
    const cached_rows b = cached_rows_of(c);
    const int row = row_of_thread();
    const int64_t stride = a.groups * a.dim;
    wf_cuda_tokens tokens = {};
    softmax_state state;
    float y[DIM / 2], lse[2];
    int64_t at;

    if (b.row >= b.rows)
        return;
    tokens.count = b.position + a.query_tokens.count; /* The others were never written. */
    at = (c.slot[b.sequence] * c.room * a.groups + b.group) * a.dim;
    state = softmax_begin(a, cached_head(b, row), cached_head(b, row + 8));
    load_rows_of_group<DIM>(queries, c, b);
    attend<cached_shape, DIM>(
        state, y, queries, {cached_view(c, b, row), cached_view(c, b, row + 8)}, 0,
        walk_keys([&](int r) { return cached_view(c, b, r); }), a,
        [&](char *stage, const key_tile &tile) {
            load_pair<cached_shape, KEYS, DIM>(stage, c.k, c.v, at, stride, tile.key, tokens, a,
                                               tile.any);
        },
        [](float(&)[KEYS / 2], int) {});
    divide_rows<DIM>(state, y, lse);
    put_packs<cached_shape, DIM>(y, queries, (int)a.dim, [&](int r) {
        return b.row + r < b.rows ? (wf_bf16 *)a.y + cached_row_at(c, b, r) : NULL;
    });
}

template <int DIM>
cudaError_t launch_tensor_cached(cudaStream_t stream, const wf_cuda_cached *c)
{
    const wf_cuda_heads *a = &c->heads;
    const dim3 grid((unsigned)(cached_blocks(*a) * a->batch), (unsigned)a->groups);
    cudaError_t status = cudaFuncSetAttribute(tensor_cached_kernel<DIM>,
                                              cudaFuncAttributeMaxDynamicSharedMemorySize,
                                              bytes_to_attend<cached_shape, DIM>());

    return status ? status
                  : wf_launch(tensor_cached_kernel<DIM>, grid, cached_shape::THREADS,
                              bytes_to_attend<cached_shape, DIM>(), stream, *c);
}

} // namespace

cudaError_t wf_cuda_launch_tensor_cached(cudaStream_t stream, const wf_cuda_cached *c)
{
    return c->heads.dim <= 64    ? launch_tensor_cached<64>(stream, c)
           : c->heads.dim <= 128 ? launch_tensor_cached<128>(stream, c)
                                 : launch_tensor_cached<256>(stream, c);
}

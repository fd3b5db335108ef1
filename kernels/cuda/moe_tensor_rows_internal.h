/*
 * kernels/cuda/moe_tensor_rows_internal.h - products of the rows of experts of bf16 with their
 * matrices on tensor cores (moe_tensor_internal.h). For .cu files.
 *
 * Blocks find their jobs in the table of moe_lists.cu: what no expert has is no job. Rows of
 * tokens are gathered where tiles are loaded.
 */
#ifndef WF_KERNELS_CUDA_MOE_TENSOR_ROWS_INTERNAL_H
#define WF_KERNELS_CUDA_MOE_TENSOR_ROWS_INTERNAL_H

#include "kernels/cuda/moe_tensor_internal.h"

namespace
{
typedef wf_tile_share<GROUP_DOWN, WF_BLOCK, true> rows_share;

/* A block's part of an expert: its rows [first, end), at most those of a tile, and columns. */
struct row_job {
    int64_t expert, first, end, column;
};

/* The experts that a block's search is through with, and how many tiles of rows they have. */
struct row_search {
    int64_t expert, tiles;
};

/* Finds a block's next job; false where there are fewer. A warp looks at 32 experts at once,
   and each warp finds the same. */
__device__ __forceinline__ bool find_job(const wf_moe_lists &l, int64_t number, int across,
                                         row_search *at, row_job *job)
{
    const int lane = (int)threadIdx.x % WF_WARP;

    for (; at->expert < l.experts; at->expert += WF_WARP) {
        const int64_t e = at->expert + lane;
        const int first = e < l.experts ? l.begin[e] : 0;
        const int rows = e < l.experts ? l.begin[e + 1] - first : 0;
        const int tiles = (rows + GROUP_DOWN - 1) / GROUP_DOWN;
        int through = tiles;
        unsigned votes;

#pragma unroll
        for (int step = 1; step < WF_WARP; step *= 2) {
            const int before = __shfl_up_sync(0xffffffffu, through, (unsigned)step);

            through += lane >= step ? before : 0;
        }
        votes = __ballot_sync(0xffffffffu, (at->tiles + through) * across > number);
        if (votes) {
            const int with = __ffs((int)votes) - 1;
            const int before = __shfl_sync(0xffffffffu, through - tiles, with);
            const int down = __shfl_sync(0xffffffffu, tiles, with);
            const wf_tile_position tile = wf_tile_position_of(
                (int)(number - (at->tiles + before) * across), down, across, GROUP_BAND);

            job->expert = at->expert + with;
            job->first = __shfl_sync(0xffffffffu, first, with) + (int64_t)tile.row * GROUP_DOWN;
            job->end = __shfl_sync(0xffffffffu, first + rows, with);
            job->column = (int64_t)tile.column * GROUP_ACROSS;
            return true;
        }
        at->tiles += __shfl_sync(0xffffffffu, through, WF_WARP - 1);
    }
    return false;
}

/* Returns the last of all pieces, that of adapters, which may have no terms. A chunk's pairs
   are pieces of its chain, one after the other. */
__device__ __forceinline__ int last_piece(const wf_moe_row_product &p)
{
    return p.cuts << (p.pairs - 1);
}

__device__ __forceinline__ int pair_of(const wf_moe_row_product &p, int piece)
{
    return piece == last_piece(p) ? (int)WF_MOE_LOW : piece & (p.pairs - 1);
}

__device__ __forceinline__ int64_t first_term(const wf_moe_row_product &p, int piece)
{
    return piece == last_piece(p) ? 0 : p.cut[piece >> (p.pairs - 1)];
}

__device__ __forceinline__ int64_t terms_of(const wf_moe_row_product &p, int piece)
{
    const int chunk = piece >> (p.pairs - 1);

    return piece == last_piece(p) ? p.rank : p.cut[chunk + 1] - p.cut[chunk];
}

__device__ __forceinline__ void skip_pieces(const wf_moe_row_product &p, wf_tile_walk *w)
{
    while (w->piece < w->end && w->k >= terms_of(p, w->piece)) {
        w->piece++;
        w->k = 0;
    }
}

/* Brings the next tiles of a job, where there are some; token: rows of tokens. */
template <bool B, bool WIDE>
__device__ __forceinline__ void bring_rows(const wf_moe_row_product &p, const row_job &job,
                                           const group_rows<rows_share, WIDE> &token,
                                           wf_tile_walk *w, char *stage)
{
    typedef wf_tile_share<GROUP_ACROSS, WF_BLOCK, B> columns_share;
    const rows_share rows((int)threadIdx.x);
    const columns_share columns((int)threadIdx.x);

    if (w->piece < w->end) {
        const int pair = pair_of(p, w->piece);
        const wf_moe_matrix &a = p.pair[pair].a, &b = p.pair[pair].b;
        const int64_t first = first_term(p, w->piece), depth = terms_of(p, w->piece);
        const int64_t a_term = w->k + 8 * rows.unit;
        const int64_t b_term = w->k + (B ? 8 * columns.unit : columns.line);
        const int64_t column = B ? columns.line : 8 * columns.unit, left = p.n - job.column;
        const int64_t expert = job.expert * b.each;

        bring_share<WIDE>(stage, rows, (const wf_bf16 *)a.data, depth - a_term,
                          [&](int i) -> int64_t {
                              const int64_t at = job.first + rows.line + i * rows_share::LINES;
                              const int64_t row = a.token ? token.at(i, a, job.first, job.end)
                                                  : at < job.end ? at
                                                                 : -1;

                              return row < 0 ? -1 : row * a.row + first + a_term;
                          });
        bring_share<WIDE>(stage + GROUP_TILE_A, columns, (const wf_bf16 *)b.data,
                          B ? depth - b_term : left - column, [&](int i) -> int64_t {
                              const int64_t x = column + (B ? i * columns_share::LINES : 0);
                              const int64_t k = b_term + (B ? 0 : i * columns_share::LINES);

                              return x < left && k < depth ? expert + (job.column + x) * b.row +
                                                                 (first + k) * b.step
                                                           : -1;
                          });
        w->k += WF_TILE_DEPTH;
        skip_pieces(p, w);
    }
    wf_copy_commit();
}

/* B: terms of the matrices lie along their rows. */
template <class E, bool B, bool WIDE, class T>
__global__ void __launch_bounds__(WF_BLOCK, 1)
    expert_rows_kernel(const WF_GRID_CONSTANT wf_moe_row_product p,
                       const WF_GRID_CONSTANT wf_moe_lists lists)
{
    WF_DYNAMIC_SHARED(char, shared);
    char *const stages = E::shape::aligned(shared);
    const int across = (int)((p.n + GROUP_ACROSS - 1) / GROUP_ACROSS);
    const bool wide = ((uintptr_t)p.c % 16 | (uintptr_t)(p.n % wf_pack<T>::N)) == 0;
    row_search at = {0, 0};
    row_job job;

    for (int64_t j = blockIdx.x; find_job(lists, j, across, &at, &job); j += gridDim.x) {
        const bool works = E::works(job.end - job.first, p.n - job.column);
        wf_tile_walk w = {0, last_piece(p) + 1, 0};
        float sum[GROUP_SUMS];
        group_rows<rows_share, WIDE> token;
        int stage = 0;
        auto load = [&](char *to) { bring_rows<B, WIDE>(p, job, token, &w, to); };

        token.find(p.pair[0].a, job.first, job.end);
        wf_clear(sum);
        skip_pieces(p, &w);
        wf_begin_tiles<typename E::shape>(stages, load);
        wf_sum_chunks(p.cuts, sum, [&](int l, float(&to)[GROUP_SUMS]) {
            const int end = ((l + 1) << (p.pairs - 1)) + (l + 1 == p.cuts);

            wf_clear(to);
            for (int q = l << (p.pairs - 1); q < end; q++)
                for (int64_t k = 0; k < terms_of(p, q); k += WF_TILE_DEPTH)
                    E::template add<true, B>(to, stages, &stage, terms_of(p, q) - k, works,
                                             load);
            E::finish();
        });
        wf_put_sums<typename E::shape>((float *)stages, sum);
        put_sums<T>((float *)stages, job.end - job.first, p.n - job.column, p.scale, wide,
                    [&](int r) {
                        const int64_t row = job.first + r;

                        return (T *)p.c + (p.to ? p.to[row] : row) * p.n + job.column;
                    });
        __syncthreads();
    }
}

/* ---- the host's side ---- */

inline bool is_wide(const wf_moe_row_product *p)
{
    bool wide = true;

    for (int i = 0; i < p->pairs; i++)
        wide = wide && is_wide(p->pair[i].a) && is_wide(p->pair[i].b);
    if (p->rank)
        wide = wide && is_wide(p->pair[WF_MOE_LOW].a) && is_wide(p->pair[WF_MOE_LOW].b);
    for (int l = 0; l < p->cuts; l++)
        wide = wide && p->cut[l] % GROUP_SHARE == 0;
    return wide;
}

template <class E, class T>
cudaError_t launch_rows_to(cudaStream_t stream, const wf_moe_row_product *p, int processors)
{
    static void (*const kernel[])(const wf_moe_row_product, const wf_moe_lists) = {
        expert_rows_kernel<E, false, false, T>, expert_rows_kernel<E, false, true, T>,
        expert_rows_kernel<E, true, false, T>, expert_rows_kernel<E, true, true, T>};
    const wf_moe_lists *l = p->lists;
    const int64_t tiles = l->choices / GROUP_DOWN + l->experts; /* at most */

    return launch_group<E>(kernel[2 * (p->pair[0].b.step == 1) + is_wide(p)],
                           (tiles < l->choices ? tiles : l->choices) *
                               wf_ceil(p->n, GROUP_ACROSS),
                           processors, stream, *p, *l);
}

template <class E>
cudaError_t launch_rows(cudaStream_t stream, const wf_moe_row_product *p, int processors)
{
    return p->c_type == WF_BF16 ? launch_rows_to<E, wf_bf16>(stream, p, processors)
                                : launch_rows_to<E, float>(stream, p, processors);
}
} // namespace

#endif

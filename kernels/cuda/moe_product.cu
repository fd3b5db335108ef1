/*
 * kernels/cuda/moe_product.cu - grouped products of f32: of the rows of every expert with its
 * matrix (their number is the group's: m-grouped), and of those rows with each other, which
 * gives its gradient (k-grouped). Both find an expert's rows in the table of moe_lists.cu.
 *
 * A block has a tile of 64 x 64 sums, a thread 4 x 4 of them, and goes through terms by 16. A
 * sum is a chain of fmaf, so it has the CPU's bits (kernels/cpu/moe.c).
 */
#include "kernels/cuda/moe_internal.h"
#include "kernels/cuda/launch_internal.h"

namespace
{
enum {
    GROUP_EDGE = 64,
    GROUP_TERMS = 16,
    GROUP_ROOM = GROUP_EDGE + 4,
    GROUP_EACH = 4,
    GROUP_SIDE = GROUP_EDGE / GROUP_EACH
};

/* The tiles of both factors: of each term, GROUP_EDGE rows. */
struct group_tiles {
    float *a, *b;
};

struct group_sums {
    float v[GROUP_EACH][GROUP_EACH];
};

__device__ __forceinline__ void clear_sums(group_sums &s)
{
#pragma unroll
    for (int i = 0; i < GROUP_EACH; i++)
#pragma unroll
        for (int j = 0; j < GROUP_EACH; j++)
            s.v[i][j] = 0.0f;
}

/* s = older + s */
__device__ __forceinline__ void add_to_sums(group_sums &s, const group_sums &older)
{
#pragma unroll
    for (int i = 0; i < GROUP_EACH; i++)
#pragma unroll
        for (int j = 0; j < GROUP_EACH; j++)
            s.v[i][j] = older.v[i][j] + s.v[i][j];
}

/* Every zero of a tree is +0 (core/numerics/tree.h). */
__device__ __forceinline__ void end_chunk(group_sums &s)
{
#pragma unroll
    for (int i = 0; i < GROUP_EACH; i++)
#pragma unroll
        for (int j = 0; j < GROUP_EACH; j++)
            s.v[i][j] += 0.0f;
}

/* Fills a tile with get(row, term), zeros from `rows` and `terms` on; threads side by side read
   terms side by side where these are in memory, else rows. */
template <class GET>
__device__ __forceinline__ void fill_group_tile(float *tile, bool along, int64_t rows,
                                                int64_t terms, GET get)
{
#pragma unroll
    for (int i = (int)threadIdx.x; i < GROUP_EDGE * GROUP_TERMS; i += GROUP_SIDE * GROUP_SIDE) {
        const int row = along ? i / GROUP_TERMS : i % GROUP_EDGE,
                  term = along ? i % GROUP_TERMS : i / GROUP_EDGE;

        tile[term * GROUP_ROOM + row] = row < rows && term < terms ? get(row, term) : 0.0f;
    }
}

/* Adds `terms` terms of two tiles. */
__device__ __forceinline__ void add_tiles(group_sums &s, const group_tiles &t, int64_t terms)
{
    const int x = (int)threadIdx.x % GROUP_SIDE * GROUP_EACH,
              y = (int)threadIdx.x / GROUP_SIDE * GROUP_EACH;

    for (int k = 0; k < GROUP_TERMS && k < terms; k++) {
        const float4 a4 = *(const float4 *)(t.a + k * GROUP_ROOM + y);
        const float4 b4 = *(const float4 *)(t.b + k * GROUP_ROOM + x);
        const float a[GROUP_EACH] = {a4.x, a4.y, a4.z, a4.w},
                    b[GROUP_EACH] = {b4.x, b4.y, b4.z, b4.w};

#pragma unroll
        for (int i = 0; i < GROUP_EACH; i++)
#pragma unroll
            for (int j = 0; j < GROUP_EACH; j++)
                s.v[i][j] = fmaf(a[i], b[j], s.v[i][j]);
    }
}

/* Returns the row of memory that row i of a factor is. */
__device__ __forceinline__ int64_t row_in(const wf_moe_matrix &f, int64_t i)
{
    return f.token ? f.token[i] : i;
}

/* ---- rows of experts ---- */

/* A block's part of the rows: those of one expert from `first` on; columns from `column` on. */
struct row_tile {
    int64_t expert, first, end, column;
};

/* Finds tile number t of all experts'; false where there are fewer. */
__device__ bool find_tile(const wf_moe_lists &l, int64_t t, row_tile *tile)
{
    for (int64_t e = 0; e < l.experts; e++) {
        const int64_t begin = l.begin[e], end = l.begin[e + 1];
        const int64_t tiles = (end - begin + GROUP_EDGE - 1) / GROUP_EDGE;

        if (t < tiles) {
            *tile = {e, begin + t * GROUP_EDGE, end, 0};
            return true;
        }
        t -= tiles;
    }
    return false;
}

/* Adds the terms [k, end) of a pair to chains. */
__device__ void add_expert_pair(group_sums &s, const group_tiles &t, const wf_moe_pair &p,
                                int64_t k, int64_t end, const row_tile &at, int64_t n)
{
    const float *a = (const float *)p.a.data;
    const float *b = (const float *)p.b.data + at.expert * p.b.each + at.column * p.b.row;

    for (; k < end; k += GROUP_TERMS) {
        fill_group_tile(t.a, true, at.end - at.first, end - k, [&](int row, int term) {
            return a[row_in(p.a, at.first + row) * p.a.row + k + term];
        });
        fill_group_tile(t.b, p.b.step == 1, n - at.column, end - k, [&](int row, int term) {
            return b[row * p.b.row + (k + term) * p.b.step];
        });
        __syncthreads();
        add_tiles(s, t, end - k);
        __syncthreads();
    }
}

/* Adds the sums of chunk l, which are in s, to the tree over 1, 2, 4 or 8: nodes of 1, 2 and 4
   chunks wait. */
__device__ __forceinline__ void join_chunk(group_sums &s, group_sums (&waits)[3], int l)
{
    if (!(l & 1)) {
        waits[0] = s;
        return;
    }
    add_to_sums(s, waits[0]);
    if (!(l & 2)) {
        waits[1] = s;
        return;
    }
    add_to_sums(s, waits[1]);
    if (!(l & 4)) {
        waits[2] = s;
        return;
    }
    add_to_sums(s, waits[2]);
}

__device__ __forceinline__ void put_rows_of(const group_sums &s, const wf_moe_row_product &p,
                                            const row_tile &at)
{
    const int64_t x = at.column + (int)threadIdx.x % GROUP_SIDE * GROUP_EACH;
    const int64_t y = at.first + (int)threadIdx.x / GROUP_SIDE * GROUP_EACH;

#pragma unroll
    for (int i = 0; i < GROUP_EACH; i++)
#pragma unroll
        for (int j = 0; j < GROUP_EACH; j++)
            if (y + i < at.end && x + j < p.n)
                ((float *)p.c)[(p.to ? p.to[y + i] : y + i) * p.n + x + j] =
                    s.v[i][j] * p.scale;
}

__global__ void __launch_bounds__(GROUP_SIDE *GROUP_SIDE)
    row_product_kernel(const WF_GRID_CONSTANT wf_moe_row_product p,
                       const WF_GRID_CONSTANT wf_moe_lists lists)
{
    WF_SHARED(float, room, 2 * GROUP_TERMS * GROUP_ROOM);
    const group_tiles tiles = {room, room + GROUP_TERMS * GROUP_ROOM};
    group_sums s, waits[3];
    row_tile at;

    if (!find_tile(lists, blockIdx.x, &at))
        return;
    at.column = (int64_t)blockIdx.y * GROUP_EDGE;
    for (int l = 0; l < p.cuts; l++) {
        clear_sums(s);
        for (int i = 0; i < p.pairs; i++)
            add_expert_pair(s, tiles, p.pair[i], p.cut[l], p.cut[l + 1], at, p.n);
        if (l + 1 == p.cuts)
            add_expert_pair(s, tiles, p.pair[WF_MOE_LOW], 0, p.rank, at, p.n);
        end_chunk(s);
        if (p.cuts > 1)
            join_chunk(s, waits, l);
    }
    put_rows_of(s, p, at);
}

/* ---- gradients of matrices ---- */

/* Adds rows [k, end) of an expert to chains. */
__device__ void add_expert_rows(group_sums &s, const group_tiles &t,
                                const wf_moe_weight_product &p, int64_t k, int64_t end,
                                int64_t row, int64_t column)
{
    const float *a = (const float *)p.a.data + row, *b = (const float *)p.b.data + column;

    for (; k < end; k += GROUP_TERMS) {
        fill_group_tile(t.a, false, p.m - row, end - k, [&](int i, int term) {
            return a[row_in(p.a, k + term) * p.a.row + i];
        });
        fill_group_tile(t.b, false, p.n - column, end - k, [&](int i, int term) {
            return b[row_in(p.b, k + term) * p.b.row + i];
        });
        __syncthreads();
        add_tiles(s, t, end - k);
        __syncthreads();
    }
}

__global__ void __launch_bounds__(GROUP_SIDE *GROUP_SIDE)
    weight_product_kernel(const WF_GRID_CONSTANT wf_moe_weight_product p,
                          const WF_GRID_CONSTANT wf_moe_lists lists)
{
    WF_SHARED(float, room, 2 * GROUP_TERMS * GROUP_ROOM);
    const group_tiles tiles = {room, room + GROUP_TERMS * GROUP_ROOM};
    const int64_t e = blockIdx.z, row = (int64_t)blockIdx.y * GROUP_EDGE;
    const int64_t column = (int64_t)blockIdx.x * GROUP_EDGE;
    const int *leaf = lists.leaf + e * (lists.leaves + 1);
    const int64_t x = column + (int)threadIdx.x % GROUP_SIDE * GROUP_EACH;
    const int64_t y = row + (int)threadIdx.x / GROUP_SIDE * GROUP_EACH;
    group_sums s, open[WF_MOE_LEVELS];
    int waiting = 0;

    clear_sums(s);
    for (int64_t l = 0; l < lists.leaves; l++) {
        clear_sums(s);
        add_expert_rows(s, tiles, p, leaf[l], leaf[l + 1], row, column);
        end_chunk(s);
        for (int merges = lists.merges[l]; merges > 0; merges--)
            add_to_sums(s, open[--waiting]);
        if (l + 1 < lists.leaves)
            open[waiting++] = s;
    }
#pragma unroll
    for (int i = 0; i < GROUP_EACH; i++)
#pragma unroll
        for (int j = 0; j < GROUP_EACH; j++)
            if (y + i < p.m && x + j < p.n)
                p.c[(e * p.m + y + i) * p.n + x + j] = s.v[i][j];
}
} // namespace

static cudaError_t launch_rows(cudaStream_t stream, const wf_moe_row_product *p, int)
{
    const wf_moe_lists *l = p->lists;
    const int64_t tiles = wf_ceil(l->choices, GROUP_EDGE) + l->experts;
    const dim3 grid(l->choices ? (unsigned)tiles : 0, (unsigned)wf_ceil(p->n, GROUP_EDGE));

    return wf_launch(row_product_kernel, grid, GROUP_SIDE * GROUP_SIDE, 0, stream, *p, *l);
}

static cudaError_t launch_weights(cudaStream_t stream, const wf_moe_weight_product *p, int)
{
    const dim3 grid((unsigned)wf_ceil(p->n, GROUP_EDGE), (unsigned)wf_ceil(p->m, GROUP_EDGE),
                    (unsigned)p->lists->experts);

    return wf_launch(weight_product_kernel, grid, GROUP_SIDE * GROUP_SIDE, 0, stream, *p,
                     *p->lists);
}

const wf_moe_products wf_cuda_moe_floats = {launch_rows, launch_weights};

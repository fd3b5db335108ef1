/*
 * kernels/cuda/norm_lanes_internal.h - dx of a norm, and the sums over tokens of dgain and
 * dbias, by one pass over x and dy: the kernels of norm_grad.cu.
 *
 * The sums are those of column_sum_internal.h, term by term: eight lanes in each chunk of
 * tokens, each a chain over every eighth row. A block has a lane, and takes as many of its rows
 * at once as have threads for each (wf_row_threads, so that dx has the bits of
 * wf_norm_backward_kernel). A row is kept in shared memory as it is stored; when its dx is
 * written all threads add the rows to the lane's sums in their order, each some packs of
 * columns. A second kernel adds lanes and chunks.
 */
#ifndef WF_KERNELS_CUDA_NORM_LANES_INTERNAL_H
#define WF_KERNELS_CUDA_NORM_LANES_INTERNAL_H

#include "kernels/cuda/column_sum_internal.h"
#include "kernels/cuda/norm_internal.h"

namespace
{
enum {
    GRAD_BLOCK = 256,
    GRAD_WARPS = GRAD_BLOCK / WF_WARP, /* most rows at once, too */
    GRAD_LANES = 128,                  /* fewer lanes are left to the two kernels */
    SUM_BLOCK = 64
};

struct lanes_job {
    wf_norm_gradient of;
    wf_row_chunks chunks;
    int64_t sequences;
    float *sums;   /* [output][sequence][lane of a sequence][width] */
    int64_t width; /* columns, in whole packs */
    int threads;   /* for each row */
};

/* A thread's part of a row as it comes from memory. */
template <class T> struct row_part {
    wf_pack<T> x[WF_ROW_PACKS], dy[WF_ROW_PACKS];
    float mean, rstd;
};

/* Reads row r, or zeros where r is below 0. */
template <class T, bool CENTRED>
__device__ __forceinline__ row_part<T> read_row(const lanes_job &a, int64_t r, int t)
{
    const int64_t first = r < 0 ? 0 : r * a.of.d, d = r < 0 ? 0 : a.of.d;
    row_part<T> row = {};

#pragma unroll
    for (int k = 0; k < WF_ROW_PACKS; k++) {
        const int64_t i = (int64_t)(k * a.threads + t) * wf_pack<T>::N;

        row.x[k] = wf_read((const T *)a.of.x + first + i, d - i, a.of.wide);
        row.dy[k] = wf_read((const T *)a.of.dy + first + i, d - i, a.of.wide);
    }
    row.mean = CENTRED && r >= 0 ? a.of.mean[r] : 0.0f;
    row.rstd = r >= 0 ? a.of.rstd[r] : 0.0f;
    return row;
}

/* A block's shared memory, and a thread's part in its work. */
template <class T> struct grad_room {
    wf_pack<T> *x, *dy; /* [row][pack], as they are stored */
    float4 *sums;       /* the lane's, [output][four columns of a pack][pack] */
    float *warp_sums;   /* two of each warp */
    float *mean, *rstd; /* [row] */
    int groups, group;  /* rows at once, and the thread's */
    int t, packs;       /* its number in the row, and the row's packs */
};

/* Keeps a row in shared memory, and leaves the sums over each of its warps there, of which
   finish_row makes those of wf_block_sum. */
template <class T, bool CENTRED>
__device__ __forceinline__ void begin_row(const lanes_job &a, const grad_room<T> &s,
                                          const row_part<T> &row)
{
    constexpr int PACK = wf_pack<T>::N;
    float sum[2] = {0.0f, 0.0f};

#pragma unroll
    for (int k = 0; k < WF_ROW_PACKS; k++) {
        const int p = k * a.threads + s.t;
        float h[PACK], g[PACK];

        wf_norm_terms<T, CENTRED>(a.of, (int64_t)p * PACK, row.mean, row.rstd, row.x[k],
                                  row.dy[k], h, g);
#pragma unroll
        for (int e = 0; e < PACK; e++) {
            sum[0] += g[e];
            sum[1] = fmaf(g[e], h[e], sum[1]);
        }
        if (p < s.packs) {
            s.x[s.group * s.packs + p] = row.x[k];
            s.dy[s.group * s.packs + p] = row.dy[k];
        }
    }
    if (s.t == 0) {
        s.mean[s.group] = row.mean;
        s.rstd[s.group] = row.rstd;
    }
#pragma unroll
    for (int k = 0; k < 2; k++) {
        sum[k] = wf_warp_sum(sum[k]);
        if (threadIdx.x % WF_WARP == 0)
            s.warp_sums[k * GRAD_WARPS + threadIdx.x / WF_WARP] = sum[k];
    }
}

/* Stores dx of row r. */
template <class T, bool CENTRED>
__device__ __forceinline__ void finish_row(const lanes_job &a, const grad_room<T> &s, int64_t r)
{
    constexpr int PACK = wf_pack<T>::N;
    const int warps = a.threads / WF_WARP;
    const float mean = s.mean[s.group], rstd = s.rstd[s.group];
    float sum[2];

#pragma unroll
    for (int k = 0; k < 2; k++) {
        const float *of = s.warp_sums + k * GRAD_WARPS + s.group * warps;

        sum[k] = of[0];
        for (int w = 1; w < warps; w++)
            sum[k] += of[w];
    }
    sum[0] = CENTRED ? sum[0] / (float)a.of.d : 0.0f;
    sum[1] = sum[1] / (float)a.of.d;
#pragma unroll
    for (int k = 0; k < WF_ROW_PACKS; k++) {
        const int p = k * a.threads + s.t, at = s.group * s.packs + p;
        const int64_t i = (int64_t)p * PACK;
        wf_pack<T> added = {};
        float h[PACK], g[PACK];

        if (p >= s.packs)
            continue;
        if (a.of.ds)
            added = wf_read((const T *)a.of.ds + r * a.of.d + i, a.of.d - i, a.of.wide);
        wf_norm_terms<T, CENTRED>(a.of, i, mean, rstd, s.x[at], s.dy[at], h, g);
        wf_norm_store_dx<T, CENTRED>(a.of, r * a.of.d + i, a.of.d - i, rstd, sum, h, g, added);
    }
}

/* The lane's sums of a pack of columns, from shared memory and back. */
template <class T, int OUT>
__device__ __forceinline__ void get_sums(const grad_room<T> &s, int p,
                                         float (*own)[wf_pack<T>::N])
{
    constexpr int QUADS = wf_pack<T>::N / 4;

#pragma unroll
    for (int q = 0; q < OUT * QUADS; q++) {
        const float4 v = s.sums[q * s.packs + p];
        float *to = own[q / QUADS] + q % QUADS * 4;

        to[0] = v.x;
        to[1] = v.y;
        to[2] = v.z;
        to[3] = v.w;
    }
}

template <class T, int OUT>
__device__ __forceinline__ void put_sums(const grad_room<T> &s, int p,
                                         float (*own)[wf_pack<T>::N])
{
    constexpr int QUADS = wf_pack<T>::N / 4;

#pragma unroll
    for (int q = 0; q < OUT * QUADS; q++) {
        const float *from = own[q / QUADS] + q % QUADS * 4;

        s.sums[q * s.packs + p] = make_float4(from[0], from[1], from[2], from[3]);
    }
}

/* Adds the n rows in shared memory, in their order, to the lane's sums. */
template <class T, bool CENTRED>
__device__ __forceinline__ void add_rows(const grad_room<T> &s, int n)
{
    constexpr int PACK = wf_pack<T>::N, OUT = CENTRED ? 2 : 1;

    for (int p = (int)threadIdx.x; p < s.packs; p += (int)blockDim.x) {
        float own[OUT][PACK];

        get_sums<T, OUT>(s, p, own);
        for (int row = 0; row < n; row++) {
            const float mean = s.mean[row], rstd = s.rstd[row];
            float v[PACK], d[PACK];

            wf_unpack(s.x[row * s.packs + p], v);
            wf_unpack(s.dy[row * s.packs + p], d);
#pragma unroll
            for (int e = 0; e < PACK; e++) {
                own[0][e] += d[e] * ((CENTRED ? v[e] - mean : v[e]) * rstd);
                if (CENTRED)
                    own[1][e] += d[e];
            }
        }
        put_sums<T, OUT>(s, p, own);
    }
}

/* Goes over the rows of a lane of a sequence. */
template <class T, bool CENTRED>
__device__ __forceinline__ void sum_lane(const lanes_job &a, const grad_room<T> &s, int64_t b,
                                         int lane)
{
    const int chunk = lane / WF_SUM_LANES, first = lane % WF_SUM_LANES;
    const int64_t length = a.chunks.at[chunk + 1] - a.chunks.at[chunk];
    const int64_t count = (a.chunks.runs * length - first + WF_SUM_LANES - 1) / WF_SUM_LANES;
    const auto row_at = [&](int64_t q) {
        return q < count
                   ? b * a.chunks.runs * a.chunks.step +
                         wf_row_of_chunk(a.chunks, chunk, length, first + q * WF_SUM_LANES)
                   : -1;
    };
    row_part<T> next = read_row<T, CENTRED>(a, row_at(s.group), s.t);

    for (int64_t q = 0; q < count; q += s.groups) {
        const int64_t r = row_at(q + s.group);
        begin_row<T, CENTRED>(a, s, next);
        next = read_row<T, CENTRED>(a, row_at(q + s.groups + s.group), s.t);
        __syncthreads();
        if (r >= 0)
            finish_row<T, CENTRED>(a, s, r);
        add_rows<T, CENTRED>(s, (int)(count - q < s.groups ? count - q : s.groups));
        __syncthreads();
    }
}

template <class T, bool CENTRED>
__global__ void __launch_bounds__(GRAD_BLOCK, 2)
    lanes_kernel(const WF_GRID_CONSTANT lanes_job a)
{
    constexpr int PACK = wf_pack<T>::N, OUT = CENTRED ? 2 : 1;
    WF_DYNAMIC_SHARED(wf_pack<T>, room);
    WF_SHARED(float, warp_sums, 2 * GRAD_WARPS);
    WF_SHARED(float, statistics, 2 * GRAD_WARPS);
    const int lanes = a.chunks.eights * WF_SUM_ROWS, packs = (int)(a.width / PACK);
    const int groups = (int)blockDim.x / a.threads;
    const grad_room<T> s = {room,
                            room + groups * packs,
                            (float4 *)(room + 2 * groups * packs),
                            warp_sums,
                            statistics,
                            statistics + GRAD_WARPS,
                            groups,
                            (int)threadIdx.x / a.threads,
                            (int)threadIdx.x % a.threads,
                            packs};

    for (int64_t job = blockIdx.x; job < a.sequences * lanes; job += gridDim.x) {
        float own[OUT][PACK] = {};

        for (int p = (int)threadIdx.x; p < packs; p += (int)blockDim.x)
            put_sums<T, OUT>(s, p, own);
        sum_lane<T, CENTRED>(a, s, job / lanes, (int)(job % lanes));
        for (int p = (int)threadIdx.x; p < packs; p += (int)blockDim.x) {
            get_sums<T, OUT>(s, p, own);
#pragma unroll
            for (int o = 0; o < OUT; o++)
#pragma unroll
                for (int e = 0; e < PACK; e += 4)
                    wf_store_pack(a.sums + (o * a.sequences * lanes + job) * a.width +
                                      p * PACK + e,
                                  own[o] + e);
        }
    }
}

/* Adds the lanes of every chunk, and the chunks of every sequence: a thread has a column. */
__global__ void __launch_bounds__(SUM_BLOCK)
    lane_sum_kernel(const WF_GRID_CONSTANT lanes_job a, float *dgain, float *dbias)
{
    const int i = (int)(blockIdx.x * SUM_BLOCK + threadIdx.x), width = (int)a.width;
    float *to = blockIdx.z ? dbias : dgain;

    for (int64_t b = blockIdx.y; i < a.of.d && b < a.sequences; b += gridDim.y) {
        const float *sums =
            a.sums + (blockIdx.z * a.sequences + b) * a.chunks.eights * WF_SUM_ROWS * a.width;
        wf_tree_of_eights tree = {0.0f, 0.0f};
        float all = 0.0f;

        for (int eight = 0; eight < a.chunks.eights; eight++) {
            float chunk[WF_MAX_CHUNKS];

#pragma unroll
            for (int l = 0; l < WF_MAX_CHUNKS; l++)
                chunk[l] = wf_chunk_of_lanes(sums + eight * WF_SUM_ROWS * a.width, l, i, width);
            all = tree.add(wf_node_of_eight(chunk), eight);
        }
        to[b * a.of.d + i] = all;
    }
}
} // namespace

#endif

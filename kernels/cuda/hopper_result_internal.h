/*
 * kernels/cuda/hopper_result_internal.h - how the sums of Hopper's products leave: 64 rows of a
 * warpgroup become boxes in its part of shared memory, which the tensor memory accelerator
 * stores meanwhile. For hopper_pipeline_internal.h.
 */
#ifndef WF_KERNELS_CUDA_HOPPER_RESULT_INTERNAL_H
#define WF_KERNELS_CUDA_HOPPER_RESULT_INTERNAL_H

#include "kernels/cuda/hopper_internal.h"

enum {
    CLUSTER = WF_CLUSTER, /* blocks with neighbouring rows, which share tiles of b */
    TILE = WF_TENSOR_TILE,
    STAGES = WF_STAGES,
    OPERAND = TILE * WF_TILE_LINE,
    STAGE = 2 * OPERAND,
    GROUP = 128,          /* threads of a warpgroup */
    WORKERS = WF_WORKERS, /* warpgroups that multiply */
    WORKER_ROWS = TILE / WORKERS,
    THREADS = (1 + WORKERS) * GROUP,
    SUMS = WF_HOPPER_SUMS,
    ALIGNED = 1024, /* a stage, as the swizzle wants it */
    ASIDE = SUMS * WORKERS * GROUP * 4,
    BARRIER = 8,
#ifdef WF_CUDA_EMULATED
    FEW_PIECES = WF_TENSOR_PIECES, /* so kernels have one size, which every CI compiles */
#else
    FEW_PIECES = WF_TENSOR_CHUNKS, /* most of a launch whose arguments are small */
#endif
    SHARED = ALIGNED + STAGES * STAGE + ASIDE + (2 * STAGES + WORKERS) * BARRIER
};

namespace
{

/* A product of up to N pieces, and each of its factors and results as a tensor map. */
template <int N> struct mapped {
    wf_tensor_product p;
    uint16_t units[WF_TENSOR_CHUNKS + 1]; /* [chunks of a node] its units, four bits each */
    int stages[WF_TENSOR_PARTS];          /* [node] */
    CUtensorMap to, gelu, a[N], b[N];
};

/* Waits at a warpgroup's own barrier. */
__device__ __forceinline__ void sync_group(int worker)
{
    wf_sync_threads<GROUP>(1 + worker);
}

/* Returns where the pair from this column on lies. */
template <class T> __device__ __forceinline__ char *box_at(char *boxes, int row, int column)
{
    int byte = column * (int)sizeof(T);

    return boxes + byte / WF_TILE_LINE * (WORKER_ROWS * WF_TILE_LINE) + row * WF_TILE_LINE +
           ((byte / 16 ^ row) % 8) * 16 + byte % 16;
}

__device__ __forceinline__ void put_pair(char *to, float low, float high, float)
{
    *(float2 *)to = make_float2(low, high);
}

__device__ __forceinline__ void put_pair(char *to, float low, float high, wf_bf16)
{
    *(uint32_t *)to = wf_bf16_pair(low, high);
}

/* Waits until the reads of a warpgroup's part of shared memory are done. */
__device__ __forceinline__ void boxes_are_read(int worker)
{
    wf_stores_have_read();
    sync_group(worker);
}

template <class T>
__device__ __forceinline__ void store_boxes(const CUtensorMap *map, const char *boxes, int row,
                                            int column, int node)
{
    constexpr int WIDTH = WF_TILE_LINE / (int)sizeof(T);

#pragma unroll
    for (int i = 0; i < TILE / WIDTH; i++)
        wf_store_box(map, wf_shared_address(boxes) + i * WORKER_ROWS * WF_TILE_LINE,
                     column + i * WIDTH, row, node);
}

/* The epilogue of sums: none, or that of wf_finish. */
enum finish { PLAIN, ADDED, SUMMED, GATED, BIASED, BIASED_SUMMED, GELU };

/* Returns two neighbours, the first of which has an even index. */
__device__ __forceinline__ float2 pair_at(wf_vector v, int64_t at)
{
    if (v.bf16) {
        const uint32_t pair = *(const uint32_t *)((const wf_bf16 *)v.data + at);

        return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u));
    }
    return *(const float2 *)((const float *)v.data + at);
}

/* The first COUNT sums as boxes, of columns from `from` on. One loop for each way, so that none
   jumps over the instructions of the others. */
template <class T, int WAY, int COUNT>
__device__ __forceinline__ void fill_boxes(const wf_tensor_product &p, const float (&sum)[SUMS],
                                           int64_t first, char *boxes, int rows, int columns,
                                           int column, int from, int t)
{
    constexpr bool RESIDUAL = WAY == SUMMED || WAY == BIASED_SUMMED;
    constexpr int SECOND = TILE * WORKER_ROWS * (int)sizeof(T); /* beginning of gelu's */
    int down = t / WF_WARP * 16 + t % WF_WARP / 4, across = from + t % 4 * 2;
    wf_vector bias = {p.result.bias, p.result.bias_bf16};
    wf_vector residual = {p.result.residual, p.result.residual_bf16};

#pragma unroll
    for (int i = 0; i < COUNT; i += 2) {
        int y = down + i / 2 % 2 * 8, x = across + i / 4 * 8;
        char *to = box_at<T>(boxes, y, x);
        float low = sum[i] + 0.0f, high = sum[i + 1] + 0.0f;

        if (WAY == ADDED && y < rows && x < columns) {
            const T *old = (const T *)p.result.to + first + y * p.result.to_ld + x;

            low = wf_get(old[0]) + low;
            high = wf_get(old[1]) + high;
        }
        if (WAY >= BIASED && x < columns) {
            float biased = wf_stored<T>(low) + wf_at(bias, column + x);
            float second = wf_stored<T>(high) + wf_at(bias, column + x + 1);

            if (WAY == GELU) {
                put_pair(to + SECOND, wf_gelu_of(biased), wf_gelu_of(second), T());
            } else {
                low = biased;
                high = second;
            }
        }
        if (WAY == GATED && y < rows && x < columns) {
            const float2 gate =
                pair_at({p.result.gate, sizeof(T) == 2}, first + y * p.result.to_ld + x);

            put_pair(to + SECOND, wf_silu_of(gate.x) * wf_stored<T>(low),
                     wf_silu_of(gate.y) * wf_stored<T>(high), T());
        }
        if (RESIDUAL && y < rows && x < columns) {
            const float2 more = pair_at(residual, first + y * p.result.to_ld + x);

            low = more.x + wf_stored<T>(low);
            high = more.y + wf_stored<T>(high);
        }
        put_pair(to, low, high, T());
    }
}

/* The first COUNT sums of half of a job's rows go to their boxes, and gelu's where there is
   one. */
template <class T, int COUNT, int N>
__device__ __forceinline__ void fill(const mapped<N> &of, const float (&sum)[SUMS],
                                     const wf_tile_job &job, int half, int from, char *boxes,
                                     int t)
{
    const wf_cuda_result &r = of.p.result;
    int row = job.row * TILE + half * WORKER_ROWS, column = job.column * TILE;
    int rows = (int)of.p.m - row, columns = (int)of.p.n - column;
    const int64_t first = job.node * of.p.stride + row * r.to_ld + column;

    asm volatile("" : "+r"(t)); /* else addresses are computed before the first job, and kept */
    if (r.gate)
        fill_boxes<T, GATED, COUNT>(of.p, sum, first, boxes, rows, columns, column, from, t);
    else if (r.gelu)
        fill_boxes<T, GELU, COUNT>(of.p, sum, first, boxes, rows, columns, column, from, t);
    else if (r.bias && r.residual)
        fill_boxes<T, BIASED_SUMMED, COUNT>(of.p, sum, first, boxes, rows, columns, column,
                                            from, t);
    else if (r.residual)
        fill_boxes<T, SUMMED, COUNT>(of.p, sum, first, boxes, rows, columns, column, from, t);
    else if (r.bias)
        fill_boxes<T, BIASED, COUNT>(of.p, sum, first, boxes, rows, columns, column, from, t);
    else if (r.add)
        fill_boxes<T, ADDED, COUNT>(of.p, sum, first, boxes, rows, columns, column, from, t);
    else
        fill_boxes<T, PLAIN, COUNT>(of.p, sum, first, boxes, rows, columns, column, from, t);
}

__device__ __forceinline__ float2 pair_of(const char *from, float)
{
    return *(const float2 *)from;
}

__device__ __forceinline__ float2 pair_of(const char *from, wf_bf16)
{
    const uint32_t pair = *(const uint32_t *)from;

    return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u));
}

/* Rotates half of a job's rows in their boxes. A thread has both halves of a head: it takes
   what it has put there itself, rounded. */
template <class T, int N>
__device__ __forceinline__ void rotate_boxes(const mapped<N> &of, const wf_tile_job &job,
                                             int half, char *boxes, int t)
{
    const wf_cuda_rotation &a = of.p.result.rotation;
    const int row = job.row * TILE + half * WORKER_ROWS;

#pragma unroll 1
    for (int i = 0; i < 2; i++) {
        const int y = t / WF_WARP * 16 + t % WF_WARP / 4 + i * 8;
        const int64_t angles = wf_angles_at(a, row + y, 0);

#pragma unroll 4
        for (int first = t % 4 * 2; first < TILE / 2; first += 8) { /* among first halves */
            const int x = first + first / a.half * a.half;
            char *low = box_at<T>(boxes, y, x), *high = box_at<T>(boxes, y, x + a.half);
            const float2 cosine = pair_at({a.cosine, false}, angles + first % a.half);
            const float2 sine = pair_at({a.sine, false}, angles + first % a.half);
            float2 p = pair_of(low, T()), q = pair_of(high, T());

            wf_rotate(&p.x, &q.x, cosine.x, sine.x);
            wf_rotate(&p.y, &q.y, cosine.y, sine.y);
            put_pair(low, p.x, p.y, T());
            put_pair(high, q.x, q.y, T());
        }
    }
}

/* Boxes that are filled become the result. */
template <class T, int N>
__device__ __forceinline__ void store(const mapped<N> &of, const wf_tile_job &job, int half,
                                      char *boxes, int worker, int t)
{
    int row = job.row * TILE + half * WORKER_ROWS, column = job.column * TILE;

    if (of.p.result.rotation.cosine)
        rotate_boxes<T>(of, job, half, boxes, t);
    wf_boxes_are_written();
    sync_group(worker);
    if (t == 0) {
        store_boxes<T>(&of.to, boxes, row, column, job.node);
        if (of.p.result.gelu)
            store_boxes<T>(&of.gelu, boxes + TILE * WORKER_ROWS * (int)sizeof(T), row, column,
                           0);
        wf_stores_commit();
    }
}

/* The same for results that are not aligned. */
template <class T>
__device__ __forceinline__ void store_slowly(const wf_tensor_product &p,
                                             const float (&sum)[SUMS], const wf_tile_job &job,
                                             float *tile, int worker, int t)
{
#pragma unroll
    for (int i = 0; i < SUMS; i += 2)
        *(float2 *)wf_sum_at<TILE>(tile, t / WF_WARP * 16 + t % WF_WARP / 4 + i / 2 % 2 * 8,
                                   t % 4 * 2 + i / 4 * 8) = make_float2(sum[i], sum[i + 1]);
    sync_group(worker);
    wf_finish_tile<T, WORKER_ROWS, TILE, GROUP, false>(
        p, (T *)p.result.to + job.node * p.stride, tile,
        (int64_t)job.row * TILE + worker * WORKER_ROWS, (int64_t)job.column * TILE, t);
}

} // namespace

#endif

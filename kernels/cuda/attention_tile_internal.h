/*
 * kernels/cuda/attention_tile_internal.h - the pieces that attention's kernels are made of. For
 * .cu files.
 *
 * A block of 16 x 16 threads works on tiles of TILE rows in shared memory, kept as floats
 * whatever they are stored as; TILE and the columns of an accumulator follow from the head's
 * dim alone, so an element is one expression wherever its head and sequence are computed.
 * Thread (tx, ty) has rows ty * M .. + M of a result; of scores the columns tx + 16 c, of an
 * accumulator four at 4 (tx + 16 q). A row of a tile is dim rounded up to 8, and 4 more, so
 * that 16 threads reading 16 bytes of as many rows meet no bank twice.
 */
#ifndef WF_KERNELS_CUDA_ATTENTION_TILE_INTERNAL_H
#define WF_KERNELS_CUDA_ATTENTION_TILE_INTERNAL_H

#include "kernels/cuda/attention_pairs_internal.h"

enum { SIDE = 16, COLUMNS = 64 /* an accumulator's per step of q */, PAD = 4 };

static __device__ __host__ __forceinline__ int row_floats(int64_t dim)
{
    return (int)((dim + 7) / 8 * 8) + PAD;
}

/* The first key that a tile of queries from `first` on sees; the block asks as one. */
template <int TILE>
static __device__ __forceinline__ int64_t least_from(const wf_cuda_heads &a, int64_t first)
{
    int64_t least = is_bounded(a) ? first : 0;

    for (int64_t i = first; is_bounded(a) && i < first + TILE && i < end_of(a.query_tokens);
         i++)
        least = from_of(a, i) < least ? from_of(a, i) : least;
    return least;
}

/* The tiles of keys that the tile of queries from `first` on sees begin at the first of these,
   or after it, and before the second. */
template <int TILE>
static __device__ __forceinline__ int64_t keys_begin(const wf_cuda_heads &a, int64_t first)
{
    return least_from<TILE>(a, first) / TILE * TILE;
}

template <int TILE>
static __device__ __forceinline__ int64_t keys_end(const wf_cuda_heads &a, int64_t first)
{
    const int64_t end = end_of(a.query_tokens);

    return a.bidirectional ? keys_of(a) : first + TILE < end ? first + TILE : end;
}

/* Keys that queries of one origin see: tiles begin at `begin`, and before `end`. */
struct key_range {
    int64_t origin, begin, end;
};

/* Returns the keys of those queries of the tile from `first` on whose origin is the least one
   after `origin`; end 0: there are none. The block asks as one. */
template <int TILE>
static __device__ __forceinline__ key_range range_after(const wf_cuda_heads &a, int64_t first,
                                                        int64_t origin)
{
    int64_t end = end_of(a.query_tokens), last = first + TILE < end ? first + TILE : end;
    key_range r = {end, end, 0};

    if (!is_bounded(a))
        return {0, 0, origin >= 0 ? 0 : a.bidirectional ? keys_of(a) : last};
    for (int64_t i = first; i < last; i++) {
        int64_t own = origin_of(a, i);

        if (own <= origin || own > r.origin)
            continue;
        if (own < r.origin)
            r = {own, end, 0};
        r.begin = from_of(a, i) < r.begin ? from_of(a, i) : r.begin;
        r.end = i + 1;
    }
    r.begin = r.origin + (r.begin - r.origin) / TILE * TILE;
    return r;
}

template <int TILE, class T>
static __device__ __forceinline__ void load_rows(float *tile, const T *head, int64_t stride,
                                                 int64_t first, int64_t count,
                                                 const wf_cuda_heads &a)
{
    constexpr int PACK = wf_pack<T>::N;
    int ld = row_floats(a.dim), packs = (ld - PAD) / PACK;
    bool wide = a.dim % PACK == 0;

    for (int i = (int)threadIdx.x; i < TILE * packs; i += SIDE * SIDE) {
        int row = i / packs, column = i % packs * PACK;
        float x[PACK];

#pragma unroll
        for (int e = 0; e < PACK; e++)
            x[e] = 0.0f;
        if (first + row < count)
            wf_load(head + (first + row) * stride + column, a.dim - column, wide, x);
#pragma unroll
        for (int e = 0; e < PACK; e += 4)
            *(float4 *)(tile + row * ld + column + e) =
                make_float4(x[e], x[e + 1], x[e + 2], x[e + 3]);
    }
}

/* Tokens [first, first + TILE) of a head, which begins at element `at`, into shared memory,
   zeros for those that are not there and past dim. How it is stored is asked here and in
   put_tile alone: kernels of one type each would take nvcc twice as long. */
template <int TILE>
static __device__ __forceinline__ void load_tile(float *tile, const void *data, int64_t at,
                                                 int64_t stride, int64_t first,
                                                 const wf_cuda_tokens &t,
                                                 const wf_cuda_heads &a)
{
    if (a.type == WF_BF16)
        load_rows<TILE>(tile, (const wf_bf16 *)data + at, stride, first - t.first, t.count, a);
    else
        load_rows<TILE>(tile, (const float *)data + at, stride, first - t.first, t.count, a);
}

/* s[r][c] = row ty * M + r of a . row tx + 16 c of b: a chain over ascending dim. */
template <int M>
static __device__ __forceinline__ void multiply_rows(float s[M][M], const float *a,
                                                     const float *b, int ld)
{
    int tx = (int)threadIdx.x % SIDE, ty = (int)threadIdx.x / SIDE;

#pragma unroll
    for (int r = 0; r < M; r++)
#pragma unroll
        for (int c = 0; c < M; c++)
            s[r][c] = 0.0f;
#pragma unroll 1
    for (int d = 0; d < ld - PAD; d += 4) {
        float4 x[M], y[M];

#pragma unroll
        for (int r = 0; r < M; r++) {
            x[r] = *(const float4 *)(a + (ty * M + r) * ld + d);
            y[r] = *(const float4 *)(b + (tx + SIDE * r) * ld + d);
        }
#pragma unroll
        for (int r = 0; r < M; r++)
#pragma unroll
            for (int c = 0; c < M; c++) {
                s[r][c] = fmaf(x[r].x, y[c].x, s[r][c]);
                s[r][c] = fmaf(x[r].y, y[c].y, s[r][c]);
                s[r][c] = fmaf(x[r].z, y[c].z, s[r][c]);
                s[r][c] = fmaf(x[r].w, y[c].w, s[r][c]);
            }
    }
}

/* The thread's scores into a matrix of TILE rows, TILE + 4 apart. */
template <int M>
static __device__ __forceinline__ void put_scores(float *p, const float s[M][M])
{
    int tx = (int)threadIdx.x % SIDE, ty = (int)threadIdx.x / SIDE;

#pragma unroll
    for (int r = 0; r < M; r++)
#pragma unroll
        for (int c = 0; c < M; c++)
            p[(ty * M + r) * (M * SIDE + PAD) + tx + SIDE * c] = s[r][c];
}

static __device__ __forceinline__ void add_scaled(float4 &sum, float x, float4 y)
{
    sum.x = fmaf(x, y.x, sum.x);
    sum.y = fmaf(x, y.y, sum.y);
    sum.z = fmaf(x, y.z, sum.z);
    sum.w = fmaf(x, y.w, sum.w);
}

/* sum[r][q] += p times the rows of b: a chain over ascending rows, four of which are read at
   once. */
template <int M, int Q>
static __device__ __forceinline__ void add_product(float4 sum[M][Q], const float *p,
                                                   const float *b, int ld)
{
    int tx = (int)threadIdx.x % SIDE, ty = (int)threadIdx.x / SIDE;

#pragma unroll 1 /* 64 products an iteration are enough; the compiler would unroll all */
    for (int j = 0; j < M * SIDE; j += 4) {
        float4 x[M];

#pragma unroll
        for (int r = 0; r < M; r++)
            x[r] = *(const float4 *)(p + (ty * M + r) * (M * SIDE + PAD) + j);
#pragma unroll
        for (int q = 0; q < Q; q++) {
            int column = 4 * (tx + SIDE * q);
            const float *y = b + j * ld + column;

            if (column >= ld - PAD)
                continue;
#pragma unroll
            for (int r = 0; r < M; r++) {
                add_scaled(sum[r][q], x[r].x, *(const float4 *)y);
                add_scaled(sum[r][q], x[r].y, *(const float4 *)(y + ld));
                add_scaled(sum[r][q], x[r].z, *(const float4 *)(y + 2 * ld));
                add_scaled(sum[r][q], x[r].w, *(const float4 *)(y + 3 * ld));
            }
        }
    }
}

template <int M, int Q> static __device__ __forceinline__ void clear(float4 sum[M][Q])
{
#pragma unroll
    for (int r = 0; r < M; r++)
#pragma unroll
        for (int q = 0; q < Q; q++)
            sum[r][q] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
}

template <int M, int Q, class T>
static __device__ __forceinline__ void put_rows(const float4 sum[M][Q], T *head, int64_t stride,
                                                int64_t first, int64_t count,
                                                const wf_cuda_heads &a)
{
    int tx = (int)threadIdx.x % SIDE, ty = (int)threadIdx.x / SIDE;

#pragma unroll
    for (int r = 0; r < M; r++) {
        int64_t row = first + ty * M + r;

        if (row >= count)
            return;
#pragma unroll
        for (int q = 0; q < Q; q++) {
            const float x[4] = {sum[r][q].x, sum[r][q].y, sum[r][q].z, sum[r][q].w};
            int64_t column = 4 * (tx + SIDE * q);

#pragma unroll
            for (int e = 0; e < 4; e++)
                if (column + e < a.dim)
                    wf_put(head + row * stride + column + e, x[e] + 0.0f);
        }
    }
}

/* The accumulator's tokens from `first` on, those that are there, to a head that begins at
   element `at`. Zeros are +0, as those of a sum over the heads of a group are. */
template <int M, int Q>
static __device__ __forceinline__ void put_tile(const float4 sum[M][Q], void *data,
                                                wf_dtype type, int64_t at, int64_t stride,
                                                int64_t first, const wf_cuda_tokens &t,
                                                const wf_cuda_heads &a)
{
    if (type == WF_BF16)
        put_rows<M, Q>(sum, (wf_bf16 *)data + at, stride, first - t.first, t.count, a);
    else
        put_rows<M, Q>(sum, (float *)data + at, stride, first - t.first, t.count, a);
}

/* A kernel over tiles of tokens of all heads and sequences; `tiles` rows in shared memory, and
   scores. */
template <int TILE>
static cudaError_t launch_tiles(void (*kernel)(wf_cuda_heads), int64_t tokens, int tiles,
                                cudaStream_t stream, const wf_cuda_heads *a)
{
    size_t floats = (size_t)tiles * TILE * (size_t)row_floats(a->dim) + TILE * (TILE + PAD);
    dim3 grid((unsigned)wf_ceil(tokens, TILE), (unsigned)a->heads, (unsigned)a->batch);
    cudaError_t status = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)(floats * sizeof(float)));

    if (status != cudaSuccess)
        return status;
    return wf_launch(kernel, grid, SIDE * SIDE, floats * sizeof(float), stream, *a);
}

#endif

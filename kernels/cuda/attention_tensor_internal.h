/*
 * kernels/cuda/attention_tensor_internal.h - the pieces that attention's kernels of bf16 are
 * made of, on tensor cores. For .cu files.
 *
 * A block has a tile of tokens of its own, 16 for each warp, and goes through tiles of the
 * other side, which come by two stages. Rows of a fragment depend on nothing else in it, and 16
 * terms are added by one instruction, so terms of a sum are taken in groups of 16 that count
 * from where a document or chunk begins: an element is one expression wherever its head, its
 * sequence and its document are computed, and by whichever of the shapes.
 *
 * S is the shape of a block: by mma.sync (attention_mma_internal.h) or by wgmma
 * (attention_tensor_hopper.cu). It has OWN tokens of its own and THREADS; parts of ROWS tokens
 * and their warps multiply as one, the thread's is part(); its tiles begin at aligned(), which
 * skips up to ALIGNED bytes, and tiles_are_written() by a thread before others multiply them;
 * multiply() and add() begin products, which are made after wait().
 *
 * A tile is blocks of 64 features, a token's in a line of 128 bytes (tensor_tile_internal.h).
 * A warp's scores are fragments of 16 x 8: a thread has of the n-th, at 4 n, columns 8 n + 2 t
 * and one more of row g, then of row g + 8, where its lane is 4 g + t.
 */
#ifndef WF_KERNELS_CUDA_ATTENTION_TENSOR_INTERNAL_H
#define WF_KERNELS_CUDA_ATTENTION_TENSOR_INTERNAL_H

#include "kernels/cuda/attention_walk_internal.h"
#include "kernels/cuda/tensor_tile_internal.h"

enum { ROWS_OF_WARP = 16 };

/* Returns the first of the thread's two rows of the block's tile. */
static __device__ __forceinline__ int row_of_thread(void)
{
    return (int)threadIdx.x / WF_WARP * ROWS_OF_WARP + (int)threadIdx.x % WF_WARP / 4;
}

/* ---- tiles ---- */

/* Returns the bytes of a tile of some tokens. */
template <int DIM> static constexpr __host__ __device__ int bytes_of_tokens(int tokens)
{
    return tokens * DIM * (int)sizeof(wf_bf16);
}

/* Returns the block of a tile of LINES tokens that has a feature. */
template <int LINES>
static __device__ __forceinline__ const char *block_of(const char *tile, int feature)
{
    return tile + feature / WF_TILE_DEPTH * (LINES * WF_TILE_LINE);
}

/* LINES tokens from `first` on of a head that begins at element `at`, on their way to a tile,
   zeros for those that are not there and past dim. */
template <class S, int LINES, int DIM>
static __device__ __forceinline__ void load_tokens(char *tile, const void *data, int64_t at,
                                                   int64_t stride, int first,
                                                   const wf_cuda_tokens &t,
                                                   const wf_cuda_heads &a)
{
#pragma unroll(DIM > 128 ? 1 : 2) /* addresses of more would need registers of sums */
    for (int d = 0; d < DIM; d += WF_TILE_DEPTH)
        if (d < a.dim)
            wf_load_tile<LINES, S::THREADS, true>(
                tile + d * LINES * (int)sizeof(wf_bf16), (const wf_bf16 *)data + at, stride,
                first - t.first, t.count, d, a.dim, (int)threadIdx.x);
}

/* Tokens of two arrays of a head, such as keys and values, on their way to a stage; `any`
   false: none, which is a group of copies too, since waits count them. */
template <class S, int LINES, int DIM>
static __device__ __forceinline__ void load_pair(char *stage, const void *one,
                                                 const void *other, int64_t at, int64_t stride,
                                                 int first, const wf_cuda_tokens &t,
                                                 const wf_cuda_heads &a, bool any)
{
    if (any) {
        load_tokens<S, LINES, DIM>(stage, one, at, stride, first, t, a);
        load_tokens<S, LINES, DIM>(stage + bytes_of_tokens<DIM>(LINES), other, at, stride,
                                   first, t, a);
    }
    wf_copy_commit();
}

/* The scores of 16 rows and N tokens, rounded to bf16, as factors of a product. */
template <int N>
static __device__ __forceinline__ void round_scores(uint32_t (&p)[N / 4],
                                                    const float (&s)[N / 2])
{
#pragma unroll
    for (int i = 0; i < N / 4; i++)
        p[i] = wf_bf16_pair(s[2 * i], s[2 * i + 1]);
}

/* ---- scores ---- */

/* The scores of 16 rows and N columns, N / 2 of them a thread's: rows are queries and columns
   keys, or with BY_KEYS the other way round. A set of a thread's scores is a bit each. */

/* Returns the set of those whose keys are seen: seen[r] has the keys of row g + 8 r. */
template <int N>
static __device__ __forceinline__ uint32_t seen_scores(const uint64_t (&seen)[2])
{
    const int column = (int)threadIdx.x % 4 * 2;
    const uint64_t bits[2] = {seen[0] >> column, seen[1] >> column};
    uint32_t set = 0;

    static_assert(N <= 64, "a set has 32 bits");
    if ((~(seen[0] & seen[1]) & low_bits(N)) == 0)
        return 0xffffffffu;
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        set |= (uint32_t)(bits[i / 2 % 2] >> (i / 4 * 8 + i % 2) & 1) << i;
    return set;
}

/* Returns that of a tile of N keys: of row g and row g + 8, whose views are given. */
template <int N>
static __device__ __forceinline__ uint32_t seen_of_tile(const wf_cuda_heads &a,
                                                        const query_view (&view)[2],
                                                        const key_tile &tile)
{
    const uint64_t shown = shown_bits(a, tile.key);
    uint64_t seen[2];

#pragma unroll
    for (int r = 0; r < 2; r++)
        seen[r] = view[r].origin == tile.origin ? seen_bits(view[r], tile.key, shown) : 0;
    return seen_scores<N>(seen);
}

/* Returns the query of a thread's score i: `query` is that of row g, or of column 0. */
template <bool BY_KEYS> static __device__ __forceinline__ int query_at(int query, int i)
{
    const int column = (int)threadIdx.x % 4 * 2;

    return query + (BY_KEYS ? i / 4 * 8 + column + i % 2 : i / 2 % 2 * 8);
}

template <bool BY_KEYS> static __device__ __forceinline__ int key_at(int key, int i)
{
    return query_at<!BY_KEYS>(key, i);
}

/* Products become scores (score_of); biases are read of those in the set. */
template <int N, bool BY_KEYS>
static __device__ __forceinline__ void score_products(float (&s)[N / 2], const wf_cuda_heads &a,
                                                      int query, int key, uint32_t set)
{
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        s[i] *= a.scale;
    if (a.cap > 0.0f) {
#pragma unroll
        for (int i = 0; i < N / 2; i++)
            s[i] = a.cap * tanhf(s[i] / a.cap);
    }
    if (!a.bias)
        return;
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        if (set >> i & 1)
            s[i] += bias_of(a, query_at<BY_KEYS>(query, i), key_at<BY_KEYS>(key, i));
}

/* ---- results ---- */

/* Returns where two features of a token of the block's own tile lie. */
template <class S>
static __device__ __forceinline__ char *features_at(char *tile, int token, int feature)
{
    return const_cast<char *>(block_of<S::OWN>(tile, feature)) + token * WF_TILE_LINE +
           ((feature % WF_TILE_DEPTH / 8 ^ token % 8) * 16) + feature % 8 * 2;
}

/* Rows of bf16, by the warp's own 16 tokens of a tile, whose copies have come; to_of(token)
   gives where a token's go, NULL: it is not there. */
template <class S, int DIM, class F>
static __device__ __forceinline__ void put_packs(const float (&sum)[DIM / 2], char *tile,
                                                 int dim, F to_of)
{
    constexpr int PACK = wf_pack<wf_bf16>::N;
    const int lane = (int)threadIdx.x % WF_WARP, packs = dim / PACK;
    const int own = (int)threadIdx.x / WF_WARP * ROWS_OF_WARP;

    __syncwarp();
#pragma unroll
    for (int i = 0; i < DIM / 2; i += 2) {
        const int token = row_of_thread() + i / 2 % 2 * 8, feature = i / 4 * 8 + lane % 4 * 2;

        if (i / 4 * 8 < dim)
            *(uint32_t *)features_at<S>(tile, token, feature) =
                wf_bf16_pair(sum[i] + 0.0f, sum[i + 1] + 0.0f);
    }
    __syncwarp();
    for (int i = lane; i < ROWS_OF_WARP * packs; i += WF_WARP) {
        const int token = own + i / packs, feature = i % packs * PACK;
        wf_bf16 *to = to_of(token);

        if (to)
            *(uint4 *)(to + feature) = *(const uint4 *)features_at<S>(tile, token, feature);
    }
    __syncwarp();
}

template <int DIM>
static __device__ __forceinline__ void put_floats(const float (&sum)[DIM / 2], float *head,
                                                  int64_t stride, int64_t first, int64_t count,
                                                  int dim)
{
    const int column = (int)threadIdx.x % 4 * 2;

#pragma unroll
    for (int i = 0; i < DIM / 2; i += 2) {
        const int64_t row = first + row_of_thread() + i / 2 % 2 * 8;

        if (row < count && i / 4 * 8 < dim)
            *(float2 *)(head + row * stride + i / 4 * 8 + column) =
                make_float2(sum[i] + 0.0f, sum[i + 1] + 0.0f);
    }
}

/* The block's tokens from `first` on, those that are there, to a head that begins at element
   `at`; zeros are +0, as those of a sum over the heads of a group are. */
template <class S, int DIM>
static __device__ __forceinline__ void put_tokens(const float (&sum)[DIM / 2], void *data,
                                                  wf_dtype type, int64_t at, int64_t stride,
                                                  int first, const wf_cuda_tokens &t,
                                                  char *tile, int dim)
{
    const int64_t row = first - t.first;

    if (type == WF_BF16)
        put_packs<S, DIM>(sum, tile, dim, [&](int token) {
            return row + token < t.count ? (wf_bf16 *)data + at + (row + token) * stride : NULL;
        });
    else
        put_floats<DIM>(sum, (float *)data + at, stride, row, t.count, dim);
}

/* ---- launches ---- */

/* A kernel over tiles of tokens of all heads and sequences. */
template <class S>
static inline cudaError_t launch_attention(void (*kernel)(wf_cuda_heads), int64_t tokens,
                                           int bytes, cudaStream_t stream,
                                           const wf_cuda_heads *a)
{
    const int all = bytes + (int)S::ALIGNED;
    dim3 grid((unsigned)wf_ceil(tokens, S::OWN), (unsigned)a->heads, (unsigned)a->batch);
    cudaError_t status =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, all);

    return status ? status : wf_launch(kernel, grid, S::THREADS, all, stream, *a);
}

#endif

/*
 * kernels/cuda/attention_pairs_internal.h - what a query and a key of attention are to each
 * other, for every kernel of attention's: whether one sees the other, their score, whether
 * dropout keeps it, and where the heads of a block begin. For .cu files.
 *
 * A block has a head, blockIdx.y, of a sequence, blockIdx.z.
 */
#ifndef WF_KERNELS_CUDA_ATTENTION_PAIRS_INTERNAL_H
#define WF_KERNELS_CUDA_ATTENTION_PAIRS_INTERNAL_H

#include "core/numerics/draw.h"
#include "kernels/attention_internal.h"
#include "kernels/cuda/attention_internal.h"
#include "kernels/cuda/launch_internal.h"
#include <cfloat>

/* Tokens end before it. */
static __device__ __host__ __forceinline__ int64_t end_of(const wf_cuda_tokens &t)
{
    return t.first + t.count;
}

static __device__ __forceinline__ int64_t keys_of(const wf_cuda_heads &a)
{
    return a.key_tokens.count;
}

/* Returns the first key that query i of the block's sequence sees; rows that fill a tile see
   all. */
static __device__ __forceinline__ int64_t from_of(const wf_cuda_heads &a, int64_t i)
{
    const int32_t *from = a.from ? a.from + (int64_t)blockIdx.z * keys_of(a) : NULL;

    return i < end_of(a.query_tokens) ? wf_attention_from(from, a.window, i) : 0;
}

/* Returns true where queries see less than all tokens before them. */
static __device__ __forceinline__ bool is_bounded(const wf_cuda_heads &a)
{
    return a.from || a.window != 0;
}

/* Returns the initial maximum of a row's scores: finite where a tile may have only masked keys,
   so that it then changes nothing. */
static __device__ __forceinline__ float lowest(const wf_cuda_heads &a)
{
    return is_bounded(a) || a.mask || a.bias ? -FLT_MAX : -INFINITY;
}

/* Returns whether a query sees a key, both counted in the sequence. */
static __device__ __forceinline__ bool sees(const wf_cuda_heads &a, int64_t query, int64_t key)
{
    if (key >= keys_of(a) || (a.mask && a.mask[(int64_t)blockIdx.z * keys_of(a) + key] == 0.0f))
        return false;
    return a.bidirectional || (key <= query && (!is_bounded(a) || key >= from_of(a, query)));
}

/* Returns where the scores of a query and a key are in matrices [tokens, keys]. */
static __device__ __forceinline__ int64_t pair_at(const wf_cuda_heads &a, int64_t matrix,
                                                  int64_t query, int64_t key)
{
    return (matrix * a.query_tokens.count + query) * keys_of(a) + key;
}

/* Returns what a score of the block's head has added. */
static __device__ __forceinline__ float bias_of(const wf_cuda_heads &a, int64_t query,
                                                int64_t key)
{
    return a
        .bias[pair_at(a, blockIdx.y + (a.bias_of_each ? blockIdx.z * a.heads : 0), query, key)];
}

/* Returns the score of a query that sees a key, from their product. */
static __device__ __forceinline__ float score_of(const wf_cuda_heads &a, float product,
                                                 int64_t query, int64_t key)
{
    float score = product * a.scale;

    if (a.cap > 0.0f)
        score = a.cap * tanhf(score / a.cap);
    if (a.bias && query < end_of(a.query_tokens))
        score += bias_of(a, query, key);
    return score;
}

/* Returns the token from which key tiles of a query count: the first of its document or chunk,
   0 where the first token that it sees begins none. */
static __device__ __forceinline__ int64_t origin_of(const wf_cuda_heads &a, int64_t query)
{
    const int32_t *from = a.from ? a.from + (int64_t)blockIdx.z * keys_of(a) : NULL;
    const int64_t chunks = wf_attention_chunks(a.window);
    int64_t first = (from || chunks) && query < end_of(a.query_tokens)
                        ? wf_attention_from(from, chunks, query)
                        : 0;

    return first > 0 && wf_attention_from(from, chunks, first) == first ? first : 0;
}

/* Returns true where word `word` of a Philox stream keeps its score. A call: sixteen copies of
   it in every kernel would be most of nvcc's work. */
static __device__ __attribute__((noinline)) bool is_kept(uint64_t key, uint64_t word,
                                                         uint32_t c1, uint32_t c2, uint32_t c3,
                                                         uint32_t threshold)
{
    uint32_t c[4] = {(uint32_t)(word / 4), c1, c2, c3};

    wf_draw_words(c, key, c);
    c[0] = word & 1 ? c[1] : c[0]; /* no index: registers have none */
    c[2] = word & 1 ? c[3] : c[2];
    return (word & 2 ? c[2] : c[0]) >= threshold;
}

/* Returns the dropout factor of the score of tokens i and j (kernels/attention.c). */
static __device__ __forceinline__ float keep(const wf_cuda_heads &a, int64_t head,
                                             int64_t sequence, int64_t i, int64_t j)
{
    uint32_t c1 = a.site | (uint32_t)(a.first_head + head) << WF_ATTENTION_SITE_BITS;
    uint32_t c2 = a.now ? (uint32_t)a.now->step : a.step;
    uint32_t row = a.first_row + (uint32_t)sequence;
    uint32_t c3 = a.first + row / a.run * a.stride + row % a.run; /* wf_sequence_of */

    return is_kept(a.key, (uint64_t)(i * keys_of(a) + j), c1, c2, c3, a.threshold) ? a.kept
                                                                                   : 0.0f;
}

/* Returns where the block's head begins in [batch, tokens, heads, dim]. */
static __device__ __forceinline__ int64_t head_at(const wf_cuda_heads &a,
                                                  const wf_cuda_tokens &t)
{
    return (blockIdx.z * t.count * a.heads + blockIdx.y) * a.dim;
}

static __device__ __forceinline__ int64_t group_at(const wf_cuda_heads &a,
                                                   const wf_cuda_tokens &t)
{
    int64_t group = (a.first_head + blockIdx.y) / a.per_group - a.first_group;

    return (blockIdx.z * t.count * a.groups + group) * a.dim;
}

/* lse and delta of query i of the block's head; 0 past the end. */
static __device__ __forceinline__ float of_query(const float *all, int64_t i,
                                                 const wf_cuda_heads &a)
{
    const wf_cuda_tokens &t = a.query_tokens;

    return i < end_of(t) ? all[(blockIdx.z * t.count + i) * a.heads + blockIdx.y] : 0.0f;
}

#endif

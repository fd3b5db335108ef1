/*
 * kernels/cuda/attention_softmax_internal.h - the online softmax of attention's kernels on
 * tensor cores: of training, and of a cache, which so have the same bits. For .cu files.
 *
 * A row's sum of terms is four partial sums, each over the columns of a thread in order, which
 * are added in the end.
 */
#ifndef WF_KERNELS_CUDA_ATTENTION_SOFTMAX_INTERNAL_H
#define WF_KERNELS_CUDA_ATTENTION_SOFTMAX_INTERNAL_H

#include "kernels/cuda/attention_tensor_internal.h"

/* Returns the keys of a tile, which follow from the dim alone, since rows are scaled from tile
   to tile. */
static constexpr __host__ __device__ int keys_of_tile(int dim)
{
    return dim > 128 ? 32 : 64;
}

/* The thread's rows g and g + 8. */
struct softmax_state {
    float greatest[2], sum[2];
};

/* The beginning of rows of these heads. A sink is a term before the first tile; one of a row's
   four threads has it. */
static __device__ __forceinline__ softmax_state softmax_begin(const wf_cuda_heads &a,
                                                              int64_t head, int64_t later)
{
    const float sum = a.sinks && threadIdx.x % 4 == 0 ? 1.0f : 0.0f;

    return {{a.sinks ? a.sinks[head] : lowest(a), a.sinks ? a.sinks[later] : lowest(a)},
            {sum, sum}};
}

/* Returns the greatest number of the four threads of a row. */
static __device__ __forceinline__ float greatest_of_row(float x)
{
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

static __device__ __forceinline__ float sum_of_row(float x)
{
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

/* Scores that are not in the set become -infinity. */
template <int N>
static __device__ __forceinline__ void hide_scores(float (&s)[N / 2], uint32_t set)
{
    if (set == 0xffffffffu)
        return;
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        if (!(set >> i & 1))
            s[i] = -INFINITY;
}

/* Scores become terms of the sum; what was summed before is scaled to the new greatest. */
template <int N, int DIM>
static __device__ __forceinline__ void add_scores(softmax_state &state, float (&s)[N / 2],
                                                  float (&y)[DIM / 2])
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float greatest = state.greatest[r], sum = 0.0f, before;

#pragma unroll
        for (int i = 2 * r; i < N / 2; i += 4)
            greatest = fmaxf(greatest, fmaxf(s[i], s[i + 1]));
        greatest = greatest_of_row(greatest);
        before = wf_exp_of(state.greatest[r] - greatest);
#pragma unroll
        for (int i = 2 * r; i < N / 2; i += 4) {
            s[i] = wf_exp_of(s[i] - greatest);
            s[i + 1] = wf_exp_of(s[i + 1] - greatest);
            sum += s[i];
            sum += s[i + 1];
        }
        state.greatest[r] = greatest;
        state.sum[r] = fmaf(state.sum[r], before, sum);
#pragma unroll
        for (int i = 2 * r; i < DIM / 2; i += 4) {
            y[i] *= before;
            y[i + 1] *= before;
        }
    }
}

/* Rows in the end, and the logarithms of their sums. A query that saw no key has y and lse of
   0. */
template <int DIM>
static __device__ __forceinline__ void divide_rows(const softmax_state &state,
                                                   float (&y)[DIM / 2], float (&lse)[2])
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float sum = sum_of_row(state.sum[r]);
        const bool none = sum == 0.0f;

        sum = none ? 1.0f : sum;
        lse[r] = none ? 0.0f : state.greatest[r] + logf(sum);
#pragma unroll
        for (int i = 2 * r; i < DIM / 2; i += 4) {
            y[i] /= sum;
            y[i + 1] /= sum;
        }
    }
}

/* The block's queries, on their way to the first of the shared tiles, attend to the keys of a
   walk: load(stage, tile) begins to copy a tile's keys and values, drop(s, key) drops terms of
   N keys from `key` on. Tiles of which a part sees nothing change nothing. */
template <class S, int DIM, class V, class L, class D>
static __device__ __forceinline__ void attend(softmax_state &state, float (&y)[DIM / 2],
                                              char *queries, const query_view (&view)[2],
                                              int query, key_walk<V> walk,
                                              const wf_cuda_heads &a, L load, D drop)
{
    constexpr int KEYS = keys_of_tile(DIM), STAGE = 2 * bytes_of_tokens<DIM>(KEYS);
    char *stages = queries + bytes_of_tokens<DIM>(S::OWN);
    const int dim = (int)a.dim;
    key_tile tile = next_keys<S, KEYS>(&walk);

    wf_clear(y);
    load(stages, tile);
    for (int stage = 0; tile.any; stage ^= 1) {
        const key_tile next = next_keys<S, KEYS>(&walk);
        const char *keys = stages + stage * STAGE;

        wf_copy_wait<0>();
        S::tiles_are_written();
        __syncthreads(); /* the tile before has been read, too */
        load(stages + (stage ^ 1) * STAGE, next);
        if (tile.own) {
            const uint32_t set = seen_of_tile<KEYS>(a, view, tile);
            uint32_t p[KEYS / 4];
            float s[KEYS / 2];

            S::template multiply<KEYS, DIM>(s, queries, keys, dim);
            S::wait();
            score_products<KEYS, false>(s, a, query, tile.key, set);
            hide_scores<KEYS>(s, set);
            add_scores<KEYS, DIM>(state, s, y);
            drop(s, tile.key);
            round_scores<KEYS>(p, s);
            S::template add<KEYS, DIM>(y, p, keys + STAGE / 2, dim);
            S::wait();
        }
        tile = next;
    }
    wf_copy_wait<0>();
    __syncthreads();
}

/* Returns the shared memory of a block that attends. */
template <class S, int DIM> static constexpr int bytes_to_attend(void)
{
    return bytes_of_tokens<DIM>(S::OWN + 4 * keys_of_tile(DIM));
}

#endif

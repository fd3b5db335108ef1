/* kernels/cuda/loss_row_internal.h - a row of logits, as the kernels of loss.cu and
   logit_loss.cu read it: its greatest element, the tree over its chunks, its gradient. */
#ifndef WF_KERNELS_CUDA_LOSS_ROW_INTERNAL_H
#define WF_KERNELS_CUDA_LOSS_ROW_INTERNAL_H

#include "kernels/cuda/operands_internal.h"

namespace
{
struct logits {
    const void *x;
    int64_t rows, n;
    bool wide; /* the first row begins where a pack may */
};

/* Returns the elements before the first whole pack of a row; all where packs cannot be read. */
template <class T>
__device__ __forceinline__ int64_t head_of(const T *row, int64_t n, bool wide)
{
    int64_t over = (int64_t)((uintptr_t)row % 16 / sizeof(T));
    int64_t head = over ? wf_pack<T>::N - over : 0;

    return wide && head < n ? head : n;
}

/* Returns the greatest of what this thread has of a row, one of THREADS. */
template <int THREADS, class T>
__device__ __forceinline__ float most_of(const T *x, int64_t n, bool wide)
{
    constexpr int PACK = wf_pack<T>::N;
    const int t = (int)threadIdx.x;
    const int64_t head = head_of(x, n, wide), packs = (n - head) / PACK;
    float most = -INFINITY;

    for (int64_t i = t; i < head; i += THREADS)
        most = wf_greater(most, wf_get(x[i]));
#pragma unroll 4
    for (int64_t p = t; p < packs; p += THREADS) {
        float v[PACK];

        wf_load(x + head + p * PACK, PACK, true, v);
#pragma unroll
        for (int e = 0; e < PACK; e++)
            most = wf_greater(most, v[e]);
    }
    for (int64_t i = head + packs * PACK + t; i < n; i += THREADS)
        most = wf_greater(most, wf_get(x[i]));
    return most;
}

/* The first thread of this one's warp: a condition on it is the same for the whole warp. */
__device__ __forceinline__ int first_of_warp(void)
{
    return (int)threadIdx.x / WF_WARP * WF_WARP;
}

/* Returns the greatest of n elements of a row in every thread of the block, from each thread's
   own; warps after the last element skip the shuffles. `room`: 32 floats, in use until the
   block's next barrier. */
template <int THREADS>
__device__ __forceinline__ float block_greatest(float most, int64_t n, float *room)
{
    if (first_of_warp() < n)
        most = wf_warp_greatest(most);
    if (threadIdx.x % WF_WARP == 0)
        room[threadIdx.x / WF_WARP] = most;
    __syncthreads();
    most = room[0];
    for (int w = 1; w < THREADS / WF_WARP; w++)
        most = wf_greater(most, room[w]);
    return most;
}

__device__ __forceinline__ float tree_of(const float *chunk)
{
    return ((chunk[0] + chunk[1]) + (chunk[2] + chunk[3])) +
           ((chunk[4] + chunk[5]) + (chunk[6] + chunk[7]));
}

/* The gradient of a row. */
struct row_gradient {
    float max, dsum, dpicked;
    wf_label_weights weight;
    int64_t v; /* the target's index in the row */

    __device__ __forceinline__ float at(int64_t i, float logit) const
    {
        float y = wf_exp_of(logit - max) * dsum;

        if (weight.each != 0)
            y += weight.each * dpicked;
        return i == v ? y + weight.target * dpicked : y;
    }
};

/* Writes what this thread, one of THREADS, has of a row's gradient. dx may be x: a thread
   writes what it has read. */
template <int THREADS, class T>
__device__ __forceinline__ void write_gradient(const row_gradient &g, const T *x, T *dx,
                                               int64_t n, bool wide)
{
    constexpr int PACK = wf_pack<T>::N;
    const int t = (int)threadIdx.x;
    const int64_t head = head_of(x, n, wide), packs = (n - head) / PACK;

    for (int64_t i = t; i < head; i += THREADS)
        wf_put(dx + i, g.at(i, wf_get(x[i])));
#pragma unroll 2
    for (int64_t p = t; p < packs; p += THREADS) {
        int64_t i = head + p * PACK;
        float y[PACK];

        wf_load(x + i, PACK, true, y);
#pragma unroll
        for (int e = 0; e < PACK; e++)
            y[e] = g.at(i + e, y[e]);
        wf_store_pack(dx + i, y);
    }
    for (int64_t i = head + packs * PACK + t; i < n; i += THREADS)
        wf_put(dx + i, g.at(i, wf_get(x[i])));
}

template <class T> logits logits_of(const wf_call *call, const void *second)
{
    const wf_tensor *x = call->in[0];
    uintptr_t bits = (uintptr_t)x->data | (uintptr_t)second;

    return {x->data, wf_rows(x), wf_width(x), bits % 16 == 0};
}
} // namespace

#endif

/*
 * kernels/cuda/dropout_internal.h - dropout of a pack of elements, for the kernels that contain
 * it: the word of Philox that decides about an element is kernels/dropout.c's.
 */
#ifndef WF_KERNELS_CUDA_DROPOUT_INTERNAL_H
#define WF_KERNELS_CUDA_DROPOUT_INTERNAL_H

#include "core/numerics/draw.h"
#include "kernels/cuda/operands_internal.h"

struct wf_dropper {
    wf_tensor t; /* for its shape: where a local element lies in its sequence */
    wf_dropout_attr attr;
    const wf_now *now; /* NULL: the step is that of attr */
    int64_t per_sequence;
    bool whole; /* each sequence is here as a whole */
    uint32_t limit;
    float scale;
};

static inline wf_dropper wf_dropper_of(const wf_call *call, const wf_dropout_attr *attr,
                                       const wf_tensor *t)
{
    wf_dropper d = {};

    d.t = *t;
    d.attr = *attr;
    d.now = wf_cuda_now(call);
    d.per_sequence = wf_extent(t, 1, t->ndim);
    d.whole = true;
    for (int i = 1; i < t->ndim; i++)
        d.whole = d.whole && t->local[i] == t->dim[i].size;
    d.limit = (uint32_t)((double)attr->p * 0x1p32);
    d.scale = 1.0f / (1.0f - attr->p);
    return d;
}

/* Divides: i / n and the remainder; most sizes fit 32 bits, whose division is short. */
static __device__ __forceinline__ int64_t wf_divide(int64_t i, int64_t n, int64_t *left)
{
    if (((i | n) >> 32) == 0) {
        *left = (uint32_t)i % (uint32_t)n;
        return (uint32_t)i / (uint32_t)n;
    }
    *left = i % n;
    return i / n;
}

/* Returns the index of a sequence's local element `rest` in it, and how many from there on are
   contiguous. */
static __device__ __forceinline__ int64_t wf_drop_index(const wf_dropper &d, int64_t rest,
                                                        int64_t *run)
{
    if (d.whole) {
        *run = d.per_sequence - rest;
        return rest;
    }
    return wf_global_index(&d.t, 1, rest, run);
}

/* Returns the global sequence of local sequence b: wf_sequence_of. */
static __device__ __forceinline__ uint32_t wf_drop_sequence(const wf_dropper &d, int64_t b)
{
    const wf_sequences *s = &d.attr.sequences;
    int64_t row = d.t.start[0] + b, left;

    if (s->run <= 0)
        return (uint32_t)(s->first + row);
    row = wf_divide(row, s->run, &left);
    return (uint32_t)(s->first + row * s->stride + left);
}

/* Makes the four words that decide about elements at to at + 3 of a sequence; at is a multiple
   of 4. */
static __device__ __forceinline__ void wf_drop_words(const wf_dropper &d, uint32_t sequence,
                                                     int64_t at, uint32_t *word)
{
    uint32_t counter[4] = {(uint32_t)(at / 4), (uint32_t)d.attr.site,
                           (uint32_t)(d.now ? d.now->step : d.attr.step), sequence};

    wf_draw_words(counter, d.attr.key, word);
}

/* x = keep ? x / (1 - p) : 0, of n <= N local elements from i on */
template <int N>
static __device__ __forceinline__ void wf_drop(const wf_dropper &d, int64_t i, int64_t n,
                                               float *x)
{
    uint32_t word[4];
    int64_t rest, b = wf_divide(i, d.per_sequence, &rest), have = -1, run = 0;
    int64_t at = wf_drop_index(d, rest, &run);

    uint32_t sequence = wf_drop_sequence(d, b);

    if (n >= N && run >= N && at % 4 == 0) { /* as nearly all packs are */
#pragma unroll
        for (int k = 0; k < N; k += 4) {
            wf_drop_words(d, sequence, at + k, word);
#pragma unroll
            for (int e = 0; e < 4; e++)
                x[k + e] = word[e] >= d.limit ? x[k + e] * d.scale : 0.0f;
        }
        return;
    }
#pragma unroll
    for (int k = 0; k < N; k++) {
        if (k >= n)
            break;
        if (rest == d.per_sequence) {
            sequence = wf_drop_sequence(d, ++b);
            rest = run = 0;
            have = -1;
        }
        if (run == 0)
            at = wf_drop_index(d, rest, &run);
        if (at / 4 != have) {
            have = at / 4;
            wf_drop_words(d, sequence, 4 * have, word);
        }
        x[k] = (at % 4 == 0   ? word[0]
                : at % 4 == 1 ? word[1]
                : at % 4 == 2 ? word[2]
                              : word[3]) >= d.limit
                   ? x[k] * d.scale
                   : 0.0f;
        at++;
        rest++;
        run--;
    }
}

#endif

/*
 * kernels/cuda/dropout_internal.h - dropout of a pack of elements, for the kernels that contain it: the word
 * of Philox that decides about an element is kernels/dropout.c's.
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
    d.limit = (uint32_t)((double)attr->p * 0x1p32);
    d.scale = 1.0f / (1.0f - attr->p);
    return d;
}

/* x = keep ? x / (1 - p) : 0, of n <= N local elements from i on */
template <int N>
static __device__ __forceinline__ void wf_drop(const wf_dropper &d, int64_t i, int64_t n,
                                               float *x)
{
    const uint32_t step = (uint32_t)(d.now ? d.now->step : d.attr.step);
    uint32_t word[4];
    int64_t b = i / d.per_sequence, rest = i % d.per_sequence, have = -1, at = 0, run = 0;

    for (int k = 0; k < N && k < n; k++, at++, rest++, run--) {
        if (rest == d.per_sequence) {
            b++;
            rest = run = 0;
            have = -1;
        }
        if (run == 0)
            at = wf_global_index(&d.t, 1, rest, &run);
        if (at / 4 != have) {
            uint32_t counter[4] = {
                (uint32_t)(at / 4), (uint32_t)d.attr.site, step,
                (uint32_t)wf_sequence_of(&d.attr.sequences, d.t.start[0] + b)};

            have = at / 4;
            wf_draw_words(counter, d.attr.key, word);
        }
        x[k] = word[at % 4] >= d.limit ? x[k] * d.scale : 0.0f;
    }
}

#endif

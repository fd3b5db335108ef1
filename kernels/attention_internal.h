/*
 * kernels/attention_internal.h - parameters of attention and rope, for their wrappers, reference loops
 * and kernels.
 */
#ifndef WF_KERNELS_ATTENTION_INTERNAL_H
#define WF_KERNELS_ATTENTION_INTERNAL_H

#include "kernels/op_table_internal.h"
#include "kernels/rope_scaling.h"

typedef struct wf_rope_attr {
    wf_rope_options options;
    bool inverse;
} wf_rope_attr;

/* A frequency, base^(-2i/dim) in radians per token, as the scaling has it. */
WF_HOST_DEVICE static inline double wf_rope_scaled(const wf_rope_scaling *s, double turn)
{
    double turns = s->original_positions * turn / 6.283185307179586, smooth;

    if (s->kind == WF_ROPE_UNSCALED)
        return turn;
    if (s->kind == WF_ROPE_LINEAR || turns < s->low_freq_factor)
        return turn / s->factor;
    if (turns > s->high_freq_factor)
        return turn;
    smooth = (turns - s->low_freq_factor) / (s->high_freq_factor - s->low_freq_factor);
    return (1 - smooth) * (turn / s->factor) + smooth * turn;
}

/* The position is kept, so that the gradient has its forward's mask whenever it runs. */
typedef struct wf_attention_attr {
    int64_t step;
    wf_sequences sequences;
    uint64_t key;
    float dropout; /* 0 in evaluation */
    int site;
    bool bidirectional;
} wf_attention_attr;

/* The operand that says which token is the first that each one sees: the last of attention_from and of its
   gradient. NULL where there is none. For devices' libraries too: nothing is called. */
static inline const wf_tensor *wf_attention_first(const wf_call *call)
{
    bool gradient = call->n_out == 3;

    return call->n_in > (gradient ? 6 : 3) ? call->in[gradient ? 6 : 3] : NULL;
}

/* The first token that token i of a sequence sees: any number is taken for the nearest of [0, i]. */
WF_HOST_DEVICE static inline int64_t wf_attention_from(const int32_t *first, int64_t i)
{
    int64_t from = first[i] > 0 ? first[i] : 0;

    return from < i ? from : i;
}

/* Whether `tokens` of each sequence, from first[b] on, lie in row slot[b] of the cache; else WF_EINVAL. */
wf_status wf_cache_rows_check(const wf_call *call, const wf_tensor *cache,
                              const wf_tensor *tokens, const wf_tensor *first,
                              const wf_tensor *slot);

enum { WF_ATTENTION_SITE_BITS = 12 }; /* the rest of that counter word is the head's */

/* Words 1..3 of the Philox counter of a head: `head` and `row` are those of the whole. */
static inline void wf_attention_counter(const wf_attention_attr *a, int64_t head, int64_t row,
                                        uint32_t counter[3])
{
    counter[0] = (uint32_t)a->site | (uint32_t)head << WF_ATTENTION_SITE_BITS;
    counter[1] = (uint32_t)a->step;
    counter[2] = (uint32_t)wf_sequence_of(&a->sequences, row);
}

#endif

/*
 * kernels/cpu/attention_parts_internal.h - the parts of a sequence that attention takes one by
 * one: a document is one, or each of its chunks, with the blocks of keys and the bits that it
 * has alone.
 */
#ifndef WF_KERNELS_CPU_ATTENTION_PARTS_INTERNAL_H
#define WF_KERNELS_CPU_ATTENTION_PARTS_INTERNAL_H

#include "kernels/attention_internal.h"
#include "kernels/cpu/simd_internal.h"

/* Returns true where sequences may be cut: those of heads that have documents or chunks. */
static inline bool wf_attention_is_cut(const wf_attention_head *h)
{
    return h->from || wf_attention_chunks(h->window);
}

/* Cuts a sequence where no token sees one before the cut, as documents and chunks do where they
   begin: `room`, of tokens + 1 numbers, ends with the first tokens of the parts and the number
   of tokens. Returns the first of these numbers. */
static inline const int32_t *wf_attention_parts(const int32_t *first, int64_t window,
                                                int64_t tokens, int32_t *room)
{
    int32_t *part = room + tokens;
    int64_t least = tokens;

    *part = (int32_t)tokens;
    for (int64_t i = tokens - 1; i >= 0; i--) {
        int64_t from = wf_attention_from(first, wf_attention_chunks(window), i);

        least = from < least ? from : least;
        if (least == i)
            *--part = (int32_t)i;
    }
    return part;
}

/* From token `begin` of a head on, of whose tensors the types are alike */
static inline const void *wf_attention_token_at(const wf_attention_head *h, const void *x,
                                                int64_t begin, int64_t stride)
{
    return (const char *)x + (size_t)(begin * stride) * (h->bf16 ? 2 : sizeof(float));
}

/* Narrows a head to the tokens [begin, end) of its sequence, which see none before them. */
static inline wf_attention_head wf_attention_part_of(const wf_attention_head *whole,
                                                     int64_t begin, int64_t end)
{
    int64_t chunks = wf_attention_chunks(whole->window);
    wf_attention_head h = *whole;
    bool alone = true;

    for (int64_t i = begin; wf_attention_is_cut(&h) && i < end; i++)
        alone = alone && wf_attention_from(h.from, chunks, i) == begin;
    if (alone)
        h.from = NULL;
    h.start = begin;
    h.seq = end - begin;
    if (whole->window >= h.seq || (alone && chunks)) /* all of them are in it */
        h.window = 0;
    if (!wf_attention_is_cut(whole))
        return h;
    h.keys = h.seq;
    h.q = wf_attention_token_at(whole, whole->q, begin, h.q_stride);
    h.k = wf_attention_token_at(whole, whole->k, begin, h.k_stride);
    h.v = wf_attention_token_at(whole, whole->v, begin, h.v_stride);
    for (int r = 0; r < h.rows.n; r++) {
        const char *row = whole->rows.at[r];

        h.rows.at[r] = row + begin * h.rows.stride[r];
        if (end < whole->seq)
            h.rows.next[r] = row + end * h.rows.stride[r];
    }
    return h;
}

#endif

/*
 * kernels/attention_internal.h - parameters of attention and rope, for their wrappers,
 * reference loops and kernels.
 */
#ifndef WF_KERNELS_ATTENTION_INTERNAL_H
#define WF_KERNELS_ATTENTION_INTERNAL_H

#include "kernels/op_table_internal.h"
#include "kernels/rope_scaling.h"
#include <math.h>

typedef struct wf_rope_attr {
    wf_rope_options options;
    bool inverse;
    bool is_long; /* the text is longer than the original length of WF_ROPE_LONG */
} wf_rope_attr;

/* Returns the number of tensors that a call of rope.c rotates. */
static inline int wf_rope_count(const wf_call *call)
{
    return call->n_out;
}

/* Returns the part of a call of rope.c that rotates tensor i, as a call that rotates one. */
static inline wf_call wf_rope_part(const wf_call *call, int i)
{
    wf_call part = *call;

    part.in[0] = call->in[i];
    part.in[1] = call->n_in > call->n_out ? call->in[call->n_out] : NULL;
    part.out[0] = call->out[i];
    part.n_in = 1 + call->n_in - call->n_out;
    part.n_out = 1;
    return part;
}

/*
 * wf_rope_attributes - fills in the attributes of a rotation of x, [batch, tokens, ..], whose
 * heads have `dim` features
 *
 * Returns: WF_OK, or a failure where x cannot be rotated so
 */
wf_status wf_rope_attributes(const wf_tensor *x, int64_t dim, const wf_rope_options *options,
                             bool inverse, wf_rope_attr *a);

/* Returns the part of a call of linear3_rope that rotates its first two products, in place, as
   a call of rope_pair but for its op; heads: room for both, as heads. */
static inline wf_call wf_linear_rope_part(const wf_call *call, wf_tensor heads[2])
{
    const int weights = 3;
    wf_call part = *call;

    for (int i = 0; i < 2; i++) {
        wf_tensor *t = &heads[i];
        int64_t dim = call->out[i]->dim[2].grain;

        *t = *call->out[i];
        t->ndim = 4;
        t->dim[2] = (wf_dim){t->dim[2].size / dim, 1, t->dim[2].chunks};
        t->local[2] /= dim;
        t->start[2] /= dim;
        t->dim[3] = wf_dim_width(dim);
        t->local[3] = dim;
        t->start[3] = 0;
        part.in[i] = part.out[i] = t;
    }
    part.in[2] = call->n_in > 1 + weights ? call->in[1 + weights] : NULL;
    part.n_in = part.in[2] ? 3 : 2;
    part.n_out = 2;
    return part;
}

/* Returns a score under a cap; 0: none. For reference loops, in double. */
static inline double wf_attention_capped(double score, double cap)
{
    return cap > 0 ? cap * tanh(score / cap) : score;
}

/* Returns how many of a head's `dim` features are rotated. */
static inline int64_t wf_rope_features(const wf_rope_options *o, int64_t dim)
{
    return o->features > 0 ? o->features : dim;
}

/* Returns the position of a token from an element of rope_at's operand, which is below 0 where
   the text is longer than the original length of WF_ROPE_LONG. */
WF_HOST_DEVICE static inline int64_t wf_rope_position(int32_t position)
{
    return position < 0 ? ~position : position;
}

/* Returns the divisor of pair i; the lists are the host's. */
static inline double wf_rope_factor(const wf_rope_options *o, int64_t i, bool is_long)
{
    if (o->scaling.kind != WF_ROPE_LONG)
        return 1;
    return (double)(is_long ? o->factors->long_factor : o->factors->short_factor)[i];
}

/* Returns what WF_ROPE_DYNAMIC divides the slowest frequency by where a token at `position`
   rotates, in a text of that many tokens or .length, if that is more; 1: of other scalings, and
   up to the original length. */
WF_HOST_DEVICE static inline double wf_rope_stretch(const wf_rope_scaling *s, int64_t position)
{
    const double to = (double)(position + 1), n = s->length > to ? s->length : to;

    return s->kind == WF_ROPE_DYNAMIC && n > s->original_positions
               ? s->factor * n / s->original_positions - (s->factor - 1)
               : 1;
}

/* Returns the power of a stretch that pair i of `dim` features is divided by: 0 to 1. */
WF_HOST_DEVICE static inline double wf_rope_slowed(int64_t i, int64_t dim)
{
    return i ? 2.0 * (double)i / (double)(dim - 2) : 0;
}

/* Returns the number whose logarithm times factor WF_ROPE_TEMPERATURE adds to 1 at a position;
   1: of other scalings. */
WF_HOST_DEVICE static inline double wf_rope_warmth(const wf_rope_scaling *s, int64_t position)
{
    return s->kind == WF_ROPE_TEMPERATURE
               ? 1 + floor((double)(position + 1) / s->original_positions)
               : 1;
}

/* The numbers of a scaling where `dim` features rotate: YaRN's indices between which
   frequencies are interpolated, and the factor of cosines and sines. */
typedef struct wf_rope_range {
    double low, high, attention;
} wf_rope_range;

/* Returns the index of the frequency that makes `turns` full rotations in the original
   length. */
static inline double wf_rope_index(const wf_rope_options *o, double turns, int64_t dim,
                                   double (*ln)(double))
{
    return (double)dim * ln(o->scaling.original_positions / (turns * 6.283185307179586)) /
           (2 * ln(o->base));
}

/* Computes the range on the host; ln: wf_logd, or a device's library. */
static inline wf_rope_range wf_rope_range_of(const wf_rope_options *o, int64_t dim,
                                             double (*ln)(double))
{
    const wf_rope_scaling *s = &o->scaling;
    double last = (double)(dim - 1);
    wf_rope_range r = {0, 0, 1};

    if (s->kind == WF_ROPE_LONG) {
        r.attention = s->attention_factor > 0 ? s->attention_factor
                      : s->factor > 1 ? sqrt(1 + ln(s->factor) / ln(s->original_positions))
                                      : 1;
        return r;
    }
    if (s->kind != WF_ROPE_YARN)
        return r;
    r.low = floor(wf_rope_index(o, s->beta_fast > 0 ? s->beta_fast : 32, dim, ln));
    r.high = ceil(wf_rope_index(o, s->beta_slow > 0 ? s->beta_slow : 1, dim, ln));
    r.low = r.low > 0 ? r.low : 0;
    r.high = r.high < last ? r.high : last;
    if (r.low == r.high)
        r.high += 0.001; /* a step, not a division by zero */
    r.attention = s->attention_factor > 0 ? s->attention_factor
                  : s->factor > 1         ? 0.1 * ln(s->factor) + 1
                                          : 1;
    return r;
}

/* Frequency i, which is base^(-2i/dim) in radians per token, as the scaling has it; factor:
   wf_rope_factor's, or the power of wf_rope_stretch. */
WF_HOST_DEVICE static inline double wf_rope_scaled(const wf_rope_scaling *s, wf_rope_range r,
                                                   double factor, int64_t i, double angle)
{
    double turns = s->original_positions * angle / 6.283185307179586, smooth;

    if (s->kind == WF_ROPE_UNSCALED)
        return angle;
    if (s->kind == WF_ROPE_TEMPERATURE)
        return 0;
    if (s->kind == WF_ROPE_LONG || s->kind == WF_ROPE_DYNAMIC)
        return angle / factor;
    if (s->kind == WF_ROPE_YARN) {
        smooth = 1 - ((double)i - r.low) / (r.high - r.low);
        smooth = smooth < 0 ? 0 : smooth > 1 ? 1 : smooth;
        return (1 - smooth) * (angle / s->factor) + smooth * angle;
    }
    if (s->kind == WF_ROPE_LINEAR || turns < s->low_freq_factor)
        return angle / s->factor;
    if (turns >= s->high_freq_factor)
        return angle;
    smooth = (turns - s->low_freq_factor) / (s->high_freq_factor - s->low_freq_factor);
    return (1 - smooth) * (angle / s->factor) + smooth * angle;
}

/* The position is kept, so that the gradient has its forward's mask whenever it runs. */
typedef struct wf_attention_attr {
    int64_t step;
    wf_sequences sequences;
    uint64_t key;
    float dropout; /* 0 in evaluation */
    int site;
    int32_t window; /* as wf_attention_from takes it */
    float cap;      /* caps scores; 0: none */
    bool bidirectional;
    bool part;        /* queries or gradients are a part's (attention_part) */
    bool masked;      /* attention_general has a mask of keys */
    int8_t bias_dims; /* its bias is [h, s, t] or [b, h, s, t]; 0: none */
} wf_attention_attr;

/* The attributes of attention_cached. */
typedef struct wf_cached_attr {
    int64_t window; /* as wf_attention_from takes it */
    double cap;     /* caps scores; 0: none */
} wf_cached_attr;

/* Return operands that an attention or its gradient may have after q, k and v, or after the six
   of a gradient; NULL where there is none. For devices' libraries too: nothing is called.

   first: the token that each one sees first, where the op has it */
static inline const wf_tensor *wf_attention_first(const wf_call *call)
{
    return call->op->integers >> (call->n_in - 1) & 1 ? call->in[call->n_in - 1] : NULL;
}

/* sinks: [heads], a forward's operand 3 where that is a vector */
static inline const wf_tensor *wf_attention_sinks(const wf_call *call)
{
    return call->n_in > 3 && call->in[3]->ndim == 1 ? call->in[3] : NULL;
}

/* mask: [batch, keys], 0 where no query sees the key */
static inline const wf_tensor *wf_attention_mask(const wf_call *call)
{
    const wf_attention_attr *a = (const wf_attention_attr *)call->attr;

    return a->masked ? call->in[call->n_out > 2 ? 6 : 3] : NULL;
}

/* bias: [heads, tokens, keys], or one of each sequence */
static inline const wf_tensor *wf_attention_bias(const wf_call *call)
{
    const wf_attention_attr *a = (const wf_attention_attr *)call->attr;

    return a->bias_dims ? call->in[call->n_in - 1] : NULL;
}

/* Returns the bias's gradient, [batch, heads, tokens, keys], where it is wanted. */
static inline const wf_tensor *wf_attention_dbias(const wf_call *call)
{
    return call->n_out > 3 ? call->out[3] : NULL;
}

/* Returns the number of the matrix [tokens, keys] that a head of a sequence adds: local
   indices. */
static inline int64_t wf_attention_bias_matrix(const wf_tensor *bias, int64_t b, int64_t head)
{
    return bias->ndim == 4 ? b * bias->local[1] + head : head;
}

/* Returns the tokens of which a call gives rows: those of attention_part's queries and of its
   gradient's operand 6; NULL where it gives those of all. */
static inline const wf_tensor *wf_attention_own(const wf_call *call)
{
    const wf_attention_attr *a = (const wf_attention_attr *)call->attr;

    return a->part ? call->in[call->n_out > 2 ? 6 : 0] : NULL;
}

/* Returns true where options, and shapes that no signature compares, make an attention; else
   WF_EINVAL. */
bool wf_attention_complete(const wf_tensor *q, const wf_tensor *k,
                           const wf_attention_options *o);

/* Run the reference loops, of all rows. */
wf_status wf_attention_reference(const wf_call *call, void *workspace);
size_t wf_attention_reference_workspace(const wf_call *call);
wf_status wf_attention_reference_grad(const wf_call *call, void *workspace);
wf_status wf_attention_sinks_reference(const wf_call *call, void *workspace);

/* Returns the first token that token i of a sequence sees. Any number of `first` is taken for
   the nearest of [0, i], and NULL is 0 everywhere; it sees at most `window` tokens, itself
   included; 0: no window; below 0: its own of the chunks of -window tokens, which count from
   first[i] on. */
WF_HOST_DEVICE static inline int64_t wf_attention_from(const int32_t *first, int64_t window,
                                                       int64_t i)
{
    int64_t from = first && first[i] > 0 ? first[i] : 0;

    if (from >= i)
        return i;
    if (window < 0)
        return from + (i - from) / -window * -window;
    return window > 0 && from <= i - window ? i - window + 1 : from;
}

/* Returns the part of a window that cuts a sequence: its chunks; 0: it has none. */
WF_HOST_DEVICE static inline int64_t wf_attention_chunks(int64_t window)
{
    return window < 0 ? window : 0;
}

/* Returns the window of options: chunks are one below 0. */
static inline int32_t wf_attention_window(const wf_attention_options *o)
{
    return (int32_t)(o->chunk > 0 ? -o->chunk : o->window);
}

/* Returns the pairs of a query and a key of the first n causal queries of a sequence. */
static inline double wf_attention_pairs(double n, double window)
{
    double whole = window < 0 ? floor(n / -window) : 0, left = n + whole * window;

    if (window < 0)
        return (whole * window * window + left * left) / 2;
    return window > 0 && window < n ? window * (n - window / 2) : n * n / 2;
}

/* Checks that `tokens` of each sequence, from first[b] on, lie in row slot[b] of the cache;
   else WF_EINVAL. */
wf_status wf_cache_rows_check(const wf_call *call, const wf_tensor *cache,
                              const wf_tensor *tokens, const wf_tensor *first,
                              const wf_tensor *slot);

enum { WF_ATTENTION_SITE_BITS = 12 }; /* the other bits of that counter word are the head's */

/* Words 1..3 of the Philox counter of a head: `head` and `row` are those of the whole. */
static inline void wf_attention_counter(const wf_attention_attr *a, int64_t head, int64_t row,
                                        uint32_t counter[3])
{
    counter[0] = (uint32_t)a->site | (uint32_t)head << WF_ATTENTION_SITE_BITS;
    counter[1] = (uint32_t)a->step;
    counter[2] = (uint32_t)wf_sequence_of(&a->sequences, row);
}

#endif

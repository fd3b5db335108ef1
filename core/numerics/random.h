/*
 * core/numerics/random.h - random numbers as functions of position: Philox4x32-10 (Salmon,
 * Moraes, Dror and Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011).
 *
 * A key is made of the seed and the purpose; a counter of the stream (a parameter, a site) and
 * the index in it. So any part of a tensor can be made alone, in any order, on any rank.
 */
#ifndef WF_CORE_NUMERICS_RANDOM_H
#define WF_CORE_NUMERICS_RANDOM_H

#include "core/export.h"
#include <stdbool.h>
#include <stdint.h>

WF_BEGIN_DECLS

/** wf_random_purpose - the use of the numbers; each purpose has a key of its own. */
typedef enum wf_random_purpose {
    WF_RANDOM_INIT,
    WF_RANDOM_DROPOUT,
    WF_RANDOM_DATA,
    WF_RANDOM_SAMPLE,
    WF_RANDOM_ORDER
} wf_random_purpose;

/**
 * wf_philox - computes one block of Philox4x32-10: four random words of a counter and a key
 *
 * @param counter  any
 * @param key      its low word is the generator's first key word
 * @param out      may be counter
 */
WF_API void wf_philox(const uint32_t counter[4], uint64_t key, uint32_t out[4]);

/** wf_random_key - returns the key of a purpose under a seed. */
WF_API uint64_t wf_random_key(uint64_t seed, uint32_t purpose);

/** wf_random_uniform - returns a uniform number in [0, 1), a multiple of 2^-24: word index mod
 * 4 of block {index / 4, stream}, its upper 24 bits */
WF_API float wf_random_uniform(uint64_t key, uint64_t stream, uint64_t index);

/** wf_random_normal - returns a normal number, mean 0 and variance 1 (Box and Muller 1958):
 * words 0, 1 of block {index / 4, stream} make elements 0 (cosine) and 1 (sine) of its four,
 * words 2, 3 the others; within 2^-20 of its formula, and below 6.77 in magnitude */
WF_API float wf_random_normal(uint64_t key, uint64_t stream, uint64_t index);

/** wf_truncated - a normal distribution cut to an interval; made by wf_truncate. */
typedef struct wf_truncated {
    float mean, deviation, low, high;
    /* the normal distribution: twice its share below low, above high and between them, and
       the first minus 1 */
    float below, above, span, first;
} wf_truncated;

/**
 * wf_truncate - fills in the normal distribution within [low, high]
 *
 * @param deviation  > 0
 * Returns: false where the interval holds less than a thousandth of the whole distribution
 *          (also where it is empty or something is a NaN): it is too thin to be drawn from
 */
WF_API bool wf_truncate(wf_truncated *t, float mean, float deviation, float low, float high);

/** wf_random_truncated - returns the normal number at u(low) + (word + 1/2) / 2^32 (u(high) -
 * u(low)), u being the share of the distribution below: no word is rejected, so one word makes
 * one number, and word index mod 4 of block {index / 4, stream} makes this one. Inverse by
 * polynomials in log 4 u (1 - u), of the form of Giles 2010 ("Approximating the erfinv
 * function"), within 2^-19 of the result's size */
WF_API float wf_random_truncated(const wf_truncated *t, uint64_t key, uint64_t stream,
                                 uint64_t index);

/** wf_random_below - returns an integer in [0, n), n >= 1, each with probability 1/n within
 * 2^-64 */
WF_API uint64_t wf_random_below(uint64_t key, uint64_t stream, uint64_t index, uint64_t n);

/** wf_random_fill_uniform, wf_random_fill_normal - fill dst[i] with the number at index first +
 * i, for i < n: the values of the functions above at a fraction of their cost */
WF_API void wf_random_fill_uniform(float *dst, int64_t n, uint64_t key, uint64_t stream,
                                   uint64_t first);
WF_API void wf_random_fill_normal(float *dst, int64_t n, uint64_t key, uint64_t stream,
                                  uint64_t first);

WF_END_DECLS

#endif

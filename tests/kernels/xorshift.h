/*
 * tests/kernels/xorshift.h - numbers that are drawn alike on every machine (Marsaglia 2003,
 * "Xorshift RNGs"); a state is a seed, which is not 0.
 */
#ifndef WF_TESTS_KERNELS_XORSHIFT_H
#define WF_TESTS_KERNELS_XORSHIFT_H

#include <stdint.h>

/* Returns the next 64 bits. */
static inline uint64_t xorshift(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Returns a number of [0, n). */
static inline int64_t xorshift_below(uint64_t *state, int64_t n)
{
    return (int64_t)(xorshift(state) % (uint64_t)n);
}

#endif

/*
 * kernels/lanes_far.h - the reduction of large arguments of sine and cosine, by whole
 * numbers, for kernels/lanes.h: one text for CPUs and GPUs.
 */
#ifndef WF_KERNELS_LANES_FAR_H
#define WF_KERNELS_LANES_FAR_H

#include <stdint.h>
#include <string.h>

#if defined(__CUDACC__)
#define WF_LANES_FAR static __device__ inline
#else
#define WF_LANES_FAR static inline __attribute__((unused))
#endif

/*
 * Returns x - n pi/2 of -pi/4 .. pi/4 for |x| > 2^16, and n modulo 4. x is m 2^e with a whole m
 * of 24 bits; of 2/pi, whose binary digits are `digit` after a zero, those of weights 2^1 down
 * to 2^-94 after 2^e count, for what is above them makes multiples of 4. The rest of a float is
 * above 2^-33, and the error below 2^-61.
 */
WF_LANES_FAR float wf_far_quarters(float x, int32_t *n)
{
    const uint32_t digit[9] = {0,           0xA2F9836Eu, 0x4E441529u, 0xFC2757D1u, 0xF534DDC0u,
                               0xDB629599u, 0x3C439041u, 0xFE5163ABu, 0xDEBBC561u};
    uint32_t bits, m, word[3];
    uint64_t product, quarters;
    int from, at, shift;
    double rest;

    memcpy(&bits, &x, sizeof bits);
    from = (int)(bits >> 23 & 255) - 150 + 30; /* 23 .. 135 */
    m = (bits & 0x7FFFFFu) | 0x800000u;
    at = from / 32;
    shift = from % 32;
    for (int i = 0; i < 3; i++)
        word[i] =
            shift ? digit[at + i] << shift | digit[at + i + 1] >> (32 - shift) : digit[at + i];
    product = m * ((uint64_t)word[0] << 32 | word[1]) + ((uint64_t)m * word[2] >> 32);
    quarters = (product + ((uint64_t)1 << 61)) >> 62;
    rest =
        (double)(int64_t)(product - (quarters << 62)) * 3.4061215800304562e-19; /* pi 2^-63 */
    *n = (int32_t)(bits >> 31 ? 4 - quarters : quarters);
    return (float)(bits >> 31 ? -rest : rest);
}

#endif

/*
 * core/numerics/bf16.h - bf16 is a storage type: the upper half of a float's bits. Narrowing
 * rounds to the nearest, ties to even; a NaN stays a quiet NaN. Denormals become zeros of their
 * sign, as the instructions for it do, so that no machine shows in the bits.
 */
#ifndef WF_CORE_NUMERICS_BF16_H
#define WF_CORE_NUMERICS_BF16_H

#include <stdint.h>
#include <string.h>

/** wf_bf16_of - rounds a float to the nearest bf16. */
static inline uint16_t wf_bf16_of(float x)
{
    uint32_t bits, rounded, sign;

    memcpy(&bits, &x, sizeof bits);
    sign = bits & 0x80000000u;
    rounded = bits + 0x7fffu + (bits >> 16 & 1);
    rounded = (bits & 0x7fffffffu) > 0x7f800000u ? bits | 0x400000u : rounded;
    rounded = (bits & 0x7f800000u) == 0 ? sign : rounded;
    return (uint16_t)(rounded >> 16);
}

/** wf_bf16_value - widens a bf16 to a float. */
static inline float wf_bf16_value(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float x;

    bits = (bits & 0x7f800000u) == 0 ? bits & 0x80000000u : bits;
    memcpy(&x, &bits, sizeof x);
    return x;
}

#endif

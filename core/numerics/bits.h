/* core/numerics/bits.h - mixing of 64-bit words. */
#ifndef WF_CORE_NUMERICS_BITS_H
#define WF_CORE_NUMERICS_BITS_H

#include "core/export.h"
#include <stdint.h>

/** wf_mix64 - mixes a word by one step of SplitMix64 (Steele, Lea and Flood 2014, constants of
 * Stafford's variant 13): a bijection in which every bit of the input reaches every bit of the
 * output. */
static inline WF_HOST_DEVICE uint64_t wf_mix64(uint64_t x)
{
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

#endif

/*
 * core/numerics/exact_sum.h - a sum of doubles without rounding: an integer wide enough for
 * every finite double, so neither the order of additions nor how they are spread over ranks
 * matters. It is rounded once, when its value is asked for.
 *
 * The struct holds no pointers: a zeroed one is an empty sum, and it may be copied and sent as
 * bytes.
 */
#ifndef WF_CORE_NUMERICS_EXACT_SUM_H
#define WF_CORE_NUMERICS_EXACT_SUM_H

#include "core/export.h"
#include <stdint.h>
#include <string.h>

WF_BEGIN_DECLS

enum { WF_EXACT_LIMBS = 68 };
enum { WF_EXACT_NAN = 1, WF_EXACT_POSITIVE = 2, WF_EXACT_NEGATIVE = 4 };

typedef struct wf_exact_sum {
    int64_t limb[WF_EXACT_LIMBS]; /* the sum of limb[i] * 2^(32 i - 1074) */
    int64_t added;                /* no limb is larger than this many times 2^32 */
    int64_t not_finite;           /* WF_EXACT_NAN and so on, for infinities */
} wf_exact_sum;

/** wf_exact_split - splits a finite x into part[0 .. 2] at limbs *limb and on, and returns 0;
 * else returns WF_EXACT_NAN, WF_EXACT_POSITIVE or WF_EXACT_NEGATIVE. */
static inline WF_HOST_DEVICE int wf_exact_split(double x, int *limb, int64_t part[3])
{
    uint64_t bits, mantissa, low, high;
    unsigned exponent, shift;

    memcpy(&bits, &x, sizeof bits);
    exponent = (unsigned)(bits >> 52) & 0x7FF;
    mantissa = bits & 0xFFFFFFFFFFFFFu;
    if (exponent == 0x7FF)
        return mantissa != 0 ? WF_EXACT_NAN
               : bits >> 63  ? WF_EXACT_NEGATIVE
                             : WF_EXACT_POSITIVE;
    /* x is mantissa * 2^(shift - 1074); denormals have the exponent of the smallest normals. */
    if (exponent > 0)
        mantissa |= (uint64_t)1 << 52;
    shift = exponent > 0 ? exponent - 1 : 0;
    *limb = (int)(shift / 32);
    shift %= 32;
    low = (mantissa & 0xFFFFFFFFu) << shift;
    high = ((mantissa >> 32) << shift) + (low >> 32);
    part[0] = (int64_t)(low & 0xFFFFFFFFu);
    part[1] = (int64_t)(high & 0xFFFFFFFFu);
    part[2] = (int64_t)(high >> 32);
    for (int i = 0; i < 3; i++)
        part[i] = bits >> 63 ? -part[i] : part[i];
    return 0;
}

/** wf_exact_add - adds x to acc; infinities and NaNs stay, and inf - inf is a NaN. */
WF_API void wf_exact_add(wf_exact_sum *acc, double x);

/** wf_exact_merge - adds another sum to acc. */
WF_API void wf_exact_merge(wf_exact_sum *acc, const wf_exact_sum *other);

/** wf_exact_value - returns the sum, correctly rounded (to nearest, ties to even); +0 for an
 * empty or zero one. */
WF_API double wf_exact_value(const wf_exact_sum *acc);

WF_END_DECLS

#endif

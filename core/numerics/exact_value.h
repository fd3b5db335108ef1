/*
 * core/numerics/exact_value.h - the value of an exact sum (core/numerics/exact_sum.h),
 * rounded once: one text for the host and for devices.
 */
#ifndef WF_CORE_NUMERICS_EXACT_VALUE_H
#define WF_CORE_NUMERICS_EXACT_VALUE_H

#include "core/numerics/exact_sum.h"
#include <stdbool.h>

/* Carries between limbs until all are in [0, 2^32) but the last, which has the sign. */
static inline WF_HOST_DEVICE void wf_exact_settle(wf_exact_sum *acc)
{
    for (int i = 0; i + 1 < WF_EXACT_LIMBS; i++) {
        int64_t low = acc->limb[i] & 0xFFFFFFFF;

        acc->limb[i + 1] += (acc->limb[i] - low) / ((int64_t)1 << 32);
        acc->limb[i] = low;
    }
    acc->added = 1;
}

/* Returns bits at .. at + 31 of the magnitude, at >= 0; zeros beyond the last limb. */
static inline WF_HOST_DEVICE uint64_t wf_exact_word(const wf_exact_sum *sum, int at)
{
    int i = at / 32, shift = at % 32;
    uint64_t low = i < WF_EXACT_LIMBS ? (uint64_t)sum->limb[i] : 0;
    uint64_t high = i + 1 < WF_EXACT_LIMBS ? (uint64_t)sum->limb[i + 1] : 0;

    return ((low | high << 32) >> shift) & 0xFFFFFFFFu;
}

/* Returns the position of the highest bit set, -1 for zero. Limbs are settled and not
   negative. */
static inline WF_HOST_DEVICE int wf_exact_top(const wf_exact_sum *sum)
{
    int i = WF_EXACT_LIMBS - 1, bit = 0;

    while (i >= 0 && sum->limb[i] == 0)
        i--;
    if (i < 0)
        return -1;
    while ((uint64_t)sum->limb[i] >> bit > 1)
        bit++;
    return 32 * i + bit;
}

static inline WF_HOST_DEVICE bool wf_exact_any_below(const wf_exact_sum *sum, int at)
{
    for (int i = 0; i < at / 32; i++)
        if (sum->limb[i] != 0)
            return true;
    return (sum->limb[at / 32] & (((int64_t)1 << at % 32) - 1)) != 0;
}

/* Returns the bits of what is not finite. */
static inline WF_HOST_DEVICE uint64_t wf_exact_not_finite(int64_t why)
{
    const uint64_t infinity = (uint64_t)0x7FF << 52;

    if (why == WF_EXACT_POSITIVE)
        return infinity;
    return why == WF_EXACT_NEGATIVE ? infinity | (uint64_t)1 << 63
                                    : infinity | (uint64_t)1 << 51;
}

/*
 * Returns the bits of a magnitude: 53 from the top, rounded. Their leading one adds 1 to the
 * exponent field, and so does a carry out of rounding; below 2^-1022 the bits are the denormal
 * itself.
 */
static inline WF_HOST_DEVICE uint64_t wf_exact_round(const wf_exact_sum *sum, int top)
{
    int drop = top > 52 ? top - 52 : 0;
    uint64_t bits = wf_exact_word(sum, drop) | (wf_exact_word(sum, drop + 32) & 0x1FFFFF) << 32;

    if (drop > 0 && (wf_exact_word(sum, drop - 1) & 1) &&
        ((bits & 1) || wf_exact_any_below(sum, drop - 1)))
        bits++;
    bits += (uint64_t)drop << 52;
    return bits >> 52 >= 0x7FF ? (uint64_t)0x7FF << 52 : bits;
}

/* Returns the sum's value; settles it, and makes it not negative. */
static inline WF_HOST_DEVICE double wf_exact_take(wf_exact_sum *sum)
{
    uint64_t bits;
    bool negative;
    double value;
    int top;

    if (sum->not_finite != 0) {
        bits = wf_exact_not_finite(sum->not_finite);
        memcpy(&value, &bits, sizeof value);
        return value;
    }
    wf_exact_settle(sum);
    negative = sum->limb[WF_EXACT_LIMBS - 1] < 0;
    if (negative) {
        for (int i = 0; i < WF_EXACT_LIMBS; i++)
            sum->limb[i] = -sum->limb[i];
        wf_exact_settle(sum);
    }
    top = wf_exact_top(sum);
    if (top < 0)
        return 0.0;
    bits = wf_exact_round(sum, top) | (uint64_t)negative << 63;
    memcpy(&value, &bits, sizeof value);
    return value;
}

#endif

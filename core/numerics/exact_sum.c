/*
 * core/numerics/exact_sum.c - limbs of 32 bits in words of 64: additions go to three limbs
 * without carry, and carries are settled before a limb could overflow. 66 limbs hold any finite
 * double and two more any sum of 2^63 of them.
 */
#include "core/numerics/exact_sum.h"
#include <stdbool.h>
#include <string.h>

enum { SETTLE = 1 << 30 };

/* Carries between limbs until all are in [0, 2^32) but the last, which has the sign. */
static void settle(wf_exact_sum *acc)
{
    for (int i = 0; i + 1 < WF_EXACT_LIMBS; i++) {
        int64_t low = acc->limb[i] & 0xFFFFFFFF;

        acc->limb[i + 1] += (acc->limb[i] - low) / ((int64_t)1 << 32);
        acc->limb[i] = low;
    }
    acc->added = 1;
}

void wf_exact_add(wf_exact_sum *acc, double x)
{
    int64_t part[3];
    int limb, not_finite = wf_exact_split(x, &limb, part);

    acc->not_finite |= not_finite;
    if (not_finite)
        return;
    for (int i = 0; i < 3; i++)
        acc->limb[limb + i] += part[i];
    if (++acc->added >= SETTLE)
        settle(acc);
}

void wf_exact_merge(wf_exact_sum *acc, const wf_exact_sum *other)
{
    /* Each has been added to fewer than 2^30 times, so no limb passes 2^63. */
    for (int i = 0; i < WF_EXACT_LIMBS; i++)
        acc->limb[i] += other->limb[i];
    acc->added += other->added;
    if (acc->added >= SETTLE)
        settle(acc);
    acc->not_finite |= other->not_finite;
}

/* Bits at .. at + 31 of the magnitude, at >= 0; zeros beyond the last limb. */
static uint64_t word_at(const wf_exact_sum *sum, int at)
{
    int i = at / 32, shift = at % 32;
    uint64_t low = i < WF_EXACT_LIMBS ? (uint64_t)sum->limb[i] : 0;
    uint64_t high = i + 1 < WF_EXACT_LIMBS ? (uint64_t)sum->limb[i + 1] : 0;

    return ((low | high << 32) >> shift) & 0xFFFFFFFFu;
}

/* Position of the highest bit set, -1 for zero. Limbs are settled and not negative. */
static int top_bit(const wf_exact_sum *sum)
{
    int i = WF_EXACT_LIMBS - 1;

    while (i >= 0 && sum->limb[i] == 0)
        i--;
    return i < 0 ? -1 : 32 * i + 63 - __builtin_clzll((unsigned long long)sum->limb[i]);
}

static bool any_bit_below(const wf_exact_sum *sum, int at)
{
    for (int i = 0; i < at / 32; i++) {
        if (sum->limb[i] != 0)
            return true;
    }
    return (sum->limb[at / 32] & (((int64_t)1 << at % 32) - 1)) != 0;
}

double wf_exact_value(const wf_exact_sum *acc)
{
    wf_exact_sum sum = *acc;
    uint64_t bits;
    bool negative;
    double value;
    int top, drop;

    if (acc->not_finite != 0) {
        if (acc->not_finite == WF_EXACT_POSITIVE)
            return __builtin_inf();
        return acc->not_finite == WF_EXACT_NEGATIVE ? -__builtin_inf() : __builtin_nan("");
    }
    settle(&sum);
    negative = sum.limb[WF_EXACT_LIMBS - 1] < 0;
    if (negative) {
        for (int i = 0; i < WF_EXACT_LIMBS; i++)
            sum.limb[i] = -sum.limb[i];
        settle(&sum);
    }
    top = top_bit(&sum);
    if (top < 0)
        return 0.0;

    /* 53 bits from the top, rounded. Their leading one adds 1 to the exponent field, and so
       does a carry out of rounding; below 2^-1022 the bits are the denormal itself. */
    drop = top > 52 ? top - 52 : 0;
    bits = word_at(&sum, drop) | (word_at(&sum, drop + 32) & 0x1FFFFF) << 32;
    if (drop > 0) {
        bool half = word_at(&sum, drop - 1) & 1;

        if (half && ((bits & 1) || any_bit_below(&sum, drop - 1)))
            bits++;
    }
    bits += (uint64_t)drop << 52;
    if (bits >> 52 >= 0x7FF)
        return negative ? -__builtin_inf() : __builtin_inf();
    bits |= (uint64_t)negative << 63;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

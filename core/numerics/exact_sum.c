/*
 * core/numerics/exact_sum.c - limbs of 32 bits in words of 64: additions go to three limbs
 * without carry, and carries are settled before a limb could overflow. 66 limbs hold any finite
 * double and two more any sum of 2^63 of them.
 */
#include "core/numerics/exact_value.h"

enum { SETTLE = 1 << 30 };

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
        wf_exact_settle(acc);
}

void wf_exact_merge(wf_exact_sum *acc, const wf_exact_sum *other)
{
    /* Each has been added to fewer than 2^30 times, so no limb passes 2^63. */
    for (int i = 0; i < WF_EXACT_LIMBS; i++)
        acc->limb[i] += other->limb[i];
    acc->added += other->added;
    if (acc->added >= SETTLE)
        wf_exact_settle(acc);
    acc->not_finite |= other->not_finite;
}

double wf_exact_value(const wf_exact_sum *acc)
{
    wf_exact_sum sum = *acc;

    return wf_exact_take(&sum);
}

/*
 * core/exact_sum.h - a sum of doubles without rounding: an integer wide enough for every finite
 * double, so neither the order of additions nor how they are spread over ranks matters. It is
 * rounded once, when its value is asked for.
 *
 * The struct holds no pointers: a zeroed one is an empty sum, and it may be copied and sent as
 * bytes.
 */
#ifndef WF_CORE_EXACT_SUM_H
#define WF_CORE_EXACT_SUM_H

#include <stdint.h>

enum { WF_EXACT_LIMBS = 68 };

typedef struct wf_exact_sum {
    int64_t limb[WF_EXACT_LIMBS]; /* the sum of limb[i] * 2^(32 i - 1074) */
    int64_t added;                /* no limb is larger than this many times 2^32 */
    int64_t not_finite;           /* bits: 1 for a NaN, 2 for +inf, 4 for -inf */
} wf_exact_sum;

/* acc += x; infinities and NaNs stay, and inf - inf is a NaN. */
void wf_exact_add(wf_exact_sum *acc, double x);

/* acc += other */
void wf_exact_merge(wf_exact_sum *acc, const wf_exact_sum *other);

/* The sum, correctly rounded (to nearest, ties to even); +0 for an empty or zero one. */
double wf_exact_value(const wf_exact_sum *acc);

#endif

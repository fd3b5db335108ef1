/* kernels/unit_norm_internal.h - the factor of unit_norm, for every device. Not installed. */
#ifndef WF_KERNELS_UNIT_NORM_INTERNAL_H
#define WF_KERNELS_UNIT_NORM_INTERNAL_H

#include "core/numerics/exact_value.h"
#include <math.h>

/* Returns 1 / (root of a sum of squares + eps); settles the sum. */
static inline WF_HOST_DEVICE float wf_unit_factor(wf_exact_sum *squares, double eps)
{
    return (float)(1 / (sqrt(wf_exact_take(squares)) + eps));
}

#endif

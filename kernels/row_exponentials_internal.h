/*
 * kernels/row_exponentials_internal.h - softmax and sigmoids of a row in double, for
 * reference loops: those of softmax.c and of routers (kernels/router_rows_internal.h).
 */
#ifndef WF_KERNELS_ROW_EXPONENTIALS_INTERNAL_H
#define WF_KERNELS_ROW_EXPONENTIALS_INTERNAL_H

#include "core/numerics/math.h"
#include <math.h>
#include <stdint.h>

static inline void row_softmax(const void *with, const double *x, double *y, int64_t n)
{
    double max = -INFINITY, sum = 0;

    (void)with;
    for (int64_t i = 0; i < n; i++)
        max = x[i] > max ? x[i] : max;
    for (int64_t i = 0; i < n; i++)
        sum += wf_expd(x[i] - max);
    for (int64_t i = 0; i < n; i++)
        y[i] = wf_expd(x[i] - max) / sum;
}

static inline void row_sigmoid(const void *with, const double *x, double *y, int64_t n)
{
    (void)with;
    for (int64_t i = 0; i < n; i++)
        y[i] = 1 / (1 + wf_expd(-x[i]));
}

#endif

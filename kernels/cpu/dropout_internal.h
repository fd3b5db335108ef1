/* kernels/cpu/dropout_internal.h - dropout of a range of elements, for the kernels that contain
   it. */
#ifndef WF_KERNELS_CPU_DROPOUT_INTERNAL_H
#define WF_KERNELS_CPU_DROPOUT_INTERNAL_H

#include "kernels/cpu/cpu_internal.h"
#include "kernels/shared_internal.h"

/* y = dropout(x) of n neighbours: the local elements of tensor t from `begin` on, which x has
   as floats. y may be x. */
void wf_cpu_dropout_range(const wf_simd *simd, const wf_dropout_attr *attr, const wf_tensor *t,
                          int64_t begin, int64_t n, const float *x, float *y);

#endif

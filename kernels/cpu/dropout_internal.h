/* kernels/cpu/dropout_internal.h - dropout of a range of elements, for the kernels that contain it. */
#ifndef WF_KERNELS_CPU_DROPOUT_INTERNAL_H
#define WF_KERNELS_CPU_DROPOUT_INTERNAL_H

#include "kernels/cpu/cpu_internal.h"
#include "kernels/shared_internal.h"

/* y[i - begin] = dropout(x)[i] for the local elements begin .. end - 1 of tensor x */
void wf_cpu_dropout_range(const wf_simd *simd, const wf_dropout_attr *attr, const wf_tensor *x,
                          int64_t begin, int64_t end, float *y);

#endif

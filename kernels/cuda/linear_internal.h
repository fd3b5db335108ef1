/* kernels/cuda/linear_internal.h - what a call of linear or matmul asks of a product. Not
   installed. */
#ifndef WF_KERNELS_CUDA_LINEAR_INTERNAL_H
#define WF_KERNELS_CUDA_LINEAR_INTERNAL_H

#include "kernels/cuda/matmul_internal.h"

/* Returns the address of an element, by its number in memory. */
const void *wf_cuda_element(const wf_tensor *t, int64_t element);

/* Checks that both factors and, of a joined op, all members are stored alike; else
   WF_EDTYPE. */
wf_status wf_cuda_check_factors(const wf_call *call);

#endif

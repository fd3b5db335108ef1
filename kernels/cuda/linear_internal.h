/* kernels/cuda/linear_internal.h - what a call of linear or matmul asks of a product. Not installed. */
#ifndef WF_KERNELS_CUDA_LINEAR_INTERNAL_H
#define WF_KERNELS_CUDA_LINEAR_INTERNAL_H

#include "kernels/cuda/matmul_internal.h"

/* Where an element lies, by its number in memory. */
const void *wf_cuda_element(const wf_tensor *t, int64_t element);

/* Whether a sum over this dim is a tree over chunks, whatever their number is on this rank. */
bool wf_cuda_is_tree(const wf_call *call, const wf_dim *summed);

/* Rows of a result are aligned as its shape promises, and as they lie here. */
bool wf_cuda_may_be_direct(const wf_tensor *out);

/* Both factors and, of a joined op, all members are stored alike, or it is WF_EDTYPE. */
wf_status wf_cuda_check_factors(const wf_call *call);

#endif

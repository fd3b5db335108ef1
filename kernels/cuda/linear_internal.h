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

/* Returns the product of one run of pairs of operands (wf_linear_run). */
typedef wf_cuda_product wf_cuda_run_product(const wf_call *run);

/* Returns the workspace that the largest product of a call's runs needs. */
size_t wf_cuda_runs_workspace(const wf_call *call, wf_cuda_run_product *product);

/* Runs the products of a call's runs one after another: each but the first adds to the
   result. */
wf_status wf_cuda_runs(const wf_call *call, wf_cuda_run_product *product, void *workspace);

#endif

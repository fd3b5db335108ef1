/* kernels/cuda/linear_internal.h - what a call of linear or matmul asks of a product. Not
   installed. */
#ifndef WF_KERNELS_CUDA_LINEAR_INTERNAL_H
#define WF_KERNELS_CUDA_LINEAR_INTERNAL_H

#include "kernels/cuda/matmul_internal.h"

/* Returns the address of an element, by its number in memory. */
const void *wf_cuda_element(const wf_tensor *t, int64_t element);

/* Returns the second factor of a product that has a matrix from a row or from a column on, the
   other being 0: its terms lie along the matrix's rows, or its rows are terms. */
wf_cuda_factor wf_cuda_weight(const wf_tensor *w, int64_t row, int64_t column, bool along);

/* Returns whether a product of x's rows takes a matrix as it is stored, as nf4: exact ones do
   where eight numbers side by side are of one block and of one chunk. */
bool wf_cuda_takes_nf4(const wf_call *call, const wf_tensor *x, const wf_tensor *w, bool bf16);

/* Return the mask of such matrices of a call of one x and several matrices, of pairs:
   wf_kernel.nf4_ok. */
unsigned wf_cuda_forward_nf4(const wf_call *call, bool bf16);
unsigned wf_cuda_pairs_nf4(const wf_call *call, bool bf16);

/* Checks that both factors and, of a joined op, all members are stored alike; else
   WF_EDTYPE. */
wf_status wf_cuda_check_factors(const wf_call *call);

/* Returns one member's part of a group that shares x, as a call of its own; the product of such
   a part; the workspace of a group's largest product. */
wf_call wf_cuda_linear_member(const wf_call *call, int m);
wf_cuda_product wf_cuda_linear_product(const wf_call *one);
size_t wf_cuda_linear_workspace(const wf_call *call);

/* Returns the product of one run of pairs of operands (wf_linear_run). */
typedef wf_cuda_product wf_cuda_run_product(const wf_call *run);

/* Returns the workspace that the largest product of a call's runs needs. */
size_t wf_cuda_runs_workspace(const wf_call *call, wf_cuda_run_product *product);

/* Runs the products of a call's runs one after another: each but the first adds to the
   result. */
wf_status wf_cuda_runs(const wf_call *call, wf_cuda_run_product *product, void *workspace);

#endif

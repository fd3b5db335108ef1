/* kernels/cuda/moe_rows_internal.h - what is between the products of experts: the launchers of
   moe.cu for moe.c. */
#ifndef WF_KERNELS_CUDA_MOE_ROWS_INTERNAL_H
#define WF_KERNELS_CUDA_MOE_ROWS_INTERNAL_H

#include "kernels/cuda/moe_internal.h"

WF_BEGIN_DECLS

/* Gradients of an expert's rows, row by row; of `rank` numbers where there are adapters. */
typedef struct wf_moe_grad_rows {
    const int *rows, *token, *choice; /* *rows: how many there are */
    int64_t d, f, rank;
    const float *weights;
    const float *c;         /* dy down, of each row */
    const void *h, *dy, *v; /* dy: of each token */
    const void *gate, *up;
    void *dgate, *dup; /* may be where gate and up are */
    void *wdy, *wv;
    float *dweights;
} wf_moe_grad_rows;

/* Checks that the tensors of a call are stored as its kernel takes them: WF_EDTYPE. */
wf_status wf_cuda_moe_check_types(const wf_call *call);

/* h = silu(gate) up of all rows, of f numbers. */
cudaError_t wf_cuda_launch_moe_act(cudaStream_t stream, wf_dtype type, const void *gate,
                                   const void *up, void *h, const wf_moe_lists *lists,
                                   int64_t f);
cudaError_t wf_cuda_launch_moe_grad(cudaStream_t stream, wf_dtype type,
                                    const wf_moe_grad_rows *rows, const wf_moe_lists *lists);

/* y of a token = the tree over its experts of weight * row; weights NULL: of rows. */
cudaError_t wf_cuda_launch_moe_combine(cudaStream_t stream, wf_dtype type,
                                       const wf_moe_lists *lists, const void *rows,
                                       const float *weights, const wf_tensor *y);

WF_END_DECLS

#endif

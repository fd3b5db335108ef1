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
    void *dgate, *dup; /* may be gate and up */
    void *wdy, *wv;
    float *dweights; /* NULL: terms of these, */
    float *terms[2]; /* c and h, where choices are */
} wf_moe_grad_rows;

/* Checks that the tensors of a call are stored as its kernel takes them: WF_EDTYPE. */
wf_status wf_cuda_moe_check_types(const wf_call *call);

/* h = silu(gate) up of all rows, of f numbers. */
cudaError_t wf_cuda_launch_moe_act(cudaStream_t stream, wf_dtype type, const void *gate,
                                   const void *up, void *h, const wf_moe_lists *lists,
                                   int64_t f);
cudaError_t wf_cuda_launch_moe_grad(cudaStream_t stream, wf_dtype type,
                                    const wf_moe_grad_rows *rows, const wf_moe_lists *lists);

/* Rows of choices, n floats each, and those of experts, of `type`. */
typedef struct wf_moe_row_copy {
    const int *rows, *choice; /* *rows: how many there are */
    wf_dtype type;
    int64_t n;
    wf_moe_matrix matrix; /* the experts' rows, or tokens' */
    float *of_choices;    /* the others, or weights of choices */
    void *out;            /* rows of experts, where others are read */
    float factor;
} wf_moe_row_copy;

cudaError_t wf_cuda_launch_moe_clear(cudaStream_t stream, const wf_moe_lists *lists,
                                     float *rows, int64_t n);
cudaError_t wf_cuda_launch_moe_put(cudaStream_t stream, const wf_moe_row_copy *copy,
                                   const wf_moe_lists *lists);
cudaError_t wf_cuda_launch_moe_get(cudaStream_t stream, const wf_moe_row_copy *copy,
                                   const wf_moe_lists *lists);
cudaError_t wf_cuda_launch_moe_weigh(cudaStream_t stream, const wf_moe_row_copy *copy,
                                     const wf_moe_lists *lists);

/* Lists choices of all experts as rows that are there. */
cudaError_t wf_cuda_launch_moe_identity(cudaStream_t stream, const wf_moe_lists *lists);

/* Rounds n rows of floats to bf16; dw of a choice = c . h over f features. */
cudaError_t wf_cuda_launch_moe_round(cudaStream_t stream, const float *rows, void *to,
                                     int64_t count);
cudaError_t wf_cuda_launch_moe_dot(cudaStream_t stream, const float *c, const float *h,
                                   float *dw, int64_t choices, int64_t f);

/* y of a token = the tree over its experts of weight * row; weights NULL: of rows. */
cudaError_t wf_cuda_launch_moe_combine(cudaStream_t stream, wf_dtype type,
                                       const wf_moe_lists *lists, const void *rows,
                                       const float *weights, const wf_tensor *y);

WF_END_DECLS

#endif

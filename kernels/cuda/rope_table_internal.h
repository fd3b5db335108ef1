/* kernels/cuda/rope_table_internal.h - the cosines and sines of a call of rope. */
#ifndef WF_KERNELS_CUDA_ROPE_TABLE_INTERNAL_H
#define WF_KERNELS_CUDA_ROPE_TABLE_INTERNAL_H

#include "kernels/attention_internal.h"
#include "kernels/cuda/cuda_internal.h"

WF_BEGIN_DECLS

typedef struct wf_rope_rows {
    const float *cosine, *sine; /* [tokens][half], of the rotation forward */
    int64_t tokens, half;       /* rows of the tables; pairs that are rotated */
} wf_rope_rows;

/* Returns the bytes of workspace that a call needs for its table; 0 where it is kept. */
size_t wf_cuda_rope_table_bytes(const wf_call *call);

/* Finds the table of a call, or makes it: in the workspace, or to be kept. */
cudaError_t wf_cuda_rope_table(const wf_call *call, void *workspace, wf_rope_rows *rows);

WF_END_DECLS

#endif

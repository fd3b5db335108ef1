/* kernels/cuda/levels_internal.h - the tables of numbers in 8 and 4 bits, in the device's
   memory, and matrices of 4 bits as kernels read them. */
#ifndef WF_KERNELS_CUDA_LEVELS_INTERNAL_H
#define WF_KERNELS_CUDA_LEVELS_INTERNAL_H

#include "kernels/cuda/cuda_internal.h"

WF_BEGIN_DECLS

/* Tables of dynamic8, dynamic8u, in this order, and nf4. The maps' pointers to levels are the
   host's. */
typedef struct wf_cuda_levels {
    float dynamic8[2][WF_DYNAMIC8_LEVELS];
    float nf4[WF_NF4_LEVELS];
    wf_dynamic8_map map[2];
} wf_cuda_levels;

/* Returns the device's tables, made when they are first asked for or when a capture begins, in
   which they could not be; NULL with a failure noted. wf_cuda_levels_close frees them. */
const wf_cuda_levels *wf_cuda_levels_of(wf_cuda *cuda);
void wf_cuda_levels_close(wf_cuda *cuda);

/* A part of a matrix that is stored as nf4 (core/numerics/nf4.h). */
typedef struct wf_nf4_matrix {
    wf_nf4_part part;
    const uint8_t *bytes; /* its first row; NULL: there is no such matrix */
    const float *scales;
    int64_t row_bytes;
    const wf_cuda_levels *levels;
    bool eights; /* eight columns from a multiple of eight on are four bytes of one block */
    bool words;  /* these bytes are aligned */
    bool round;  /* numbers are rounded to bf16, and floats */
} wf_nf4_matrix;

/* Returns a tensor of nf4 for kernels that take its numbers as f32 or bf16; .levels is NULL
   where there is no memory for them, with a failure noted. */
wf_nf4_matrix wf_cuda_nf4_matrix(wf_cuda *cuda, const wf_tensor *t, wf_dtype as);

WF_END_DECLS

#endif
